//! `tensordict._core`: the list of the names that Python sees. Each module extracts, enters and wraps; the work is in
//! `tensordict-core`.

mod collector;
mod consolidate;
mod enter;
mod error;
mod home;
mod key;
mod memmap;
mod once;
mod rows;
mod schedule;
mod settle;
mod shapes;
mod spare;
mod store;
mod swap;
mod tensor;
mod walk;

/// The native half of tensordict. Only `tensordict._kernel.native` imports it.
// Written inline, and each name exported by an attribute, because the generated stub `_core.pyi` knows only those.
// It relies on the GIL: fields of tensors are read as they stand, and what is held once is taken to be known to nobody else.
#[pyo3::pymodule(gil_used = true)]
mod _core {
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name that Python has for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::collector::CollectorPause;
    #[pymodule_export]
    use crate::consolidate::{consolidate, consolidate_to_file, open_consolidated, packed_places, places_in};
    #[pymodule_export]
    use crate::key::{unravel_key, unravel_key_list, unravel_key_to_tuple, unravel_keys};
    #[pymodule_export]
    use crate::memmap::{Descriptor, PyMap, map_anonymous, map_create, map_descriptor, map_filled, map_open};
    #[pymodule_export]
    use crate::rows::{cat, cat_dicts, gather, is_plain, pad_stack, pad_stack_dicts, stack_dicts};
    #[pymodule_export]
    use crate::schedule::{partition_greedy, partition_kk, prepare, runs_under};
    #[pymodule_export]
    use crate::shapes::{all_fit, all_tensors, overwritten, plain_pairs, regrouped, same_shapes};
    #[pymodule_export]
    use crate::store::{
        FolderMoment, Level, inherited_locks, key_file_name, load_tree, save_leaf, save_level, save_tree,
    };
    #[pymodule_export]
    use crate::swap::{Swap, module_fields, swap_in, swap_out, swap_values};
    #[pymodule_export]
    use crate::tensor::{read_directly, register_plain_type};
    #[pymodule_export]
    use crate::walk::{
        collect, copy_nodes, count_below, excluded, flattened, items_below, keys_below, selected,
        unflattened, values_below,
    };
}

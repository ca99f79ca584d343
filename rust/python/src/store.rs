//! Folders of memory-mapped leaves: a whole tree saved or read in one call.
//!
//! Python hands over a flat plan: levels, each with the index of the one it is in, and leaves, each with the index of its
//! level. Tensors are read where they lie; what cannot be read so (another device, gaps, a subclass) is given to a Python
//! function first, which returns a tensor that can.

#![allow(
    clippy::needless_pass_by_value,
    reason = "what Python passes is extracted into values"
)]

use std::collections::HashMap;
use std::path::PathBuf;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};
use tensordict_core::file::{self, SaveLeaf, SaveLevel, SaveOptions, SavePlan, Saved, Says, Source};
use tensordict_core::metadata::{Metadata, Naming};
use tensordict_core::ragged::RaggedSchema;
use tensordict_core::reader::{self, Found, Leaf, ReadOptions, Tree};
use tensordict_core::schema::{DType, LeafSchema, dense_bytes};

use crate::enter::enter;
use crate::error::raise;
use crate::memmap::{PyMap, parse_mode};
use crate::tensor;

/// Files are slow enough that the GIL is always worth releasing, and another process may hold the lock of the folder.
const ALWAYS: u64 = u64::MAX;

/// torch's data types beside ours, in both directions.
struct DTypes {
    objects: HashMap<DType, Py<PyAny>>,
    /// By the address of the object, which torch never frees.
    types: HashMap<usize, DType>,
}

static DTYPES: PyOnceLock<DTypes> = PyOnceLock::new();

impl DTypes {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        DTYPES.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            let mut found = Self {
                objects: HashMap::new(),
                types: HashMap::new(),
            };
            for &dtype in DType::ALL {
                let name = dtype.name().trim_start_matches("torch.");
                // Not every version of torch has every type.
                if let Ok(object) = torch.getattr(name) {
                    found.types.insert(object.as_ptr().addr(), dtype);
                    found.objects.insert(dtype, object.unbind());
                }
            }
            Ok(found)
        })
    }

    fn of(&self, object: &Bound<'_, PyAny>) -> PyResult<DType> {
        match self.types.get(&object.as_ptr().addr()) {
            Some(dtype) => Ok(*dtype),
            None => DType::parse(&object.str()?.to_string_lossy()).map_err(|error| raise(&error)),
        }
    }

    fn object(&self, dtype: DType) -> PyResult<&Py<PyAny>> {
        self.objects.get(&dtype).ok_or_else(|| {
            raise(&tensordict_core::Error::UnknownDType {
                name: dtype.name().into(),
            })
        })
    }
}

/// The JSON of a level that is no plain dictionary, and the files beside it, each with its name and bytes.
type OtherPlan = (String, Vec<(String, Vec<u8>)>);

/// A level as Python hands it over.
#[derive(FromPyObject)]
pub(crate) struct LevelPlan(
    Option<usize>,
    String,
    String,
    /// Batch size.
    Vec<u64>,
    /// Names of the dimensions.
    Option<Vec<Option<String>>>,
    /// Number of leaves before it.
    usize,
    /// `_type` and `_class`, where it is a dictionary of another class.
    Option<(String, Option<String>)>,
    /// JSON of its metadata, where it is no plain dictionary, and files beside that.
    Option<OtherPlan>,
);

impl LevelPlan {
    fn level(self) -> PyResult<SaveLevel<'static>> {
        let Self(parent, key, kind, shape, names, after, class, other) = self;
        let (meta, files) = if let Some((text, files)) = other {
            let path = std::path::Path::new("metadata");
            let meta = Metadata::parse(text.as_bytes(), path).map_err(|error| raise(&error))?;
            (meta, files)
        } else {
            let mut meta = Metadata::plain(shape);
            meta.names = names;
            if let Some((type_name, class_name)) = class {
                meta.kind = type_name;
                meta.class = class_name;
            }
            (meta, Vec::new())
        };
        Ok(SaveLevel {
            parent,
            key: key.into(),
            kind: kind.into(),
            meta,
            after,
            files,
        })
    }
}

/// A leaf as Python hands it over: level, key, tensor, the file that it is mapped from as a whole, and what the metadata
/// says of it: nothing else than its type and shape where that is `None`, the JSON of a ragged leaf, or nothing at all where
/// that is empty.
type LeafPlan<'py> = (usize, String, Bound<'py, PyAny>, Option<PathBuf>, Option<String>);

/// How Python wants it saved.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own in Python"
)]
pub(crate) struct Options {
    robust_key: bool,
    copy_existing: bool,
    existsok: bool,
    durable: bool,
    /// Whether tensors give their types and shapes alone, and the files are zero.
    empty: bool,
}

impl Options {
    fn core(&self) -> SaveOptions {
        SaveOptions {
            naming: naming(self.robust_key),
            copy_existing: self.copy_existing,
            replace: self.existsok,
            durable: self.durable,
        }
    }
}

fn naming(robust_key: bool) -> Naming {
    if robust_key {
        Naming::Robust
    } else {
        Naming::Verbatim
    }
}

/// A leaf with what keeps its bytes alive.
struct Held<'py> {
    level: usize,
    key: String,
    tensor: Bound<'py, PyAny>,
    origin: Option<PathBuf>,
    dtype: DType,
    shape: Vec<u64>,
    says: Says,
    empty: bool,
}

impl<'py> Held<'py> {
    /// Reads type and shape, and makes a tensor that cannot be read where it lies into one that can.
    fn new(plan: LeafPlan<'py>, prepare: &Bound<'py, PyAny>, dtypes: &DTypes, empty: bool) -> PyResult<Self> {
        let (level, key, mut tensor, origin, says) = plan;
        let says = says.map_or(Ok(Says::Schema), |text| says_of(&text, &key))?;
        // Where components lie is no content of theirs.
        let empty = empty && !matches!(says, Says::Nothing);
        let py = tensor.py();
        let dtype = dtypes.of(&tensor.getattr(intern!(py, "dtype"))?)?;
        let mut seen = None;
        if !empty && let Some(view) = tensor::read(&tensor)? {
            seen = Some((
                view.layout().shape().iter().map(|&size| size as u64).collect(),
                view.layout().is_contiguous(),
            ));
        }
        let (shape, ready) = match seen {
            Some(seen) => seen,
            None => (tensor.getattr(intern!(py, "shape"))?.extract()?, empty),
        };
        if !ready {
            tensor = prepare.call1((tensor,))?;
        }
        Ok(Self {
            level,
            key,
            tensor,
            origin,
            dtype,
            shape,
            says,
            empty,
        })
    }

    fn leaf(&self) -> PyResult<SaveLeaf<'_>> {
        let wanted = dense_bytes(self.dtype, &self.shape).map_err(|error| raise(&error))?;
        let source = if self.empty {
            Source::Zeros(wanted)
        } else {
            match tensor::read(&self.tensor)? {
                Some(view) if view.layout().is_contiguous() && view.bytes().len() as u64 == wanted => {
                    Source::Bytes(view.bytes())
                }
                _ => {
                    return Err(pyo3::exceptions::PyTypeError::new_err(format!(
                        "the tensor at {:?} cannot be saved: it is no dense tensor in memory",
                        self.key
                    )));
                }
            }
        };
        Ok(SaveLeaf {
            level: self.level,
            key: self.key.as_str().into(),
            schema: LeafSchema {
                dtype: self.dtype,
                shape: self.shape.clone(),
            },
            source,
            origin: self.origin.clone(),
            says: self.says.clone(),
        })
    }
}

/// What the metadata says of a leaf that is more than a tensor, or less.
fn says_of(text: &str, key: &str) -> PyResult<Says> {
    if text.is_empty() {
        return Ok(Says::Nothing);
    }
    let path = std::path::Path::new("metadata");
    let object = Metadata::object(text.as_bytes(), path).map_err(|error| raise(&error))?;
    let ragged = RaggedSchema::parse(&object, key, path).map_err(|error| raise(&error))?;
    Ok(Says::Ragged(ragged))
}

fn hold<'py>(
    leaves: Vec<LeafPlan<'py>>,
    prepare: &Bound<'py, PyAny>,
    empty: bool,
) -> PyResult<Vec<Held<'py>>> {
    let dtypes = DTypes::get(prepare.py())?;
    leaves
        .into_iter()
        .map(|leaf| Held::new(leaf, prepare, dtypes, empty))
        .collect()
}

fn levels(plans: Vec<LevelPlan>) -> PyResult<Vec<SaveLevel<'static>>> {
    plans.into_iter().map(LevelPlan::level).collect()
}

/// A map and a file as Python gets them.
type Stored = (Option<PyMap>, String);

fn stored(saved: Saved) -> Stored {
    (saved.map.map(PyMap::new), saved.file)
}

/// Saves a tree as the folder `path`. Returns for each leaf the map of its new file, and the file relative to the
/// folder. The map is `None` where the leaf has no elements or already is the mapped file of its place.
#[pyfunction]
pub(crate) fn save_tree(
    path: PathBuf,
    level_plans: Vec<LevelPlan>,
    leaf_plans: Vec<LeafPlan<'_>>,
    prepare: &Bound<'_, PyAny>,
    options: Options,
) -> PyResult<Vec<Stored>> {
    let held = hold(leaf_plans, prepare, options.empty)?;
    let leaves: PyResult<Vec<SaveLeaf<'_>>> = held.iter().map(Held::leaf).collect();
    let mut plan = SavePlan {
        levels: levels(level_plans)?,
        leaves: leaves?,
    };
    let saved = enter(prepare.py(), ALWAYS, || {
        file::save(&path, &mut plan, options.core())
    })?;
    Ok(saved.into_iter().map(stored).collect())
}

/// Adds one leaf to the folder `path`, or replaces it. The levels lead from the root to the one of the leaf.
#[pyfunction]
pub(crate) fn save_leaf<'py>(
    path: PathBuf,
    level_plans: Vec<LevelPlan>,
    leaf_plan: LeafPlan<'py>,
    prepare: &Bound<'py, PyAny>,
    options: Options,
) -> PyResult<Stored> {
    let held = Held::new(leaf_plan, prepare, DTypes::get(prepare.py())?, options.empty)?;
    let leaf = held.leaf()?;
    let levels = levels(level_plans)?;
    let saved = enter(prepare.py(), ALWAYS, || {
        file::add_leaf(&path, levels, leaf, options.core())
    })?;
    Ok(stored(saved))
}

/// Reads the tree in the folder `path`, or in its sub-folder `part`. Returns a list of levels, each a tuple of
/// `(parent, key, kind, folder, batch_size, device, names, fields, other)`.
///
/// `fields` maps a key to the index of a level, or to `(map, dtype, shape, file)` of a leaf, or to the JSON of a ragged leaf
/// with a list of such tuples; the map is `None` for a leaf without elements, or if `map_leaves` is false. `other` is `None` for a plain dictionary and else
/// `(_type, _class, JSON of the metadata)`: such a level is not looked into.
#[pyfunction]
pub(crate) fn load_tree<'py>(
    py: Python<'py>,
    path: PathBuf,
    part: &str,
    robust_key: bool,
    mode: &str,
    map_leaves: bool,
) -> PyResult<Bound<'py, PyList>> {
    let options = ReadOptions {
        naming: naming(robust_key),
        mode: parse_mode(mode)?,
        map: map_leaves,
    };
    let tree = enter(py, ALWAYS, || reader::read(&path, part, options))?;
    tree_to_python(py, tree)
}

fn leaf_to_python<'py>(py: Python<'py>, leaf: Leaf, dtypes: &DTypes) -> PyResult<Bound<'py, PyTuple>> {
    let map = leaf.map.map(PyMap::new);
    let dtype = dtypes.object(leaf.schema.dtype)?;
    let shape = PyTuple::new(py, &leaf.schema.shape)?;
    (map, dtype, shape, leaf.file).into_pyobject(py)
}

fn tree_to_python(py: Python<'_>, tree: Tree) -> PyResult<Bound<'_, PyList>> {
    let dtypes = DTypes::get(py)?;
    let mut leaves = tree.leaves.into_iter();
    let mut ragged = tree.ragged.into_iter();
    let levels = PyList::empty(py);
    for level in tree.levels {
        let fields = PyDict::new(py);
        for ((key, _), found) in level.meta.entries.iter().zip(&level.fields) {
            match found {
                Found::Level(number) => fields.set_item(key, number)?,
                // Leaves come level by level, in the order of the entries.
                Found::Leaf(_) => {
                    let Some(leaf) = leaves.next() else { break };
                    fields.set_item(key, leaf_to_python(py, leaf, dtypes)?)?;
                }
                Found::Ragged(_) => {
                    let Some(leaf) = ragged.next() else { break };
                    let text = serde_json::Value::Object(leaf.schema.entry).to_string();
                    let files: PyResult<Vec<_>> = leaf
                        .files
                        .into_iter()
                        .map(|file| leaf_to_python(py, file, dtypes))
                        .collect();
                    fields.set_item(key, (text, files?))?;
                }
            }
        }
        let meta = &level.meta;
        let other = level
            .text
            .map(|text| (meta.kind.as_str(), meta.class.as_deref(), text));
        let shape = PyTuple::new(py, meta.shape.as_deref().unwrap_or_default())?;
        levels.append((
            level.parent,
            level.key,
            level.kind,
            level.folder,
            shape,
            meta.device.as_deref(),
            meta.names.as_deref(),
            fields,
            other,
        ))?;
    }
    Ok(levels)
}

/// Name of the folder of a nested entry `key`; the file of a leaf has `.memmap` after it.
#[pyfunction]
pub(crate) fn key_file_name(key: &str, robust_key: bool) -> String {
    naming(robust_key).name(key).into_owned()
}

//! Folders of memory-mapped leaves: a whole tree saved or read in one call.
//!
//! Python hands over a flat plan: levels, each with the index of the one it is in, and leaves, each with the index of its
//! level. Tensors are read where they lie; what cannot be read so (another device, gaps, a subclass) is given to a Python
//! function first, which returns a tensor that can. While files are written other threads may give a tensor other memory, so
//! aliases of the leaves are read, which nobody else knows.

#![allow(
    clippy::needless_pass_by_value,
    reason = "what Python passes is extracted into values"
)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use tensordict_core::Error;
use tensordict_core::file::{
    self, Moment, Origin, SaveLeaf, SaveLevel, SaveOptions, SavePlan, Saved, Says, Source, Stayed,
};
use tensordict_core::memmap::Space;
use tensordict_core::metadata::{Metadata, Naming};
use tensordict_core::ragged::RaggedSchema;
use tensordict_core::reader::{self, Found, Leaf, ReadOptions, Tree};
use tensordict_core::schema::{DType, LeafSchema, dense_bytes};

use crate::enter::{enter_waiting, wait};
use crate::error::raise;
use crate::memmap::{PyMap, parse_mode, space};
use crate::once::{intern, once};
use crate::settle::settled;
use crate::tensor;

/// torch's data types beside ours, in both directions.
struct DTypes {
    objects: HashMap<DType, Py<PyAny>>,
    /// By the address of the object, which torch never frees.
    types: HashMap<usize, DType>,
}

static DTYPES: OnceLock<DTypes> = OnceLock::new();

impl DTypes {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        once(&DTYPES, py, || {
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

    /// The type that an object of torch is, that of the leaf `key`.
    fn of(&self, object: &Bound<'_, PyAny>, key: &str) -> PyResult<DType> {
        match self.types.get(&object.as_ptr().addr()) {
            Some(dtype) => Ok(*dtype),
            None => DType::parse(&object.str()?.to_string_lossy()).map_err(|error| {
                PyValueError::new_err(format!("the entry {key:?} cannot be saved: {error}"))
            }),
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

/// Files beside the metadata of a level, each with its name and content.
type Files = Vec<(String, Vec<u8>)>;

/// One level of a tree in a folder: as Python hands it over to be saved, and as it was read.
///
/// A level that is no plain dictionary has `text`, the JSON of its metadata, and `files` beside that.
#[pyclass(frozen, get_all, module = "tensordict._core")]
pub(crate) struct Level {
    /// Index of the level it is in, which comes before it; `None` for the root.
    parent: Option<usize>,
    /// Key in that level.
    key: String,
    /// Name of its type in the entry that the parent has for it.
    kind: String,
    /// Batch size.
    batch_size: Py<PyTuple>,
    /// Names of the dimensions.
    names: Option<Vec<Option<String>>>,
    /// Number of leaves before it; of a level that was read always 0.
    after: usize,
    /// JSON of its metadata.
    text: Option<String>,
    /// Files beside it: name and content.
    files: Py<PyList>,
    /// Its folder relative to the one that was read.
    folder: String,
    /// Its device.
    device: Option<String>,
    /// `_type` and `_class` of its metadata.
    class_names: (String, Option<String>),
    /// Its fields by their keys: the index of a level; `(map, dtype, shape, file)` of a leaf, the map `None` where it has no
    /// elements or was not asked for; the JSON of a ragged leaf with a list of such tuples.
    fields: Py<PyDict>,
}

#[pymethods]
impl Level {
    /// A level that is to be saved.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "they are the fields of a record")]
    #[pyo3(signature = (parent, key, kind, batch_size, names=None, after=0, text=None, files=None))]
    fn new(
        py: Python<'_>,
        parent: Option<usize>,
        key: &Bound<'_, PyString>,
        kind: String,
        batch_size: Py<PyTuple>,
        names: Option<Vec<Option<String>>>,
        after: usize,
        text: Option<String>,
        files: Option<Py<PyList>>,
    ) -> PyResult<Self> {
        Ok(Self {
            parent,
            key: key_text(key)?,
            kind,
            batch_size,
            names,
            after,
            text,
            files: files.unwrap_or_else(|| PyList::empty(py).unbind()),
            folder: String::new(),
            device: None,
            class_names: (String::new(), None),
            fields: PyDict::new(py).unbind(),
        })
    }
}

/// A key as text that files can hold.
fn key_text(key: &Bound<'_, PyString>) -> PyResult<String> {
    key.to_str().map(str::to_owned).map_err(|_| {
        let shown = key.repr().map_or_else(|_| String::new(), |text| text.to_string());
        PyValueError::new_err(format!(
            "the key {shown} cannot be stored: it holds surrogates, which no file name and no JSON can"
        ))
    })
}

impl Level {
    fn save(&self, py: Python<'_>) -> PyResult<SaveLevel<'static>> {
        let (meta, files) = if let Some(text) = &self.text {
            (self.checked(text)?, self.files.extract(py)?)
        } else {
            let mut meta = Metadata::plain(self.batch_size.extract(py)?);
            meta.names.clone_from(&self.names);
            (meta, Vec::new())
        };
        Ok(SaveLevel {
            parent: self.parent,
            key: self.key.clone().into(),
            kind: self.kind.clone().into(),
            meta,
            after: self.after,
            files,
        })
    }

    /// What is to be written, as the reader of it understands it.
    fn checked(&self, text: &str) -> PyResult<Metadata> {
        metadata(text).map_err(|error| raise(&error.at_key(&self.key.as_str().into())))
    }
}

fn metadata(text: &str) -> tensordict_core::Result<Metadata> {
    Metadata::parse(text.as_bytes(), std::path::Path::new("the new metadata"))
}

/// A leaf as Python hands it over: level, key, tensor, the file that it is mapped from as a whole and its map, and what the metadata
/// says of it: nothing else than its type and shape where that is `None`, the JSON of a ragged leaf, or nothing at all where
/// that is empty.
type LeafPlan<'py> = (
    usize,
    Bound<'py, PyString>,
    Bound<'py, PyAny>,
    Option<(PathBuf, Option<Py<PyMap>>)>,
    Option<String>,
);

/// How Python wants it saved.
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
    /// Whether files of zeros take their space as they are written to.
    sparse: bool,
}

impl<'py> FromPyObject<'_, 'py> for Options {
    type Error = PyErr;

    fn extract(options: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = options.py();
        let is = |name: &Bound<'py, PyString>| -> PyResult<bool> { options.get_item(name)?.extract() };
        Ok(Self {
            robust_key: is(intern!(py, "robust_key"))?,
            copy_existing: is(intern!(py, "copy_existing"))?,
            existsok: is(intern!(py, "existsok"))?,
            durable: is(intern!(py, "durable"))?,
            empty: is(intern!(py, "empty"))?,
            sparse: is(intern!(py, "sparse"))?,
        })
    }
}

impl Options {
    fn core<'a>(&self, stayed: Stayed<'a>) -> SaveOptions<'a> {
        SaveOptions {
            stayed,
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
    /// Known here alone, so that it keeps its memory should the leaf be given other memory; where the values are read.
    tensor: Bound<'py, PyAny>,
    origin: Option<Origin>,
    dtype: DType,
    shape: Vec<u64>,
    says: Says,
    /// When the space of its file is taken, where its values are not read.
    empty: Option<Space>,
}

impl<'py> Held<'py> {
    /// Reads type and shape, and makes a tensor that cannot be read where it lies into one that can.
    fn new(
        plan: LeafPlan<'py>,
        prepare: &Bound<'py, PyAny>,
        dtypes: &DTypes,
        options: &Options,
    ) -> PyResult<Self> {
        let (level, key, mut tensor, origin, says) = plan;
        let key = key_text(&key)?;
        let says = says.map_or(Ok(Says::Schema), |text| says_of(&text, &key))?;
        // Where components lie is no content of theirs.
        let empty = options.empty && !matches!(says, Says::Nothing);
        let py = tensor.py();
        let dtype = dtypes.of(&tensor.getattr(intern!(py, "dtype"))?, &key)?;
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
        if !empty {
            tensor = tensor.getattr(intern!(py, "data"))?;
        }
        Ok(Self {
            level,
            key,
            tensor,
            origin: origin.map(|(path, map)| Origin {
                path,
                shared: map.as_ref().is_none_or(|map| map.get().is_shared()),
                file: map.map(|map| map.get().file()),
            }),
            dtype,
            shape,
            says,
            empty: empty.then(|| space(options.sparse)),
        })
    }

    fn leaf(&self) -> PyResult<SaveLeaf<'_>> {
        let wanted = dense_bytes(self.dtype, &self.shape).map_err(|error| raise(&error))?;
        let source = if let Some(space) = self.empty {
            Source::Zeros(wanted, space)
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
    options: &Options,
) -> PyResult<Vec<Held<'py>>> {
    let dtypes = DTypes::get(prepare.py())?;
    leaves
        .into_iter()
        .map(|leaf| Held::new(leaf, prepare, dtypes, options))
        .collect()
}

fn levels(py: Python<'_>, plans: &[Py<Level>]) -> PyResult<Vec<SaveLevel<'static>>> {
    plans.iter().map(|level| level.get().save(py)).collect()
}

/// A map and a file as Python gets them.
type Stored = (Option<PyMap>, String);

fn stored(saved: Saved) -> Stored {
    (saved.map.map(PyMap::new), saved.file)
}

/// Saves a tree as the folder `path`. Returns for each leaf the map of its new file, and the file relative to the
/// folder. The map is `None` where the leaf has no elements or already is the mapped file of its place.
///
/// With `since` nothing is saved, and there is no list, where others have changed the folder since that moment.
#[pyfunction]
#[pyo3(signature = (path, level_plans, leaf_plans, prepare, options, since=None))]
pub(crate) fn save_tree(
    py: Python<'_>,
    path: PathBuf,
    level_plans: Vec<Py<Level>>,
    leaf_plans: Vec<LeafPlan<'_>>,
    prepare: &Bound<'_, PyAny>,
    options: Options,
    since: Option<&Bound<'_, FolderMoment>>,
) -> PyResult<Option<Vec<Stored>>> {
    let levels = levels(py, &level_plans)?;
    let held = hold(leaf_plans, prepare, &options)?;
    let mut plan = SavePlan {
        levels,
        leaves: Vec::new(),
    };
    let since = since.map(|moment| &moment.get().0);
    let saved = save_held(py, &held, |leaves, stayed| {
        plan.leaves = leaves;
        wait(py, || match since {
            None => file::save(&path, &plan, options.core(stayed)).map(Some),
            Some(since) => match file::save_since(&path, &plan, options.core(stayed), since) {
                Err(Error::Changed { .. }) => Ok(None),
                done => done.map(Some),
            },
        })
    })?;
    Ok(saved.map(|saved| saved.into_iter().map(stored).collect()))
}

/// Calls `save` with the leaves as they lie, until they stay there; none where other threads do not let it come to that.
fn save_held<'a, R>(
    py: Python<'_>,
    held: &'a [Held<'_>],
    mut save: impl FnMut(Vec<SaveLeaf<'a>>, Stayed<'_>) -> PyResult<tensordict_core::Result<R>>,
) -> PyResult<R> {
    let saved = settled(py, held.iter().map(|leaf| &leaf.tensor), |stayed| {
        save(held.iter().map(Held::leaf).collect::<PyResult<_>>()?, stayed)
    })?;
    saved.ok_or_else(|| raise(&Error::Moved))
}

/// A moment in the life of a folder, to tell whether others have changed it since.
#[pyclass(frozen, module = "tensordict._core")]
pub(crate) struct FolderMoment(Moment);

#[pymethods]
impl FolderMoment {
    /// This moment of the folder `path`, or of the outermost folder that it is a level of.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        Moment::of(&path).map(Self).map_err(|error| raise(&error))
    }
}

/// Adds one leaf to the folder `path`, or replaces it. The levels lead from the root to the one of the leaf.
#[pyfunction]
pub(crate) fn save_leaf<'py>(
    py: Python<'py>,
    path: PathBuf,
    level_plans: Vec<Py<Level>>,
    leaf_plan: LeafPlan<'py>,
    prepare: &Bound<'py, PyAny>,
    options: Options,
) -> PyResult<Stored> {
    let levels = levels(py, &level_plans)?;
    let held = [Held::new(leaf_plan, prepare, DTypes::get(py)?, &options)?];
    let saved = save_held(py, &held, |leaves, stayed| {
        wait(py, || {
            file::add_leaf(&path, &levels, &leaves[0], options.core(stayed))
        })
    })?;
    Ok(stored(saved))
}

/// Writes again what the folder `path`, a level that is no plain dictionary, says of itself: the JSON of its metadata, and
/// the files beside it. `known` are mapped files of the save that it belongs to, by name: another one is not written to.
#[pyfunction]
pub(crate) fn save_level(
    py: Python<'_>,
    path: PathBuf,
    text: &str,
    files: Files,
    known: Vec<(PathBuf, Py<PyMap>)>,
) -> PyResult<()> {
    let meta = metadata(text).map_err(|error| raise(&error))?;
    let known: Vec<_> = known
        .into_iter()
        .map(|(path, map)| (path, map.get().id()))
        .collect();
    enter_waiting(py, || file::replace_level(&path, &meta, &files, &known))
}

/// The descriptors of the locks that the parent of this process held when it was forked, to be closed here. To be called in each
/// child once.
#[pyfunction]
pub(crate) fn inherited_locks() -> Vec<i32> {
    tensordict_core::turn::forked();
    tensordict_core::folder::inherited_locks()
}

/// Reads the tree in the folder `path`, or the part of it at the keys `part`: a level after the one it is in.
#[pyfunction]
pub(crate) fn load_tree<'py>(
    py: Python<'py>,
    path: PathBuf,
    part: Vec<String>,
    robust_key: bool,
    mode: &str,
    map_leaves: bool,
) -> PyResult<Bound<'py, PyList>> {
    let options = ReadOptions {
        naming: naming(robust_key),
        mode: parse_mode(mode)?,
        map: map_leaves,
    };
    let tree = enter_waiting(py, || reader::read_part(&path, &part, options))?;
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
        let meta = level.meta;
        let files: Vec<_> = level
            .attached
            .iter()
            .map(|(name, content)| (name, PyBytes::new(py, content)))
            .collect();
        levels.append(Level {
            parent: level.parent,
            key: level.key,
            kind: level.kind,
            batch_size: PyTuple::new(py, meta.shape.as_deref().unwrap_or_default())?.unbind(),
            names: meta.names,
            after: 0,
            text: meta.text.map(|text| String::from_utf8_lossy(&text).into_owned()),
            files: PyList::new(py, files)?.unbind(),
            folder: level.folder,
            device: meta.device,
            class_names: (meta.kind, meta.class),
            fields: fields.unbind(),
        })?;
    }
    Ok(levels)
}

/// Name of the folder of a nested entry `key`; the file of a leaf has `.memmap` after it.
#[pyfunction]
pub(crate) fn key_file_name(key: &str, robust_key: bool) -> String {
    naming(robust_key).name(key).into_owned()
}

//! The one error type of the crate: a variant a cause, with the data that the cause has.

use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::folder::is_absent;
use crate::key::KeyPath;
use crate::schema::DType;

/// What an operation of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that was to be made is there already.
    #[error("{} already exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },

    /// Something that is no part of the data stands where a save has to put something.
    #[error(
        "cannot put {wanted} at {}: {found} is in the way, which is no part of what was saved there; move it away or remove it, or \
         save to another folder",
        path.display()
    )]
    InTheWay {
        /// The place.
        path: PathBuf,
        /// What has to be put there.
        wanted: &'static str,
        /// What stands there.
        found: String,
        /// What the system would say of it.
        errno: i32,
    },

    /// The operating system refused an operation on a file or folder.
    #[error("cannot {action} {}: {source}{}", path.display(), Limit(source))]
    Io {
        /// What was tried, as a verb: `open`, `write`, `rename`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
    /// The space of a file that is made empty could not be taken.
    #[error("cannot reserve {bytes} bytes for {}: {source}", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The size that it should have.
        bytes: u64,
        /// The system's own error.
        source: std::io::Error,
    },
    /// A folder was changed by others between two moments at which it should have been the same.
    #[error("{} was changed by others meanwhile", path.display())]
    Changed {
        /// The folder.
        path: PathBuf,
    },
    /// Memory was exchanged by another thread while it was read.
    #[error("the memory of a tensor was exchanged by another thread while it was read")]
    Moved,
    /// A folder holds another save than the one that is to be changed.
    #[error("{} holds a later save than the one that this belongs to: load it again to change it", path.display())]
    OtherSave {
        /// The folder.
        path: PathBuf,
    },
    /// An index is not inside the dimension that it is for.
    #[error("index {index} is out of bounds for dimension {dim} with size {size}")]
    IndexOutOfRange {
        /// The index, as given.
        index: i64,
        /// The dimension.
        dim: usize,
        /// The size of the dimension.
        size: usize,
    },
    /// A leaf has another number of dimensions than the rows were asked for.
    #[error("expected {wanted} dimensions, found {found}")]
    RowsDimensions {
        /// Dimensions that there should be.
        wanted: usize,
        /// Dimensions that there are.
        found: usize,
    },
    /// Items have another size than those that they go with.
    #[error("expected items of {wanted} bytes, found {found}")]
    RowsItems {
        /// Bytes that an item should have.
        wanted: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// Leaves that are joined have unlike shapes.
    #[error("expected shape {wanted:?} but for the joined dimension, found {found:?}")]
    RowsShape {
        /// Shape of the first leaf.
        wanted: Vec<usize>,
        /// Shape of the leaf that does not fit.
        found: Vec<usize>,
    },
    /// Memory is shorter than what should lie in it.
    #[error("expected {wanted} bytes, found {found}")]
    RowsShort {
        /// Bytes that the layout needs.
        wanted: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// A dimension has another number of rows than the positions were made for.
    #[error("expected {wanted} rows to select from, found {found}")]
    RowsSize {
        /// Rows that the positions were made for.
        wanted: usize,
        /// Rows that the leaf has.
        found: usize,
    },
    /// A leaf or a result is larger than memory can be.
    #[error("shape {shape:?} of items of {item} bytes does not fit in memory")]
    RowsTooLarge {
        /// Bytes of one item.
        item: usize,
        /// The shape.
        shape: Vec<usize>,
    },

    /// A file holds more bytes than what it should hold.
    #[error("{} has {found} bytes, more than the {wanted} wanted", path.display())]
    LongFile {
        /// The file.
        path: PathBuf,
        /// Bytes that it should have.
        wanted: u64,
        /// Bytes that it has.
        found: u64,
    },

    /// A folder, pipe or device stands where a file should be.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// What is no file.
        path: PathBuf,
    },

    /// A file ends before what it should hold.
    #[error("{} has {found} bytes, fewer than the {wanted} wanted", path.display())]
    ShortFile {
        /// The file.
        path: PathBuf,
        /// Bytes that it should have.
        wanted: u64,
        /// Bytes that it has.
        found: u64,
    },

    /// A file that would be written through a symbolic link, whose target is somebody else's.
    #[error("refusing to write {} through symlink", path.display())]
    Symlink {
        /// The link.
        path: PathBuf,
    },

    /// A level that would be written through a symbolic link, whose target is somebody else's folder.
    #[error("refusing to write a TensorDict through symlink {}", path.display())]
    LinkedFolder {
        /// The link.
        path: PathBuf,
    },

    /// A size beyond the address space.
    #[error("{} cannot have {bytes} bytes: this is beyond the address space", path.display())]
    TooLarge {
        /// The file that would have it.
        path: PathBuf,
        /// The size.
        bytes: u64,
    },
    /// Two entries that claim one place.
    #[error("the keys {first} and {second} collide")]
    KeyCollision {
        /// The path that was there.
        first: KeyPath,
        /// The path that came.
        second: KeyPath,
    },
    /// A partition into no parts.
    #[error("the number of parts must be at least 1, got 0")]
    NoParts,
    /// A field does not start with the batch size of its dictionary.
    #[error("{key}: the shape {shape:?} does not start with the batch size {batch_size:?}")]
    BatchSize {
        /// Keys from the root to the field.
        key: KeyPath,
        /// Shape of the field.
        shape: Vec<u64>,
        /// Batch size of the dictionary it is in.
        batch_size: Vec<u64>,
    },
    /// Other writers were faster again and again.
    #[error("{} is changed by others all the time", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// Two keys would have the same file.
    #[error("the keys {first} and {second} would both be stored as {name:?}")]
    FileCollision {
        /// One key.
        first: KeyPath,
        /// The other key.
        second: KeyPath,
        /// Path of the file in the folder.
        name: String,
    },
    /// A newer version of the format.
    #[error("{} has format version {found}, this version reads up to {supported}", path.display())]
    FormatVersion {
        /// The metadata file.
        path: PathBuf,
        /// Version in the file.
        found: u64,
        /// Newest version that can be read.
        supported: u64,
    },
    /// What is left of a change that counts says no longer what was to be done.
    #[error(
        "{} holds changes that count and that cannot be understood: {source}; save the whole data set again, or remove that \
         folder to read what is left beside it",
        path.display()
    )]
    Damaged {
        /// The folder of those changes.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A file that should be JSON is not.
    #[error("{} is no valid JSON: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// An error that belongs to one key.
    #[error("{key}: {source}")]
    Key {
        /// Keys from the root to the field.
        key: KeyPath,
        /// What went wrong there.
        source: Box<Error>,
    },
    /// Leaves that no buffer could hold together.
    #[error("the leaves together are larger than any memory")]
    LayoutOverflow,
    /// A tensor is mapped from a file elsewhere and may not be copied.
    // The first words are those that callers of the other package look for.
    #[error("A filename was provided but the tensor already has a file associated ({}); copying it to {} is to be asked for", path.display(), target.display())]
    MappedElsewhere {
        /// The file that holds the tensor.
        path: PathBuf,
        /// The file that was to hold it.
        target: PathBuf,
    },
    /// A value in a metadata file is not what it must be.
    #[error("{}: {field:?} is {found}, expected {wanted}", path.display())]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// Name of the entry.
        field: String,
        /// What is expected.
        wanted: &'static str,
        /// What is there.
        found: String,
    },
    /// Memory for as many items as were asked for is not there.
    #[error("there is no memory for {count} items of {item} bytes")]
    NoMemory {
        /// Number of items.
        count: usize,
        /// Bytes of one.
        item: usize,
    },
    /// A file that the metadata promises is not there.
    #[error("{} is missing", path.display())]
    Missing {
        /// The file or folder.
        path: PathBuf,
    },
    /// The folder holds no dictionary of tensors.
    #[error("{} holds no tensordict: it has no meta.json", path.display())]
    NoMetadata {
        /// The folder.
        path: PathBuf,
    },
    /// A part of a tree that was asked for by its keys is not there.
    #[error("{} has no nested entry {key:?}", path.display())]
    NoPart {
        /// The folder of the level that should have it.
        path: PathBuf,
        /// Its key there.
        key: String,
    },
    /// The files of a ragged tensor do not fit together.
    #[error("{} is no ragged tensor: {what}", path.display())]
    Ragged {
        /// The file of its values.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// The number of bytes of a tensor is too large for a number.
    #[error("a {} tensor of shape {shape:?} is larger than any memory", dtype.name())]
    ShapeOverflow {
        /// Shape that was given.
        shape: Vec<u64>,
        /// Type of an element.
        dtype: DType,
    },
    /// A change counts, and a part of it is not in place yet.
    #[error(
        "the new content of {} counts and is what is read, but it could not all be put in place: {source}; opening or saving \
         the folder tries again",
        path.display()
    )]
    Unfinished {
        /// The folder.
        path: PathBuf,
        /// What went wrong.
        source: Box<Error>,
    },
    /// Who was to write something has not, and says why by other means.
    #[error("{} could not be written", path.display())]
    Abandoned {
        /// What was to be written.
        path: PathBuf,
    },
    /// No torch type has the name.
    #[error("{name:?} is no data type that can be in a file: one of torch that is not quantized")]
    UnknownDType {
        /// The name that was given.
        name: String,
    },
    /// A key cannot be the name of a file or would leave the folder.
    #[error("the key {key:?} cannot be stored: {name:?} is no name for a file within the folder")]
    UnsafeName {
        /// The key.
        key: String,
        /// The file name it gives.
        name: String,
    },
}

impl Error {
    /// This error as one that happened at the path `key`.
    #[must_use]
    pub fn at_key(self, key: &KeyPath) -> Self {
        Self::Key {
            key: key.clone(),
            source: Box::new(self),
        }
    }

    /// Whether the system found no memory where it was to read: that was given back, or is of a file that was cut.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        match self {
            Self::Key { source, .. } => source.is_fault(),
            Self::Io { source, .. } => source.raw_os_error() == Some(rustix::io::Errno::FAULT.raw_os_error()),
            _ => false,
        }
    }

    /// Whether a signal ended the wait for a lock. Nothing was done by then.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Io { action: "lock", source, .. } if source.kind() == std::io::ErrorKind::Interrupted)
    }

    /// Whether the system did not let something be looked at, which says nothing of what is there.
    pub(crate) fn is_of_the_system(&self) -> bool {
        match self {
            Self::Io { source, .. } => Errno::from_io_error(source).is_none_or(|errno| !is_absent(errno)),
            Self::Key { source, .. } => source.is_of_the_system(),
            Self::NoMemory { .. } => true,
            _ => false,
        }
    }

    /// Whether there was no descriptor for one more open file. Others that are closed may make room.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_out_of_descriptors(source),
            Self::Key { source, .. } => source.is_out_of_descriptors(),
            _ => false,
        }
    }

    /// The error of a system call on `path`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source: source.into(),
        }
    }
}

fn is_out_of_descriptors(source: &std::io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
}

/// Shows which limit an error of the system is about, where it is about the number of open files.
struct Limit<'a>(&'a std::io::Error);

impl std::fmt::Display for Limit<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !is_out_of_descriptors(self.0) {
            return Ok(());
        }
        match getrlimit(Resource::Nofile).current {
            Some(limit) => write!(
                formatter,
                "; the limit of this process (RLIMIT_NOFILE) is {limit}"
            ),
            None => Ok(()),
        }
    }
}

//! The one error type of the crate: a variant a cause, with the data that the cause has.

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
        path: std::path::PathBuf,
    },

    /// The operating system refused an operation on a file or folder.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `open`, `write`, `rename`.
        action: &'static str,
        /// The file or folder.
        path: std::path::PathBuf,
        /// The system's own error.
        source: std::io::Error,
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
        path: std::path::PathBuf,
        /// Bytes that it should have.
        wanted: u64,
        /// Bytes that it has.
        found: u64,
    },

    /// A folder, pipe or device stands where a file should be.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// What is no file.
        path: std::path::PathBuf,
    },

    /// A file ends before what it should hold.
    #[error("{} has {found} bytes, fewer than the {wanted} wanted", path.display())]
    ShortFile {
        /// The file.
        path: std::path::PathBuf,
        /// Bytes that it should have.
        wanted: u64,
        /// Bytes that it has.
        found: u64,
    },

    /// A file that would be written through a symbolic link, whose target is somebody else's.
    #[error("refusing to write {} through symlink", path.display())]
    Symlink {
        /// The link.
        path: std::path::PathBuf,
    },

    /// A size beyond the address space.
    #[error("{} cannot have {bytes} bytes: this is beyond the address space", path.display())]
    TooLarge {
        /// The file that would have it.
        path: std::path::PathBuf,
        /// The size.
        bytes: u64,
    },
    /// A key, or a part of one, without a name.
    #[error("a key must have at least one name")]
    EmptyKey,
    /// A separator that cuts nowhere.
    #[error("the separator between names must not be empty")]
    EmptySeparator,
    /// Two paths that join to one name.
    #[error("the keys {first} and {second} both become {joined:?} when flattened")]
    FlattenCollision {
        /// The name.
        joined: String,
        /// The path that came first.
        first: String,
        /// The path that came second.
        second: String,
    },
    /// Two paths that claim one place, or of which one leads through the leaf of the other.
    #[error("the keys {first} and {second} collide")]
    KeyCollision {
        /// The path that was there.
        first: String,
        /// The path that came.
        second: String,
    },
    /// A path that leads nowhere.
    #[error("there is no entry at key {path}")]
    MissingKey {
        /// The path.
        path: String,
    },
    /// A partition into no parts.
    #[error("the number of parts must be at least 1, got 0")]
    NoParts,
}

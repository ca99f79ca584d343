//! The one error type of the crate: a variant a cause, with the data that the cause has.

/// What an operation of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
}

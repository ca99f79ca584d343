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
}

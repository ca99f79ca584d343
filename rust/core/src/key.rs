//! Key paths: the names that lead from the root of a tree to one of its entries.

use std::fmt;

/// The path of an entry: one name for each level from the root on; none for the root itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// A path of the given names.
    #[must_use]
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// The names from the root on.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The last name; empty for the root.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// Whether it is that of the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of the entry `name` below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let mut names = Vec::with_capacity(self.0.len() + 1);
        names.extend_from_slice(&self.0);
        names.push(name.to_owned());
        Self(names)
    }

    /// Whether `ancestor` is this path or a path above it.
    #[must_use]
    pub fn starts_with(&self, ancestor: &Self) -> bool {
        self.0.starts_with(&ancestor.0)
    }
}

impl From<&str> for KeyPath {
    fn from(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }
}

impl fmt::Display for KeyPath {
    /// One name is written as a string, several as the tuple that a user would index with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [name] => write!(f, "{name:?}"),
            names => {
                f.write_str("(")?;
                for (place, name) in names.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{name:?}")?;
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_the_key_that_reads_them() {
        assert_eq!(KeyPath::from("a").to_string(), "\"a\"");
        assert_eq!(KeyPath::new(["a", "b"]).to_string(), "(\"a\", \"b\")");
        assert_eq!(KeyPath::default().to_string(), "()");
    }

    #[test]
    fn a_child_is_below() {
        let path = KeyPath::from("a").child("b");
        assert_eq!(path, KeyPath::new(["a", "b"]));
        assert_eq!(path.name(), "b");
        assert!(path.starts_with(&KeyPath::from("a")) && path.starts_with(&KeyPath::default()));
        assert!(!path.starts_with(&KeyPath::from("b")));
    }
}

//! Key paths: the names that lead from the root of a tree to one of its entries.

use std::fmt;

use crate::{Error, Result};

/// The path of an entry: one name for each level, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// A path of the given names.
    ///
    /// # Errors
    /// [`Error::EmptyKey`] where there is no name.
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if names.is_empty() {
            return Err(Error::EmptyKey);
        }
        Ok(Self(names))
    }

    /// Reads a joined name: `a.b` is the path `("a", "b")` under the separator `.`.
    ///
    /// # Errors
    /// [`Error::EmptySeparator`] where the separator is empty, since that cuts nowhere.
    pub fn parse(joined: &str, separator: &str) -> Result<Self> {
        if separator.is_empty() {
            return Err(Error::EmptySeparator);
        }
        Ok(Self(joined.split(separator).map(str::to_owned).collect()))
    }

    /// The names, joined. The inverse of [`KeyPath::parse`] where no name holds the separator.
    #[must_use]
    pub fn join(&self, separator: &str) -> String {
        self.0.join(separator)
    }

    /// The names from the root on.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The last name, and those before it.
    #[must_use]
    pub fn split_last(&self) -> (&str, &[String]) {
        self.0
            .split_last()
            .map_or(("", &[]), |(last, rest)| (last.as_str(), rest))
    }

    /// The path of the entry `name` below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let mut names = self.0.clone();
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

/// A key as users write it: a name, or keys that are nested in any way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nested {
    /// One name.
    Name(String),
    /// Keys of levels below one another, each perhaps of several levels itself.
    Path(Vec<Nested>),
}

impl Nested {
    /// The path that the key means: all its names from left to right.
    ///
    /// # Errors
    /// [`Error::EmptyKey`] where the key, or a part of it, has no name.
    pub fn unravel(&self) -> Result<KeyPath> {
        let mut names = Vec::new();
        self.collect(&mut names)?;
        KeyPath::new(names)
    }

    fn collect(&self, names: &mut Vec<String>) -> Result<()> {
        match self {
            Self::Name(name) => names.push(name.clone()),
            Self::Path(parts) if parts.is_empty() => return Err(Error::EmptyKey),
            Self::Path(parts) => {
                for part in parts {
                    part.collect(names)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Nested {
        Nested::Name(text.to_owned())
    }

    #[test]
    fn unravel_reads_names_from_left_to_right() {
        let key = Nested::Path(vec![
            Nested::Path(vec![name("a")]),
            name("b"),
            Nested::Path(vec![name("c"), Nested::Path(vec![name("d")])]),
        ]);
        assert_eq!(
            key.unravel().unwrap(),
            KeyPath::new(["a", "b", "c", "d"]).unwrap()
        );
        assert_eq!(name("a").unravel().unwrap(), KeyPath::from("a"));
    }

    #[test]
    fn a_part_without_names_is_an_error() {
        let key = Nested::Path(vec![name("a"), Nested::Path(vec![])]);
        assert!(matches!(key.unravel(), Err(Error::EmptyKey)));
        assert!(matches!(Nested::Path(vec![]).unravel(), Err(Error::EmptyKey)));
        assert!(matches!(KeyPath::new(Vec::<String>::new()), Err(Error::EmptyKey)));
    }

    #[test]
    fn paths_print_as_the_key_that_reads_them() {
        assert_eq!(KeyPath::from("a").to_string(), "\"a\"");
        assert_eq!(KeyPath::new(["a", "b"]).unwrap().to_string(), "(\"a\", \"b\")");
    }

    #[test]
    fn parse_cuts_at_each_separator() {
        assert_eq!(
            KeyPath::parse("a__b", "__").unwrap(),
            KeyPath::new(["a", "b"]).unwrap()
        );
        assert_eq!(KeyPath::parse("a..b", ".").unwrap().names(), ["a", "", "b"]);
        assert!(matches!(KeyPath::parse("a", ""), Err(Error::EmptySeparator)));
    }
}

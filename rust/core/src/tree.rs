//! Trees of named levels and leaves.
//!
//! What is saved and what was read stand in lists: levels, each after the one it is in, and leaves. [`Placed`] says where a
//! level stands and [`path`] which keys lead there. Whoever looks entries up by their keys, or makes another tree of one, has a
//! [`Tree`]: [`reader::Tree::by_key`](crate::reader::Tree::by_key) gives it, [`file::SavePlan::of`](crate::file::SavePlan::of)
//! takes it.

use indexmap::IndexMap;

use crate::key::KeyPath;
use crate::{Error, Result};

/// A level in a list of levels, each of which comes after the one it is in.
pub trait Placed {
    /// Index of the level it is in; none for the root.
    fn parent(&self) -> Option<usize>;

    /// Key in that level.
    fn key(&self) -> &str;
}

/// The path of the level with a number.
#[must_use]
pub fn path<P: Placed>(levels: &[P], mut number: usize) -> KeyPath {
    let mut names = Vec::new();
    while let Some((parent, level)) = levels
        .get(number)
        .and_then(|level| Some((level.parent()?, level)))
    {
        names.push(level.key());
        // a level comes after the one it is in, so that this ends
        number = parent.min(number.saturating_sub(1));
    }
    names.reverse();
    KeyPath::new(names)
}

/// An entry of a level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<L, B> {
    /// A leaf.
    Leaf(L),
    /// A level below.
    Level(Tree<L, B>),
}

/// A level: what is known of it, and its entries by name in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree<L, B> {
    about: B,
    entries: IndexMap<String, Node<L, B>>,
}

impl<L, B> Tree<L, B> {
    /// A level without entries.
    #[must_use]
    pub fn new(about: B) -> Self {
        Self {
            about,
            entries: IndexMap::new(),
        }
    }

    /// What is known of the level.
    #[must_use]
    pub const fn about(&self) -> &B {
        &self.about
    }

    /// The entries, in their order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Node<L, B>)> {
        self.entries.iter().map(|(name, node)| (name.as_str(), node))
    }

    /// The entry at a path; none for the root, which is no entry.
    #[must_use]
    pub fn get(&self, path: &KeyPath) -> Option<&Node<L, B>> {
        let (last, above) = path.names().split_last()?;
        let mut level = self;
        for name in above {
            match level.entries.get(name)? {
                Node::Level(tree) => level = tree,
                Node::Leaf(_) => return None,
            }
        }
        level.entries.get(last)
    }

    /// Adds an entry behind the others.
    ///
    /// # Errors
    /// [`Error::KeyCollision`] where there is one of that name.
    pub fn push(&mut self, name: impl Into<String>, node: Node<L, B>) -> Result<()> {
        let name = name.into();
        if self.entries.contains_key(&name) {
            return Err(Error::KeyCollision {
                first: KeyPath::from(name.as_str()),
                second: KeyPath::from(name.as_str()),
            });
        }
        self.entries.insert(name, node);
        Ok(())
    }

    /// All leaves with their paths: the entries of each level in their order.
    #[must_use]
    pub fn leaves(&self) -> Vec<(KeyPath, &L)> {
        let mut found = Vec::new();
        self.visit(&KeyPath::default(), &mut |path, leaf| found.push((path, leaf)));
        found
    }

    fn visit<'a>(&'a self, above: &KeyPath, see: &mut impl FnMut(KeyPath, &'a L)) {
        for (name, node) in &self.entries {
            let path = above.child(name);
            match node {
                Node::Leaf(leaf) => see(path, leaf),
                Node::Level(tree) => tree.visit(&path, see),
            }
        }
    }

    /// A tree of the same keys, of what is made of each level and of each leaf.
    ///
    /// # Errors
    /// That of `leaf`, at the path of the leaf.
    pub fn map<'a, M, C>(
        &'a self,
        level: &mut impl FnMut(&'a B) -> C,
        leaf: &mut impl FnMut(&KeyPath, &'a L) -> Result<M>,
    ) -> Result<Tree<M, C>> {
        self.map_below(&KeyPath::default(), level, leaf)
    }

    fn map_below<'a, M, C>(
        &'a self,
        above: &KeyPath,
        level: &mut impl FnMut(&'a B) -> C,
        leaf: &mut impl FnMut(&KeyPath, &'a L) -> Result<M>,
    ) -> Result<Tree<M, C>> {
        let mut made = Tree::new(level(&self.about));
        for (name, node) in &self.entries {
            let path = above.child(name);
            let node = match node {
                Node::Leaf(value) => Node::Leaf(leaf(&path, value).map_err(|error| error.at_key(&path))?),
                Node::Level(tree) => Node::Level(tree.map_below(&path, level, leaf)?),
            };
            made.entries.insert(name.clone(), node);
        }
        Ok(made)
    }
}

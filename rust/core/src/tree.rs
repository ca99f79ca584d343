//! Key trees: named leaves in nested levels, and what can be done to their structure without looking at a leaf.
//!
//! Levels keep the order in which their entries came. Each operation gives a new tree and leaves the old one as it was,
//! so one that fails has changed nothing.

use indexmap::IndexMap;

use crate::key::KeyPath;
use crate::{Error, Result};

/// An entry of a level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<L> {
    /// A payload.
    Leaf(L),
    /// A level below.
    Branch(Tree<L>),
}

/// A level: entries by name, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree<L> {
    entries: IndexMap<String, Node<L>>,
}

impl<L> Default for Tree<L> {
    fn default() -> Self {
        Self {
            entries: IndexMap::new(),
        }
    }
}

/// How two trees differ at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The place.
    pub path: KeyPath,
    /// What is different there.
    pub reason: Reason,
}

/// Why two trees are not equal at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Only the first tree has the entry.
    OnlyFirst,
    /// Only the second tree has the entry.
    OnlySecond,
    /// A leaf in the first tree, a level in the second.
    LeafAgainstBranch,
    /// A level in the first tree, a leaf in the second.
    BranchAgainstLeaf,
    /// Two leaves that are not equal, with what the comparison said.
    Leaves(String),
}

impl<L> Tree<L> {
    /// A tree without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A tree of leaves at paths.
    ///
    /// # Errors
    /// [`Error::KeyCollision`] where a path is given twice or leads through a leaf.
    pub fn from_leaves(leaves: impl IntoIterator<Item = (KeyPath, L)>) -> Result<Self> {
        let mut tree = Self::new();
        for (path, leaf) in leaves {
            tree.insert(&path, Node::Leaf(leaf))?;
        }
        Ok(tree)
    }

    /// The entries of this level.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Node<L>)> {
        self.entries.iter().map(|(name, node)| (name.as_str(), node))
    }

    /// Whether this level has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry at a path.
    #[must_use]
    pub fn get(&self, path: &KeyPath) -> Option<&Node<L>> {
        let (last, above) = path.split_last();
        let mut level = self;
        for name in above {
            match level.entries.get(name)? {
                Node::Branch(tree) => level = tree,
                Node::Leaf(_) => return None,
            }
        }
        level.entries.get(last)
    }

    /// Puts an entry at a path where nothing is yet, and makes the levels above it.
    ///
    /// # Errors
    /// [`Error::KeyCollision`] where something is there, or a leaf is on the way.
    pub fn insert(&mut self, path: &KeyPath, node: Node<L>) -> Result<()> {
        let (last, above) = path.split_last();
        let collision = |depth: usize| Error::KeyCollision {
            first: KeyPath::new(path.names()[..depth].iter().cloned())
                .unwrap_or_else(|_| path.clone())
                .to_string(),
            second: path.to_string(),
        };
        let mut level = self;
        for (depth, name) in above.iter().enumerate() {
            let below = level
                .entries
                .entry(name.clone())
                .or_insert_with(|| Node::Branch(Tree::new()));
            match below {
                Node::Branch(tree) => level = tree,
                Node::Leaf(_) => return Err(collision(depth + 1)),
            }
        }
        if level.entries.contains_key(last) {
            return Err(collision(path.names().len()));
        }
        level.entries.insert(last.to_owned(), node);
        Ok(())
    }

    /// All leaves with their paths, level by level as they stand, each level before what follows it.
    #[must_use]
    pub fn leaves(&self) -> Vec<(KeyPath, &L)> {
        let mut found = Vec::new();
        self.visit(None, &mut |path, node| {
            if let Node::Leaf(leaf) = node {
                found.push((path.clone(), leaf));
            }
        });
        found
    }

    /// Calls `see` with each entry, a level before its own entries.
    fn visit<'a>(&'a self, above: Option<&KeyPath>, see: &mut impl FnMut(&KeyPath, &'a Node<L>)) {
        for (name, node) in &self.entries {
            let path = above.map_or_else(|| KeyPath::from(name.as_str()), |above| above.child(name));
            see(&path, node);
            if let Node::Branch(tree) = node {
                tree.visit(Some(&path), see);
            }
        }
    }

    /// All leaves in one level, under their joined names. Levels without a leaf are gone.
    ///
    /// # Errors
    /// [`Error::FlattenCollision`] where two paths give one name, as `("a", "b")` and `"a.b"` do.
    pub fn flatten(self, separator: &str) -> Result<Self> {
        let mut flat = Self::new();
        let mut sources: IndexMap<String, KeyPath> = IndexMap::new();
        for (path, leaf) in self.into_leaves() {
            let joined = path.join(separator);
            if let Some(first) = sources.get(&joined) {
                return Err(Error::FlattenCollision {
                    joined,
                    first: first.to_string(),
                    second: path.to_string(),
                });
            }
            flat.entries.insert(joined.clone(), Node::Leaf(leaf));
            sources.insert(joined, path);
        }
        Ok(flat)
    }

    /// Cuts the names of this level at the separator and puts each entry below what the parts name.
    ///
    /// # Errors
    /// [`Error::KeyCollision`] where two names lead to one place, or one leads through the leaf of another.
    pub fn unflatten(self, separator: &str) -> Result<Self> {
        let mut tree = Self::new();
        for (name, node) in self.entries {
            tree.insert(&KeyPath::parse(&name, separator)?, node)?;
        }
        Ok(tree)
    }

    fn into_leaves(self) -> Vec<(KeyPath, L)> {
        fn fill<L>(tree: Tree<L>, above: Option<&KeyPath>, leaves: &mut Vec<(KeyPath, L)>) {
            for (name, node) in tree.entries {
                let path = above.map_or_else(|| KeyPath::from(name.as_str()), |above| above.child(&name));
                match node {
                    Node::Leaf(leaf) => leaves.push((path, leaf)),
                    Node::Branch(below) => fill(below, Some(&path), leaves),
                }
            }
        }
        let mut leaves = Vec::new();
        fill(self, None, &mut leaves);
        leaves
    }

    /// What differs between two trees, in the order of the first, then what only the second has. `compare` says why two
    /// leaves are not equal.
    pub fn diff(&self, other: &Self, compare: &impl Fn(&L, &L) -> Option<String>) -> Vec<Difference> {
        let mut found = Vec::new();
        self.diff_below(other, None, compare, &mut found);
        found
    }

    fn diff_below(
        &self,
        other: &Self,
        above: Option<&KeyPath>,
        compare: &impl Fn(&L, &L) -> Option<String>,
        found: &mut Vec<Difference>,
    ) {
        let place = |name: &str| above.map_or_else(|| KeyPath::from(name), |above| above.child(name));
        for (name, first) in &self.entries {
            let path = place(name);
            let reason = match (first, other.entries.get(name)) {
                (_, None) => Some(Reason::OnlyFirst),
                (Node::Leaf(first), Some(Node::Leaf(second))) => compare(first, second).map(Reason::Leaves),
                (Node::Leaf(_), Some(Node::Branch(_))) => Some(Reason::LeafAgainstBranch),
                (Node::Branch(_), Some(Node::Leaf(_))) => Some(Reason::BranchAgainstLeaf),
                (Node::Branch(first), Some(Node::Branch(second))) => {
                    first.diff_below(second, Some(&path), compare, found);
                    None
                }
            };
            found.extend(reason.map(|reason| Difference { path, reason }));
        }
        for name in other
            .entries
            .keys()
            .filter(|name| !self.entries.contains_key(*name))
        {
            found.push(Difference {
                path: place(name),
                reason: Reason::OnlySecond,
            });
        }
    }
}

impl<L: Clone> Tree<L> {
    /// The tree of the entries at the given paths, in that order. A path below another one that is given adds nothing.
    ///
    /// # Errors
    /// [`Error::MissingKey`] where a path leads nowhere and `strict` is set; otherwise such a path is left out.
    pub fn select(&self, paths: &[KeyPath], strict: bool) -> Result<Self> {
        let mut selected = Self::new();
        for path in paths {
            match self.get(path) {
                Some(node) => selected.put(path.names(), node),
                None if strict => {
                    return Err(Error::MissingKey {
                        path: path.to_string(),
                    });
                }
                None => {}
            }
        }
        Ok(selected)
    }

    /// Puts an entry, or what of it is not there yet, at names that lead through levels only.
    fn put(&mut self, names: &[String], node: &Node<L>) {
        let [name, below @ ..] = names else { return };
        if below.is_empty() {
            self.entries.insert(name.clone(), node.clone());
        } else if let Node::Branch(tree) = self
            .entries
            .entry(name.clone())
            .or_insert_with(|| Node::Branch(Self::new()))
        {
            tree.put(below, node);
        }
    }

    /// The tree without the entries at the given paths. Paths that lead nowhere are fine; a level that loses its last
    /// entry stays.
    #[must_use]
    pub fn exclude(&self, paths: &[KeyPath]) -> Self {
        let mut rest = self.clone();
        for path in paths {
            rest.take(path.names());
        }
        rest
    }

    /// Takes the entry at names out of the tree.
    fn take(&mut self, names: &[String]) -> Option<Node<L>> {
        match names {
            [] => None,
            [name] => self.entries.shift_remove(name),
            [name, below @ ..] => match self.entries.get_mut(name)? {
                Node::Branch(tree) => tree.take(below),
                Node::Leaf(_) => None,
            },
        }
    }

    /// One tree for each set of paths, and the tree of what is in none of them.
    ///
    /// # Errors
    /// [`Error::MissingKey`] as for [`Tree::select`]; [`Error::KeyCollision`] where two sets claim one entry.
    pub fn split(&self, sets: &[Vec<KeyPath>], strict: bool) -> Result<(Vec<Self>, Self)> {
        let mut claimed: Vec<(usize, &KeyPath)> = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            for path in set {
                let taken = claimed.iter().find(|(other, first)| {
                    *other != number && (path.starts_with(first) || first.starts_with(path))
                });
                if let Some((_, first)) = taken {
                    return Err(Error::KeyCollision {
                        first: first.to_string(),
                        second: path.to_string(),
                    });
                }
                claimed.push((number, path));
            }
        }
        let parts = sets
            .iter()
            .map(|set| self.select(set, strict))
            .collect::<Result<_>>()?;
        let all: Vec<KeyPath> = sets.iter().flatten().cloned().collect();
        Ok((parts, self.exclude(&all)))
    }

    /// The tree with entries moved to other paths, all at once: two names may be exchanged. Moved entries come last.
    ///
    /// # Errors
    /// [`Error::MissingKey`] where an old path leads nowhere, [`Error::KeyCollision`] where a new one is occupied.
    pub fn rename(&self, moves: &[(KeyPath, KeyPath)]) -> Result<Self> {
        let mut renamed = self.clone();
        let mut taken = Vec::with_capacity(moves.len());
        for (old, new) in moves {
            let node = renamed.take(old.names()).ok_or_else(|| Error::MissingKey {
                path: old.to_string(),
            })?;
            taken.push((new, node));
        }
        for (new, node) in taken {
            renamed.insert(new, node)?;
        }
        Ok(renamed)
    }

    /// The entries of both trees, levels of one name merged.
    ///
    /// # Errors
    /// [`Error::KeyCollision`] with both paths where a leaf of one tree is at, above or below a leaf of the other.
    pub fn merge(&self, other: &Self) -> Result<Self> {
        let mut merged = self.clone();
        merged.absorb(other, None)?;
        Ok(merged)
    }

    fn absorb(&mut self, other: &Self, above: Option<&KeyPath>) -> Result<()> {
        for (name, node) in &other.entries {
            let path = above.map_or_else(|| KeyPath::from(name.as_str()), |above| above.child(name));
            match (self.entries.get_mut(name), node) {
                (None, _) => {
                    self.entries.insert(name.clone(), node.clone());
                }
                (Some(Node::Branch(mine)), Node::Branch(theirs)) => mine.absorb(theirs, Some(&path))?,
                (Some(mine), _) => {
                    return Err(Error::KeyCollision {
                        first: mine.first_leaf(&path).to_string(),
                        second: node.first_leaf(&path).to_string(),
                    });
                }
            }
        }
        Ok(())
    }
}

impl<L> Node<L> {
    /// The path of the first leaf at or below this entry, which is at `path`; `path` itself where there is none.
    fn first_leaf(&self, path: &KeyPath) -> KeyPath {
        let mut path = path.clone();
        let mut node = self;
        while let Self::Branch(tree) = node {
            let Some((name, below)) = tree.entries.first() else {
                break;
            };
            path = path.child(name);
            node = below;
        }
        path
    }
}

//! Reading a dictionary of tensors from its folder: every name, shape and file is checked before it is mapped.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::io::Errno;

use crate::folder::is_absent;
use crate::journal::{View, read_all};
use crate::key::KeyPath;
use crate::memmap::{self, Map, Mode, Part};
use crate::metadata::{ATTACHED, Entry, INNER, LEAF_SUFFIX, META, Metadata, Naming, is_inside};
use crate::ragged::RaggedSchema;
use crate::schedule;
use crate::schema::LeafSchema;
use crate::tree::{self, Node, Placed};
use crate::whole::{self, Place};
use crate::{Error, Result};

/// How to read.
#[derive(Debug, Clone, Copy)]
pub struct ReadOptions {
    /// How keys were made names of files. The other way is tried where that finds nothing.
    pub naming: Naming,
    /// What a write to the mapped tensors does. Read-write maps become private where a file must not be written.
    pub mode: Mode,
    /// Whether to map the tensors; they are only checked otherwise.
    pub map: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            naming: Naming::Robust,
            mode: Mode::ReadWrite,
            map: true,
        }
    }
}

/// One level that was read.
#[derive(Debug)]
pub struct Level {
    /// Index of the level it is in, which comes before it; none for the root.
    pub parent: Option<usize>,
    /// Key in that level; empty for the root.
    pub key: String,
    /// Name of its type in the entry that the parent has for it; empty for the root.
    pub kind: String,
    /// Its folder relative to the one that was read.
    pub folder: String,
    /// What its file says. The entries of a level that is no plain dictionary are its members, by the names of their folders.
    pub meta: Metadata,
    /// Files beside it, where it is no plain dictionary: name and content.
    pub attached: Vec<(String, Vec<u8>)>,
    /// Where its fields are, in the order of the entries of `meta`.
    pub fields: Vec<Found>,
    /// Device and inode of the folder.
    place: (u64, u64),
}

/// Where a field of a level is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The leaf of that index.
    Leaf(usize),
    /// The ragged leaf of that index.
    Ragged(usize),
    /// The level of that index.
    Level(usize),
}

impl Placed for Level {
    fn parent(&self) -> Option<usize> {
        self.parent
    }

    fn key(&self) -> &str {
        &self.key
    }
}

/// One leaf that was read.
#[derive(Debug)]
pub struct Leaf {
    /// Index of the level it is in.
    pub level: usize,
    /// Key in that level.
    pub key: String,
    /// Type and shape.
    pub schema: LeafSchema,
    /// Its file relative to the folder that was read.
    pub file: String,
    /// Its memory; none if it was not asked for or has no elements.
    pub map: Option<Map>,
}

/// One ragged leaf that was read.
#[derive(Debug)]
pub struct Ragged {
    /// What its level says of it.
    pub schema: RaggedSchema,
    /// Its values, then what says where the components lie in them, each under the key of its file.
    pub files: Vec<Leaf>,
}

/// A leaf of a tree by key.
#[derive(Debug)]
pub enum Field {
    /// A tensor.
    Dense(Leaf),
    /// A ragged tensor.
    Ragged(Ragged),
}

/// A tree that was read.
#[derive(Debug, Default)]
pub struct Tree {
    /// Levels, each after the one it is in.
    pub levels: Vec<Level>,
    /// Leaves, level by level.
    pub leaves: Vec<Leaf>,
    /// Ragged leaves, level by level.
    pub ragged: Vec<Ragged>,
}

impl Tree {
    /// The tree with its entries by their keys, each level as it was read. Levels that are no plain dictionaries have their
    /// members as entries.
    ///
    /// # Errors
    /// A level has two entries of one name, or there is no level: no folder gives that.
    pub fn by_key(self) -> Result<tree::Tree<Field, Level>> {
        let mut leaves: Vec<_> = self.leaves.into_iter().map(Some).collect();
        let mut ragged: Vec<_> = self.ragged.into_iter().map(Some).collect();
        let mut below: Vec<Option<tree::Tree<Field, Level>>> = Vec::new();
        below.resize_with(self.levels.len(), || None);
        // Levels stand after those they are in: from the last one on, what is below one has been made.
        for (number, mut level) in self.levels.into_iter().enumerate().rev() {
            let entries = std::mem::take(&mut level.meta.entries);
            let fields = level.fields.clone();
            let mut made = tree::Tree::new(level);
            for ((key, _), found) in entries.into_iter().zip(fields) {
                let node = match found {
                    Found::Leaf(index) => leaves[index].take().map(Field::Dense).map(Node::Leaf),
                    Found::Ragged(index) => ragged[index].take().map(Field::Ragged).map(Node::Leaf),
                    Found::Level(index) => below[index].take().map(Node::Level),
                };
                if let Some(node) = node {
                    made.push(key, node)?;
                }
            }
            below[number] = Some(made);
        }
        let root = below.into_iter().next().flatten();
        root.ok_or_else(|| Error::NoMetadata { path: "".into() })
    }

    /// The path of the field `key` of a level.
    fn path(&self, level: usize, key: &str) -> KeyPath {
        tree::path(&self.levels, level).child(key)
    }
}

/// Reads the tree in the folder `path`, or the part of it in its sub-folder `part` (empty for all of it), whose files alone
/// are then touched. All of it is as one save left it.
///
/// # Errors
/// As [`read_part`].
pub fn read(path: &Path, part: &str, options: ReadOptions) -> Result<Tree> {
    read_at(path, options, |_, place| Ok(place.part(part)))
}

/// Reads the tree in the folder `path`, or the part of it at `keys`, whose files alone are then touched. All of it is as one
/// save left it.
///
/// Each key is found in both spellings, and through levels that are around another one, which have no keys.
///
/// Levels that are no plain dictionaries come with their metadata as it is, what is attached to them, and their members.
///
/// # Errors
/// The folder holds no tree, metadata is not valid, or a file is missing, too short, too long or no file.
pub fn read_part(path: &Path, keys: &[String], options: ReadOptions) -> Result<Tree> {
    read_at(path, options, |reader, place| {
        keys.iter()
            .try_fold(place.part(""), |folder, key| reader.below(folder, key))
    })
}

/// Reads the tree in the sub-folder that `part` finds.
fn read_at(
    path: &Path,
    options: ReadOptions,
    part: impl Fn(&Reader<'_>, &Place) -> Result<String>,
) -> Result<Tree> {
    let place = Place::to_read(path)?;
    let mut tree = whole::read(&place.root, |view| {
        let reader = Reader { view, options };
        let part = part(&reader, &place)?;
        schedule::install(|| reader.read(&part))
    })?;
    for level in &mut tree.levels {
        level.folder = place.relative(&level.folder).to_owned();
    }
    let ragged = tree.ragged.iter_mut().flat_map(|ragged| &mut ragged.files);
    for leaf in tree.leaves.iter_mut().chain(ragged) {
        leaf.file = place.relative(&leaf.file).to_owned();
    }
    Ok(tree)
}

/// What the folder of one level says.
struct Described {
    folder: String,
    meta: Metadata,
    attached: Vec<(String, Vec<u8>)>,
    place: (u64, u64),
}

impl Described {
    fn level(self, parent: Option<usize>, key: String, kind: String) -> Level {
        Level {
            parent,
            key,
            kind,
            folder: self.folder,
            meta: self.meta,
            attached: self.attached,
            fields: Vec::new(),
            place: self.place,
        }
    }
}

/// The file of a leaf, relative to the folder, and its memory.
type Mapped = (String, Option<Map>);

/// The file of a leaf, opened and checked.
struct LeafFile {
    file: File,
    mode: Mode,
    part: Part,
}

struct Reader<'a> {
    view: &'a View<'a>,
    options: ReadOptions,
}

impl Reader<'_> {
    fn read(&self, part: &str) -> Result<Tree> {
        let mut tree = Tree::default();
        self.read_levels(part, &mut tree)?;
        let tolerant: Vec<bool> = tree
            .levels
            .iter()
            .map(|level| level.meta.version.is_none())
            .collect();
        let chunks = schedule::runs(0..tree.leaves.len()).collect::<Vec<_>>();
        let maps = schedule::map_runs(&chunks, |run| self.map_some(&tree, &tree.leaves[run], &tolerant))?;
        for (leaf, (file, map)) in tree.leaves.iter_mut().zip(maps) {
            leaf.file = file;
            leaf.map = map;
        }
        memmap::tie(tree.leaves.iter_mut().filter_map(|leaf| leaf.map.as_mut()));
        let mut ragged = std::mem::take(&mut tree.ragged);
        for leaf in &mut ragged {
            let level = leaf.files[0].level;
            let folder = &tree.levels[level].folder;
            self.map_ragged(folder, leaf, tolerant[level])
                .map_err(|error| self.unfit(error, folder, &tree.path(level, &leaf.files[0].key)))?;
        }
        tree.ragged = ragged;
        Ok(tree)
    }

    /// Maps the files of a ragged leaf: those that say how many values there are before the values.
    fn map_ragged(&self, folder: &str, leaf: &mut Ragged, tolerant: bool) -> Result<()> {
        let [values, parts @ ..] = &mut *leaf.files else {
            return Ok(());
        };
        let mut contents = Vec::with_capacity(parts.len());
        for part in &mut *parts {
            (part.file, part.map) = self.find_and_map(folder, part, tolerant)?;
            contents.push(self.content(part)?);
        }
        let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let name = self.options.naming.name(&values.key);
        let path = self.view.folder.full(folder).join(format!("{name}{LEAF_SUFFIX}"));
        values.schema = leaf.schema.values(&contents, &path)?;
        (values.file, values.map) = self.find_and_map(folder, values, tolerant)?;
        Ok(())
    }

    /// Reads the levels, those of one depth together.
    fn read_levels(&self, part: &str, tree: &mut Tree) -> Result<()> {
        let root = self.level(part, None)?;
        tree.levels.push(root.level(None, String::new(), String::new()));
        let mut depth = 0..1;
        while !depth.is_empty() {
            let mut below = Vec::new();
            for number in depth.clone() {
                self.fields(number, tree, &mut below)?;
            }
            let read = schedule::map_opening(&below, 16, |(parent, key, _)| self.nested(tree, *parent, key))?;
            depth = tree.levels.len()..tree.levels.len() + below.len();
            for ((parent, key, kind), found) in below.into_iter().zip(read) {
                tree.levels.push(found.level(Some(parent), key, kind));
            }
        }
        Ok(())
    }

    /// Finds the fields of a level: leaves go to the tree, levels to `below`.
    fn fields(&self, number: usize, tree: &mut Tree, below: &mut Vec<(usize, String, String)>) -> Result<()> {
        if !tree.levels[number].meta.is_plain() {
            let level = &mut tree.levels[number];
            level.meta.entries = members(self.view, &level.folder, &level.meta)?;
        }
        let level = &tree.levels[number];
        let batch_size = level.meta.shape.clone().unwrap_or_default();
        let mut fields = Vec::with_capacity(level.meta.entries.len());
        let mut leaves = Vec::with_capacity(level.meta.entries.len());
        let mut ragged = Vec::new();
        for (key, entry) in &level.meta.entries {
            fields.push(match entry {
                Entry::Leaf(schema) => {
                    check_shape(&schema.shape, &batch_size)
                        .map_err(|error| self.unfit(error, &level.folder, &tree.path(number, key)))?;
                    leaves.push(Leaf {
                        level: number,
                        key: key.clone(),
                        schema: schema.clone(),
                        file: String::new(),
                        map: None,
                    });
                    Found::Leaf(tree.leaves.len() + leaves.len() - 1)
                }
                Entry::Level(kind) => {
                    below.push((number, key.clone(), kind.clone()));
                    Found::Level(tree.levels.len() + below.len() - 1)
                }
                Entry::Ragged(schema) => {
                    check_leading(&schema.leading(), &batch_size)
                        .map_err(|error| self.unfit(error, &level.folder, &tree.path(number, key)))?;
                    let values = LeafSchema {
                        dtype: schema.dtype,
                        shape: Vec::new(),
                    };
                    let leaf = |(suffix, schema): (&str, LeafSchema)| Leaf {
                        level: number,
                        key: format!("{key}{suffix}"),
                        schema,
                        file: String::new(),
                        map: None,
                    };
                    ragged.push(Ragged {
                        schema: schema.clone(),
                        files: std::iter::once(("", values))
                            .chain(schema.parts())
                            .map(leaf)
                            .collect(),
                    });
                    Found::Ragged(tree.ragged.len() + ragged.len() - 1)
                }
            });
        }
        tree.leaves.extend(leaves);
        tree.ragged.extend(ragged);
        tree.levels[number].fields = fields;
        Ok(())
    }

    /// The folder of the level `key` in `folder`, or in what that is around.
    fn below(&self, mut folder: String, key: &str) -> Result<String> {
        loop {
            match self.spelled(&folder, key, "", |place| whole::metadata(self.view, place)) {
                Ok((place, _)) => return Ok(place),
                Err(Error::NoMetadata { .. } | Error::UnsafeName { .. }) => {}
                Err(error) => return Err(error.at_key(&key.into())),
            }
            let mut inner = None;
            for place in INNER.iter().map(|name| join(&folder, name)) {
                if self.view.has(&join(&place, META))? {
                    inner = Some(place);
                    break;
                }
            }
            match inner {
                Some(inner) if !whole::metadata(self.view, &folder)?.is_plain() => folder = inner,
                _ => {
                    return Err(Error::NoPart {
                        path: self.view.folder.full(&folder),
                        key: key.to_owned(),
                    });
                }
            }
        }
    }

    /// Reads the level `key` of another.
    fn nested(&self, tree: &Tree, parent: usize, key: &str) -> Result<Described> {
        let folder = &tree.levels[parent].folder;
        let (_, found) = self
            .spelled(folder, key, "", |relative| {
                self.level(relative, Some((tree, parent)))
            })
            .map_err(|error| self.unfit(error, folder, &tree.path(parent, key)))?;
        if let (Some(shape), Some(batch_size)) = (&found.meta.shape, &tree.levels[parent].meta.shape)
            && found.meta.is_plain()
        {
            // A node may have fewer batch dimensions than the one it is in.
            let shared = shape.len().min(batch_size.len());
            check_shape(shape, &batch_size[..shared])
                .map_err(|error| self.unfit(error, &found.folder, &tree.path(parent, key)))?;
        }
        Ok(found)
    }

    /// The error of an entry that the metadata in `folder` describes: what is wrong with the description is told as that of a
    /// file.
    fn unfit(&self, error: Error, folder: &str, path: &KeyPath) -> Error {
        let lies = |wanted, found| Error::Metadata {
            path: self.view.folder.full(&join(folder, META)),
            field: path.name().to_owned(),
            wanted,
            found,
        };
        let error = match error {
            Error::BatchSize {
                shape, batch_size, ..
            } => lies(
                "a shape that starts with the batch size",
                format!("of shape {shape:?} in the batch size {batch_size:?}"),
            ),
            Error::ShapeOverflow { shape, .. } => lies(
                "a tensor that memory can hold",
                format!("a tensor of shape {shape:?}"),
            ),
            Error::UnsafeName { name, .. } => lies(
                "a key that is a name for a file within the folder",
                format!("{name:?}"),
            ),
            Error::NoMetadata { path } => Error::Missing {
                path: path.join(META),
            },
            error => error,
        };
        error.at_key(path)
    }

    /// Metadata of the level in a sub-folder, and what tells the folder from others.
    fn level(&self, relative: &str, above: Option<(&Tree, usize)>) -> Result<Described> {
        // First of all it is known what a link may lead to, whatever is found there. A folder that is to be made by committed
        // changes has no inode yet.
        let facts = self.view.folder.there(relative, self.view.stat(relative))?;
        let place = facts.map_or((0, 0), |facts| (facts.st_dev, facts.st_ino));
        let meta = whole::metadata(self.view, relative)?;
        let attached = if meta.is_plain() {
            Vec::new()
        } else {
            attached(self.view, relative)?
        };
        let found = Described {
            folder: relative.to_owned(),
            meta,
            attached,
            place,
        };
        let Some((tree, mut number)) = above else {
            return Ok(found);
        };
        loop {
            let level = &tree.levels[number];
            if level.place == place && place != (0, 0) {
                return Err(Error::io("read", self.view.folder.full(relative), Errno::LOOP));
            }
            match level.parent {
                Some(parent) => number = parent,
                None => return Ok(found),
            }
        }
    }

    /// Calls `work` with the place of `key` in `folder`, and, where nothing is there, with the other spelling of it.
    fn spelled<R>(
        &self,
        folder: &str,
        key: &str,
        suffix: &str,
        work: impl Fn(&str) -> Result<R>,
    ) -> Result<(String, R)> {
        let place = |naming: Naming| {
            let name = naming.name(key);
            let name = format!("{name}{suffix}");
            if !is_inside(&name) {
                return Err(Error::UnsafeName {
                    key: key.to_owned(),
                    name,
                });
            }
            Ok(join(folder, &name))
        };
        let first = place(self.options.naming)?;
        let missing = match work(&first) {
            Ok(done) => return Ok((first, done)),
            Err(error @ (Error::Missing { .. } | Error::NoMetadata { .. })) => error,
            Err(error) => return Err(error),
        };
        match place(self.options.naming.other()) {
            Ok(second) if second != first => match work(&second) {
                Ok(done) => Ok((second, done)),
                Err(Error::Missing { .. } | Error::NoMetadata { .. }) => Err(missing),
                Err(error) => Err(error),
            },
            _ => Err(missing),
        }
    }

    /// Maps the files of some leaves, from the first on as many as descriptors are free: all are opened, then all are mapped,
    /// by one thread at a time. The system lets one thread of a process change its memory map, and others that want to would
    /// wait where they could open files.
    fn map_some(&self, tree: &Tree, leaves: &[Leaf], tolerant: &[bool]) -> Result<Vec<Mapped>> {
        let at_key = |error: Error, leaf: &Leaf| {
            let folder = &tree.levels[leaf.level].folder;
            self.unfit(error, folder, &tree.path(leaf.level, &leaf.key))
        };
        let found = schedule::as_many_as_open(leaves, |leaf| {
            self.find(&tree.levels[leaf.level].folder, leaf, tolerant[leaf.level])
                .map_err(|error| at_key(error, leaf))
        })?;
        let turn = memmap::turn();
        let mut opened = Vec::with_capacity(found.len());
        let maps: Result<Vec<_>> = leaves
            .iter()
            .zip(found)
            .map(|(leaf, (name, file))| {
                let map = file
                    .map(|file| {
                        let map = self.map(&name, &file);
                        opened.push(file);
                        map
                    })
                    .transpose()
                    .map_err(|error| at_key(error, leaf))?;
                Ok((name, map))
            })
            .collect();
        drop(turn);
        maps
    }

    /// Finds the file of a leaf and checks it. A leaf without elements needs none.
    fn find(&self, folder: &str, leaf: &Leaf, tolerant: bool) -> Result<(String, Option<LeafFile>)> {
        let bytes = leaf.schema.bytes()?;
        if bytes == 0 {
            return Ok((String::new(), None));
        }
        self.spelled(folder, &leaf.key, LEAF_SUFFIX, |relative| {
            let path = self.view.folder.full(relative);
            let (file, mode) = self.open_leaf(relative).map_err(|errno| match errno {
                errno if is_absent(errno) => Error::Missing { path: path.clone() },
                errno => Error::io("open", &path, errno),
            })?;
            // What older versions wrote may be longer.
            let part = if tolerant {
                Part::at_offset(&file, &path, 0, bytes)?
            } else {
                Part::whole(&file, &path, bytes)?
            };
            Ok(self.options.map.then_some(LeafFile { file, mode, part }))
        })
    }

    fn map(&self, relative: &str, found: &LeafFile) -> Result<Map> {
        found
            .part
            .map(&found.file, || self.view.folder.full(relative), found.mode)
    }

    fn find_and_map(&self, folder: &str, leaf: &Leaf, tolerant: bool) -> Result<Mapped> {
        let (relative, found) = self.find(folder, leaf, tolerant)?;
        let map = found.map(|file| self.map(&relative, &file)).transpose()?;
        Ok((relative, map))
    }

    /// The bytes of a leaf whose file was checked.
    fn content(&self, leaf: &Leaf) -> Result<Vec<u8>> {
        let wanted = leaf.schema.bytes()?;
        let mut bytes = Vec::new();
        if wanted > 0 {
            let path = self.view.folder.full(&leaf.file);
            memmap::check_memory(wanted, &path)?;
            let file = self
                .view
                .open_file(&leaf.file, false)
                .map_err(|errno| Error::io("open", &path, errno))?;
            file.take(wanted)
                .read_to_end(&mut bytes)
                .map_err(|source| Error::io("read", &path, source))?;
        }
        Ok(bytes)
    }

    fn open_leaf(&self, relative: &str) -> Result<(File, Mode), Errno> {
        let mode = self.options.mode;
        match self.view.open_file(relative, mode == Mode::ReadWrite) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if mode == Mode::ReadWrite => self
                .view
                .open_file(relative, false)
                .map(|file| (file, Mode::Private)),
            file => file.map(|file| (file, mode)),
        }
    }
}

/// The members of a level that is no plain dictionary: those that it lists, else those that are there.
pub(crate) fn members(view: &View<'_>, folder: &str, meta: &Metadata) -> Result<Vec<(String, Entry)>> {
    if !meta.entries.is_empty() {
        return Ok(meta.entries.clone());
    }
    let is_there = |name: &str| {
        let place = join(folder, name);
        let found = view.has(&join(&place, META))?;
        if !found {
            // A member behind a link may be away for a moment.
            view.follow_if_link(&place)?;
        }
        Ok::<_, Error>(found)
    };
    let mut found = Vec::new();
    let mut add = |name: &str| found.push((name.to_owned(), Entry::Level(String::new())));
    for number in 0_usize.. {
        let name = number.to_string();
        if !is_there(&name)? {
            break;
        }
        add(&name);
    }
    for name in INNER {
        if is_there(name)? {
            add(name);
        }
    }
    Ok(found)
}

/// The files beside the metadata of such a level.
fn attached(view: &View<'_>, folder: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for name in ATTACHED {
        let place = join(folder, name);
        let path = view.folder.full(&place);
        match view.open_file(&place, false) {
            Ok(file) => found.push((name.to_owned(), read_all(file, &path)?)),
            Err(errno) if is_absent(errno) => {}
            Err(errno) => return Err(Error::io("open", path, errno)),
        }
    }
    Ok(found)
}

/// A name in a folder, both relative to the root.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Checks that the dimensions that the components of a ragged leaf share start with the batch size of its level, or that
/// they do as far as they are known.
fn check_leading(known: &[u64], batch_size: &[u64]) -> Result<()> {
    let shared = known.len().min(batch_size.len());
    check_shape(known, &batch_size[..shared])
}

/// Checks that a field starts with the batch size of its level.
fn check_shape(shape: &[u64], batch_size: &[u64]) -> Result<()> {
    if shape.starts_with(batch_size) {
        Ok(())
    } else {
        Err(Error::BatchSize {
            key: KeyPath::default(),
            shape: shape.to_vec(),
            batch_size: batch_size.to_vec(),
        })
    }
}

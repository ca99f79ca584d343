//! Saving a dictionary of tensors as a folder.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::folder::Folder;
use crate::fresh;
use crate::journal::{COMMITTED, STAGING, View};
use crate::key::KeyPath;
use crate::memmap::{FileId, Map};
use crate::metadata::{ATTACHED, Entry, LEAF_SUFFIX, META, Metadata, Naming, is_plain_name};
use crate::owned::owned;
use crate::ragged::RaggedSchema;
use crate::reader::{join, members};
use crate::schema::LeafSchema;
use crate::transaction::{self, Changes, recovered, recovered_or_damaged};
use crate::tree::{self, Node, Placed};
use crate::whole::{self, Place, State};
use crate::writer::Write;
pub use crate::writer::{Source, Stayed};
use crate::{Error, Result};

/// How often saving starts anew because another writer made or removed the folder meanwhile.
const ATTEMPTS: usize = 100;

/// How to save.
#[derive(Debug, Clone, Copy, Default)]
pub struct SaveOptions<'a> {
    /// How keys become names of files.
    pub naming: Naming,
    /// Whether tensors that are mapped from other files are copied. They are an error otherwise.
    pub copy_existing: bool,
    /// Whether files that are there may be replaced.
    pub replace: bool,
    /// Whether everything is flushed to the disk before it counts, for power cuts.
    pub durable: bool,
    /// Whether the bytes of the leaves stayed where they were read. Where they did not, nothing is saved.
    pub stayed: Stayed<'a>,
}

/// The type of a level that is a plain dictionary.
const PLAIN: &str = "TensorDict";

/// One level of a tree that is to be saved.
#[derive(Debug, Clone)]
pub struct SaveLevel<'a> {
    /// Index of the level it is in, which comes before it; none for the root.
    pub parent: Option<usize>,
    /// Key in that level.
    pub key: Cow<'a, str>,
    /// Name of its type in the entry that the parent has for it: `TensorDict`.
    pub kind: Cow<'a, str>,
    /// What its file says, beside the fields that the plan adds.
    pub meta: Metadata,
    /// Number of leaves that come before it in the order of fields.
    pub after: usize,
    /// More files of the level, by their names.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Placed for SaveLevel<'_> {
    fn parent(&self) -> Option<usize> {
        self.parent
    }

    fn key(&self) -> &str {
        &self.key
    }
}

/// One tensor that is to be saved.
#[derive(Debug, Clone)]
pub struct SaveLeaf<'a> {
    /// Index of the level it is in.
    pub level: usize,
    /// Key in that level.
    pub key: Cow<'a, str>,
    /// Type and shape.
    pub schema: LeafSchema,
    /// Its values.
    pub source: Source<'a>,
    /// The file that it is mapped from as a whole, if it is.
    pub origin: Option<Origin>,
    /// What the metadata says of it.
    pub says: Says,
}

/// The file that a tensor is mapped from.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Its name when it was mapped.
    pub path: PathBuf,
    /// Which file that was; none where it is not known.
    pub file: Option<FileId>,
    /// Whether what is written to the tensor is written to the file.
    pub shared: bool,
}

impl Origin {
    /// The file, if it still has that name. Else the tensor is memory like any other: its file was replaced or removed.
    fn now(&self) -> Option<FileId> {
        let there = FileId::at(&self.path)?;
        (self.file.is_none() || self.file == Some(there)).then_some(there)
    }
}

/// What the metadata of a level says of a tensor that is saved.
#[derive(Debug, Clone, Default)]
pub enum Says {
    /// Its type and shape.
    #[default]
    Schema,
    /// That it holds the values of a ragged tensor.
    Ragged(RaggedSchema),
    /// Nothing: it belongs to a ragged tensor.
    Nothing,
}

impl SaveLeaf<'_> {
    /// What the metadata of its level says of it, if anything.
    fn entry(&self) -> Option<Entry> {
        match &self.says {
            Says::Schema => Some(Entry::Leaf(self.schema.clone())),
            Says::Ragged(ragged) => Some(Entry::Ragged(ragged.clone())),
            Says::Nothing => None,
        }
    }
}

/// A tree that is to be saved: its levels, the root first, and its leaves in the order of fields.
#[derive(Debug, Default)]
pub struct SavePlan<'a> {
    /// Levels.
    pub levels: Vec<SaveLevel<'a>>,
    /// Leaves.
    pub leaves: Vec<SaveLeaf<'a>>,
}

/// A dense tensor in memory.
#[derive(Debug, Clone)]
pub struct Tensor<'a> {
    /// Type and shape.
    pub schema: LeafSchema,
    /// Its values, in rows.
    pub bytes: &'a [u8],
}

impl<'a> SavePlan<'a> {
    /// The plan that saves a tree of tensors, whose levels have these batch sizes.
    #[must_use]
    pub fn of(tree: &'a tree::Tree<Tensor<'a>, Vec<u64>>) -> Self {
        let mut plan = Self::default();
        plan.add(tree, None, "");
        plan
    }

    fn add(&mut self, tree: &'a tree::Tree<Tensor<'a>, Vec<u64>>, parent: Option<usize>, key: &'a str) {
        let level = self.levels.len();
        self.levels.push(SaveLevel {
            parent,
            key: key.into(),
            kind: PLAIN.into(),
            meta: Metadata::plain(tree.about().clone()),
            after: self.leaves.len(),
            files: Vec::new(),
        });
        for (key, node) in tree.entries() {
            match node {
                Node::Leaf(tensor) => self.leaves.push(SaveLeaf {
                    level,
                    key: key.into(),
                    schema: tensor.schema.clone(),
                    source: Source::Bytes(tensor.bytes),
                    origin: None,
                    says: Says::Schema,
                }),
                Node::Level(below) => self.add(below, Some(level), key),
            }
        }
    }
}

/// What became of one leaf.
#[derive(Debug)]
pub struct Saved {
    /// Its file, relative to the folder.
    pub file: String,
    /// The map of its new file. None where it already is the mapped file of its place, or has no elements and no file.
    pub map: Option<Map>,
}

/// Names of everything in a plan.
struct Names {
    /// Folder of each level, relative to the outermost one; empty for that itself.
    levels: Vec<String>,
    /// Path of each level.
    paths: Vec<KeyPath>,
    /// File of each leaf, relative to the same.
    leaves: Vec<String>,
}

impl Names {
    /// Names everything in a tree in the sub-folder `below`, and checks that nothing leaves it or shares a name.
    fn new(plan: &SavePlan<'_>, naming: Naming, below: &str) -> Result<Self> {
        let mut names = Self {
            levels: Vec::with_capacity(plan.levels.len()),
            paths: Vec::with_capacity(plan.levels.len()),
            leaves: Vec::with_capacity(plan.leaves.len()),
        };
        for level in &plan.levels {
            let (folder, path) = match level.parent {
                None => (below.to_owned(), KeyPath::default()),
                Some(parent) => names.below(parent, &level.key, "", naming)?,
            };
            names.levels.push(folder);
            names.paths.push(path);
        }
        for leaf in &plan.leaves {
            let (file, _) = names.below(leaf.level, &leaf.key, LEAF_SUFFIX, naming)?;
            names.leaves.push(file);
        }
        names.check_unique(plan)?;
        Ok(names)
    }

    /// The same for a chain of levels, of which those that are there may be named in the other way.
    fn as_found(view: &View<'_>, plan: &SavePlan<'_>, naming: Naming, below: &str) -> Result<Self> {
        let mut names = Self::new(plan, naming, below)?;
        for number in 1..names.levels.len() {
            let is_there = |name: &str| view.has(&join(name, META));
            let (folder, _) = names.below(number - 1, &plan.levels[number].key, "", naming)?;
            let spelled = names
                .below(number - 1, &plan.levels[number].key, "", naming.other())
                .ok();
            names.levels[number] = match spelled {
                Some((second, _)) if !is_there(&folder)? && is_there(&second)? => second,
                _ => folder,
            };
        }
        for (number, leaf) in plan.leaves.iter().enumerate() {
            names.leaves[number] = names.below(leaf.level, &leaf.key, LEAF_SUFFIX, naming)?.0;
        }
        Ok(names)
    }

    fn below(&self, level: usize, key: &str, suffix: &str, naming: Naming) -> Result<(String, KeyPath)> {
        let path = self.paths[level].child(key);
        let name = naming.name(key);
        let name = format!("{name}{suffix}");
        // `.NAME` with that ending is where a new folder `NAME` is made.
        if name == COMMITTED || (name.starts_with('.') && name.ends_with(STAGING)) {
            return Err(Error::FileCollision {
                first: KeyPath::default(),
                second: path,
                name,
            });
        }
        if !is_plain_name(&name) {
            return Err(Error::UnsafeName {
                key: key.to_owned(),
                name,
            }
            .at_key(&path));
        }
        Ok((join(&self.levels[level], &name), path))
    }

    fn leaf_path(&self, leaf: &SaveLeaf<'_>) -> KeyPath {
        self.paths[leaf.level].child(&leaf.key)
    }

    fn check_unique(&self, plan: &SavePlan<'_>) -> Result<()> {
        let mut owners: HashMap<Cow<'_, str>, Cow<'_, KeyPath>> = HashMap::new();
        for ((folder, path), level) in self.levels.iter().zip(&self.paths).zip(&plan.levels) {
            let mut files = vec![join(folder, META)];
            files.extend(level.files.iter().map(|(name, _)| join(folder, name)));
            for file in files {
                claim(&mut owners, file.into(), Cow::Borrowed(path))?;
            }
        }
        for (folder, path) in self.levels.iter().zip(&self.paths).skip(1) {
            claim(&mut owners, folder.into(), Cow::Borrowed(path))?;
        }
        for (file, leaf) in self.leaves.iter().zip(&plan.leaves) {
            claim(&mut owners, file.into(), Cow::Owned(self.leaf_path(leaf)))?;
        }
        Ok(())
    }
}

fn claim<'a>(
    owners: &mut HashMap<Cow<'a, str>, Cow<'a, KeyPath>>,
    name: Cow<'a, str>,
    path: Cow<'a, KeyPath>,
) -> Result<()> {
    match owners.get(&name) {
        None => {
            owners.insert(name, path);
            Ok(())
        }
        Some(first) => Err(Error::FileCollision {
            first: first.clone().into_owned(),
            second: path.into_owned(),
            name: name.into_owned(),
        }),
    }
}

/// Saves a tree as the folder `path`, which holds exactly that tree afterwards, beside files that belong to no tree.
///
/// A folder that does not exist appears complete. In one that exists the new files replace the old ones all at once:
/// maps of the old ones stay as they are.
///
/// # Errors
/// A key is no name for a file or shares one, a tensor is mapped from elsewhere, a file exists that must not be replaced,
/// or the system refuses. Nothing is changed then.
pub fn save(path: &Path, plan: &SavePlan<'_>, options: SaveOptions<'_>) -> Result<Vec<Saved>> {
    save_if(path, plan, options, None)
}

/// A moment in the life of the folder that a tree belongs to.
#[derive(Debug)]
pub struct Moment(State);

impl Moment {
    /// This moment of the folder `path`, or of the outermost folder that it is a level of.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn of(path: &Path) -> Result<Self> {
        Ok(Self(State::of(&Folder::open(&Place::of(path)?.root)?)))
    }
}

/// [`save`], for what was made of the content that the folder had at a moment: if others have changed it since, nothing is done.
///
/// # Errors
/// As [`save`], and [`Error::Changed`].
pub fn save_since(
    path: &Path,
    plan: &SavePlan<'_>,
    options: SaveOptions<'_>,
    since: &Moment,
) -> Result<Vec<Saved>> {
    save_if(path, plan, options, Some(since))
}

fn save_if(
    path: &Path,
    plan: &SavePlan<'_>,
    options: SaveOptions<'_>,
    since: Option<&Moment>,
) -> Result<Vec<Saved>> {
    let changed = || Error::Changed { path: path.into() };
    for _ in 0..ATTEMPTS {
        let saved = match Place::lock(path) {
            Ok((place, folder)) => {
                // Only what replaces the whole can take the place of changes that are committed and not carried out.
                let view = if options.replace && place.below.is_empty() {
                    recovered_or_damaged(&folder)?
                } else {
                    settled(&recovered(&folder)?)?
                };
                if since.is_some_and(|moment| !moment.0.holds(&folder)) {
                    return Err(changed());
                }
                Some(save_in(&view, &place, plan, options)?)
            }
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                if since.is_some() {
                    return Err(changed());
                }
                save_new(path, plan, options)?
            }
            Err(error) => return Err(error),
        };
        if let Some(saved) = saved {
            return Ok(saved);
        }
    }
    Err(Error::Busy { path: path.into() })
}

/// The entries of the fields of each level, in their order.
fn new_entries(plan: &SavePlan<'_>) -> Vec<Vec<(String, Entry)>> {
    let mut leaves = plan.leaves.iter().enumerate().peekable();
    let mut entries: Vec<Vec<(String, Entry)>> = plan.levels.iter().map(|_| Vec::new()).collect();
    let add = |leaf: &SaveLeaf<'_>, entries: &mut Vec<Vec<(String, Entry)>>| {
        if let Some(entry) = leaf.entry() {
            entries[leaf.level].push((leaf.key.clone().into_owned(), entry));
        }
    };
    for level in &plan.levels {
        while let Some((_, leaf)) = leaves.next_if(|(number, _)| *number < level.after) {
            add(leaf, &mut entries);
        }
        // What else a level says it says itself.
        if let Some(parent) = level.parent.filter(|parent| plan.levels[*parent].meta.is_plain()) {
            let entry = Entry::Level(level.kind.clone().into_owned());
            entries[parent].push((level.key.clone().into_owned(), entry));
        }
    }
    for (_, leaf) in leaves {
        add(leaf, &mut entries);
    }
    entries
}

/// The files of the levels: their metadata, with more entries, and what else they have.
fn level_writes<'a>(
    levels: &[SaveLevel<'a>],
    entries: Vec<Vec<(String, Entry)>>,
    names: &Names,
    root: &Path,
) -> Result<Vec<Write<'a>>> {
    let mut writes = Vec::with_capacity(levels.len());
    for ((level, folder), more) in levels.iter().zip(&names.levels).zip(entries) {
        let target = join(folder, META);
        let mut meta = level.meta.clone();
        meta.entries.extend(more);
        let text = meta.to_json(&root.join(&target))?;
        let files = level
            .files
            .iter()
            .map(|(name, bytes)| (join(folder, name), bytes.clone()));
        for (target, bytes) in files.chain([(target, text)]) {
            writes.push(Write {
                target,
                source: Source::Owned(bytes),
                map: false,
                key: KeyPath::default(),
            });
        }
    }
    Ok(writes)
}

fn leaf_write<'a>(names: &Names, leaf: &SaveLeaf<'a>, file: &str) -> Write<'a> {
    Write {
        target: file.to_owned(),
        source: leaf.source.clone(),
        map: true,
        key: names.leaf_path(leaf),
    }
}

/// Refuses a tensor that is mapped from another file than its place, unless it may be copied.
fn check_origin(leaf: &SaveLeaf<'_>, names: &Names, target: PathBuf, options: SaveOptions<'_>) -> Result<()> {
    match &leaf.origin {
        Some(origin) if !options.copy_existing && origin.now().is_some() => Err(Error::MappedElsewhere {
            path: origin.path.clone(),
            target,
        }
        .at_key(&names.leaf_path(leaf))),
        _ => Ok(()),
    }
}

/// Saves a folder that does not exist; none if it does by now.
fn save_new(path: &Path, plan: &SavePlan<'_>, options: SaveOptions<'_>) -> Result<Option<Vec<Saved>>> {
    let names = Names::new(plan, options.naming, "")?;
    let mut changes = Changes {
        folders: names.levels[1..].to_vec(),
        stayed: options.stayed,
        ..Changes::default()
    };
    let mut written = Vec::with_capacity(plan.leaves.len());
    for (leaf, file) in plan.leaves.iter().zip(&names.leaves) {
        check_origin(leaf, &names, path.join(file), options)?;
        let has_file = !leaf.source.is_empty();
        if has_file {
            changes.writes.push(leaf_write(&names, leaf, file));
        }
        written.push(has_file);
    }
    changes
        .writes
        .extend(level_writes(&plan.levels, new_entries(plan), &names, path)?);
    let maps = fresh::create(path, &changes, options.durable)?;
    Ok(maps.map(|maps| saved(&written, names.leaves.iter().map(String::as_str), maps)))
}

/// What became of the leaves: those that were written have a map, in order.
fn saved<'a>(written: &[bool], files: impl Iterator<Item = &'a str>, maps: Vec<Option<Map>>) -> Vec<Saved> {
    let mut maps = maps.into_iter().flatten();
    let leaf = |(written, file): (&bool, &str)| Saved {
        file: file.to_owned(),
        map: written.then(|| maps.next()).flatten(),
    };
    written.iter().zip(files).map(leaf).collect()
}

/// Saves into a locked folder that is as `view` says.
fn save_in(
    view: &View<'_>,
    place: &Place,
    plan: &SavePlan<'_>,
    options: SaveOptions<'_>,
) -> Result<Vec<Saved>> {
    let names = Names::new(plan, options.naming, &place.below)?;
    let mut changes = Changes {
        folders: names.levels[1..].to_vec(),
        stayed: options.stayed,
        ..Changes::default()
    };
    let mut written = Vec::with_capacity(plan.leaves.len());
    for (leaf, file) in plan.leaves.iter().zip(&names.leaves) {
        let write = leaf_change(view, &names, leaf, file, options)?;
        written.push(write.is_some());
        changes.writes.extend(write);
    }
    changes.writes.extend(level_writes(
        &plan.levels,
        new_entries(plan),
        &names,
        &view.folder.path,
    )?);
    check_batch_above(view, place, plan)?;
    if options.replace {
        plan_removals(view, &names, plan, &place.below, &mut changes)?;
    }
    let maps = transaction::change(view, changes, options.durable)?;
    let files = names.leaves.iter().map(|file| place.relative(file));
    Ok(saved(&written, files, maps))
}

/// Checks that a tree that is a level of another has a batch size that its parent, as it is in the folder, allows.
fn check_batch_above(view: &View<'_>, place: &Place, plan: &SavePlan<'_>) -> Result<()> {
    let Some(shape) = plan.levels[0]
        .meta
        .shape
        .as_deref()
        .filter(|_| !place.below.is_empty())
    else {
        return Ok(());
    };
    let (above, name) = place.below.rsplit_once('/').unwrap_or(("", &place.below));
    let batch_size = whole::metadata(view, above)?.shape.unwrap_or_default();
    let shared = shape.len().min(batch_size.len());
    if plan.levels[0].meta.is_plain() && shape[..shared] != batch_size[..shared] {
        return Err(Error::BatchSize {
            key: name.into(),
            shape: shape.to_vec(),
            batch_size,
        });
    }
    Ok(())
}

/// What is to be written of a leaf; nothing where it has no elements or is there already.
fn leaf_change<'a>(
    view: &View<'_>,
    names: &Names,
    leaf: &SaveLeaf<'a>,
    file: &str,
    options: SaveOptions<'_>,
) -> Result<Option<Write<'a>>> {
    let here = is_from(view, leaf, file);
    let kept = here
        && leaf
            .origin
            .as_ref()
            .is_some_and(|origin| origin.shared && origin.file.is_some());
    // A file that committed changes are to replace is written again, as they will not be carried out any more.
    if leaf.source.is_empty() || (kept && !view.is_pending()) {
        return Ok(None);
    }
    if !here {
        check_origin(leaf, names, view.folder.full(file), options)?;
    }
    if !options.replace && view.has(file)? {
        return Err(Error::Exists {
            path: view.folder.full(file),
        }
        .at_key(&names.leaf_path(leaf)));
    }
    Ok(Some(leaf_write(names, leaf, file)))
}

/// Whether the leaf is mapped from the very file that is at its place.
fn is_from(view: &View<'_>, leaf: &SaveLeaf<'_>, file: &str) -> bool {
    let Some(origin) = &leaf.origin else {
        return false;
    };
    let Ok(place) = view.folder.stat(file) else {
        return false;
    };
    u64::try_from(place.st_size) == Ok(leaf.source.len()) && origin.now() == Some(FileId::of(&place))
}

/// Plans to remove what the tree in the folder has and the new one has not.
fn plan_removals(
    view: &View<'_>,
    names: &Names,
    plan: &SavePlan<'_>,
    below: &str,
    changes: &mut Changes<'_>,
) -> Result<()> {
    let old = owned(view, below)?;
    let levels: HashSet<&str> = names.levels.iter().map(String::as_str).collect();
    let mut used: HashSet<&str> = changes.writes.iter().map(|write| write.target.as_str()).collect();
    // The file of a leaf that has no elements by now goes too: such leaves have none.
    let kept = plan.leaves.iter().zip(&names.leaves);
    used.extend(kept.filter_map(|(leaf, file)| (!leaf.source.is_empty()).then_some(file.as_str())));
    let unused = |file: &String| !used.contains(file.as_str());
    changes.removed_files.extend(old.files.into_iter().filter(unused));
    let gone = |folder: &String| !levels.contains(folder.as_str());
    changes
        .removed_folders
        .extend(old.folders.into_iter().rev().filter(gone));
    Ok(())
}

/// Adds one leaf to the folder `path`, or replaces it. `levels` lead from the root to the level of the leaf; those that
/// the folder does not have are made as they are given.
///
/// # Errors
/// As [`save`]; nothing is changed then.
pub fn add_leaf(
    path: &Path,
    levels: &[SaveLevel<'_>],
    leaf: &SaveLeaf<'_>,
    options: SaveOptions<'_>,
) -> Result<Saved> {
    let mut plan = SavePlan {
        levels: levels.to_vec(),
        leaves: vec![leaf.clone()],
    };
    let (place, folder) = Place::lock(path)?;
    let view = settled(&recovered(&folder)?)?;
    let names = Names::as_found(&view, &plan, options.naming, &place.below)?;
    let mut changes = Changes {
        stayed: options.stayed,
        ..Changes::default()
    };
    for (number, name) in names.levels.iter().enumerate() {
        match whole::metadata(&view, name) {
            Ok(meta) => plan.levels[number].meta = meta,
            Err(Error::NoMetadata { .. }) if number > 0 => changes.folders.push(name.clone()),
            Err(error) => return Err(error),
        }
    }
    check_as_found(&plan, &names)?;
    changes.folders.retain(|name| *name != place.below);
    let (leaf, file) = (&plan.leaves[0], &names.leaves[0]);
    let write = leaf_change(&view, &names, leaf, file, options)?;
    let written = write.is_some();
    changes.writes.extend(write);
    if leaf.source.is_empty() && view.has(file)? {
        changes.removed_files.push(file.clone());
    }
    replace_entries(&mut plan);
    let none = vec![Vec::new(); plan.levels.len()];
    changes
        .writes
        .extend(level_writes(&plan.levels, none, &names, &view.folder.path)?);
    let maps = transaction::change(&view, changes, options.durable)?;
    let mut saved = saved(&[written], [place.relative(&names.leaves[0])].into_iter(), maps);
    saved.pop().ok_or_else(|| Error::Busy { path: path.into() })
}

/// Writes again what the folder `path`, a level that is no plain dictionary, says of itself: its metadata and the files
/// beside it. `known` are files of the save that the writer knows: if none of them is there any more, the folder holds another.
///
/// # Errors
/// There is no such level, the folder holds another save, or the system refuses; nothing is changed then.
pub fn replace_level(
    path: &Path,
    meta: &Metadata,
    files: &[(String, Vec<u8>)],
    known: &[(PathBuf, FileId)],
) -> Result<()> {
    let (place, folder) = Place::lock(path)?;
    let view = settled(&recovered(&folder)?)?;
    if !known.is_empty() && known.iter().all(|(file, id)| FileId::at(file) != Some(*id)) {
        return Err(Error::OtherSave { path: path.into() });
    }
    let old = whole::metadata(&view, &place.below)?;
    if old.is_plain() || !members(&view, &place.below, &old)?.is_empty() {
        return Err(Error::Metadata {
            path: view.folder.full(&place.part(META)),
            field: "_type".into(),
            wanted: "a holder of objects",
            found: old.kind,
        });
    }
    let level = SaveLevel {
        parent: None,
        key: Cow::Borrowed(""),
        kind: Cow::Borrowed(""),
        meta: meta.clone(),
        after: 0,
        files: files.to_vec(),
    };
    let plan = SavePlan {
        levels: vec![level],
        leaves: Vec::new(),
    };
    let names = Names::new(&plan, Naming::Robust, &place.below)?;
    let mut changes = Changes {
        writes: level_writes(&plan.levels, vec![Vec::new()], &names, &view.folder.path)?,
        ..Changes::default()
    };
    let written: HashSet<String> = changes.writes.iter().map(|write| write.target.clone()).collect();
    for file in ATTACHED.iter().map(|name| join(&place.below, name)) {
        if !written.contains(&file) && view.has(&file)? {
            changes.removed_files.push(file);
        }
    }
    transaction::change(&view, changes, false).map(|_| ())
}

/// A folder in which nothing is left to do: a change of a part cannot take the place of a change that is committed.
///
/// # Errors
/// There is something that could not be carried out; the system's error says why.
fn settled<'a>(view: &View<'a>) -> Result<View<'a>> {
    if view.is_pending() {
        transaction::carry_out_again(view.folder)?;
    }
    Ok(View::plain(view.folder))
}

/// Checks that a chain of levels and its one leaf fit what the folder has by now: another save may have changed it.
fn check_as_found(plan: &SavePlan<'_>, names: &Names) -> Result<()> {
    let leaf = &plan.leaves[0];
    for (number, path) in names.paths.iter().enumerate() {
        let is_last = number + 1 == plan.levels.len();
        let key = if is_last {
            &leaf.key
        } else {
            &plan.levels[number + 1].key
        };
        let meta = &plan.levels[number].meta;
        let full = path.child(key);
        let there = meta
            .entries
            .iter()
            .find(|(other, _)| other == key)
            .map(|(_, entry)| entry);
        if there.is_some_and(|entry| matches!(entry, Entry::Level(_)) == is_last) {
            return Err(Error::KeyCollision {
                first: full.clone(),
                second: full,
            });
        }
        let batch_size = meta.shape.as_deref().unwrap_or_default();
        if is_last && matches!(leaf.says, Says::Schema) && !leaf.schema.shape.starts_with(batch_size) {
            return Err(Error::BatchSize {
                key: full,
                shape: leaf.schema.shape.clone(),
                batch_size: batch_size.to_vec(),
            });
        }
    }
    Ok(())
}

/// Adds the entries of a chain of levels and their one leaf, in place of those of the same key.
fn replace_entries(plan: &mut SavePlan<'_>) {
    let leaf = &plan.leaves[0];
    if let Some(entry) = leaf.entry().filter(|_| plan.levels[leaf.level].meta.is_plain()) {
        let entries = &mut plan.levels[leaf.level].meta.entries;
        match entries.iter_mut().find(|(key, _)| *key == leaf.key) {
            Some((_, old)) => *old = entry,
            None => entries.push((leaf.key.clone().into_owned(), entry)),
        }
    }
    for number in 1..plan.levels.len() {
        if !plan.levels[number - 1].meta.is_plain() {
            continue;
        }
        let (key, kind) = (plan.levels[number].key.clone(), plan.levels[number].kind.clone());
        let entries = &mut plan.levels[number - 1].meta.entries;
        if !entries.iter().any(|(other, _)| *other == key) {
            entries.push((key.into_owned(), Entry::Level(kind.into_owned())));
        }
    }
}

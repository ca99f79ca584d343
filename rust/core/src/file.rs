//! Saving a dictionary of tensors as a folder.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::memmap::Map;
use crate::metadata::{Entry, LEAF_SUFFIX, META, Metadata, Naming, is_inside, is_plain_name};
use crate::ragged::RaggedSchema;
use crate::reader;
use crate::schedule;
use crate::schema::LeafSchema;
use crate::transaction::{self, COMMITTED, Changes, Folder, Redirects, STAGING};
pub use crate::writer::Source;
use crate::writer::Write;
use crate::{Error, Result};

/// How often saving starts anew because another writer made or removed the folder meanwhile.
const ATTEMPTS: usize = 100;

/// How to save.
#[derive(Debug, Clone, Copy, Default)]
pub struct SaveOptions {
    /// How keys become names of files.
    pub naming: Naming,
    /// Whether tensors that are mapped from other files are copied. They are an error otherwise.
    pub copy_existing: bool,
    /// Whether files that are there may be replaced.
    pub replace: bool,
    /// Whether everything is flushed to the disk before it counts, for power cuts.
    pub durable: bool,
}

/// One level of a tree that is to be saved.
#[derive(Debug)]
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

/// One tensor that is to be saved.
#[derive(Debug)]
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
    pub origin: Option<PathBuf>,
    /// What the metadata says of it.
    pub says: Says,
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
    /// Folder of each level, relative to the root; empty for the root itself.
    levels: Vec<String>,
    /// Keys from the root to each level.
    keys: Vec<Vec<String>>,
    /// File of each leaf, relative to the root.
    leaves: Vec<String>,
}

impl Names {
    /// Names everything, and checks that nothing leaves the folder or shares a name.
    fn new(plan: &SavePlan<'_>, naming: Naming) -> Result<Self> {
        let mut names = Self {
            levels: Vec::with_capacity(plan.levels.len()),
            keys: Vec::with_capacity(plan.levels.len()),
            leaves: Vec::with_capacity(plan.leaves.len()),
        };
        for level in &plan.levels {
            let (folder, keys) = match level.parent {
                None => (String::new(), Vec::new()),
                Some(parent) => names.below(parent, &level.key, "", naming)?,
            };
            names.levels.push(folder);
            names.keys.push(keys);
        }
        for leaf in &plan.leaves {
            let (file, _) = names.below(leaf.level, &leaf.key, LEAF_SUFFIX, naming)?;
            names.leaves.push(file);
        }
        names.check_unique(plan)?;
        Ok(names)
    }

    fn below(&self, level: usize, key: &str, suffix: &str, naming: Naming) -> Result<(String, Vec<String>)> {
        let mut keys = self.keys[level].clone();
        keys.push(key.to_owned());
        let name = naming.name(key);
        let name = format!("{name}{suffix}");
        if !is_plain_name(&name) {
            return Err(Error::UnsafeName {
                key: key.to_owned(),
                name,
            }
            .at_key(&keys));
        }
        Ok((join(&self.levels[level], &name), keys))
    }

    fn leaf_keys(&self, leaf: &SaveLeaf<'_>) -> Vec<String> {
        let mut keys = self.keys[leaf.level].clone();
        keys.push(leaf.key.clone().into_owned());
        keys
    }

    fn check_unique(&self, plan: &SavePlan<'_>) -> Result<()> {
        let mut owners: HashMap<Cow<'_, str>, Cow<'_, [String]>> = HashMap::new();
        for own in [STAGING, COMMITTED] {
            owners.insert(own.into(), Vec::new().into());
        }
        for ((folder, keys), level) in self.levels.iter().zip(&self.keys).zip(&plan.levels) {
            let mut files = vec![join(folder, META)];
            files.extend(level.files.iter().map(|(name, _)| join(folder, name)));
            for file in files {
                claim(&mut owners, file.into(), keys.as_slice().into())?;
            }
        }
        for (folder, keys) in self.levels.iter().zip(&self.keys).skip(1) {
            claim(&mut owners, folder.into(), keys.as_slice().into())?;
        }
        for (file, leaf) in self.leaves.iter().zip(&plan.leaves) {
            claim(&mut owners, file.into(), self.leaf_keys(leaf).into())?;
        }
        Ok(())
    }
}

fn claim<'a>(
    owners: &mut HashMap<Cow<'a, str>, Cow<'a, [String]>>,
    name: Cow<'a, str>,
    keys: Cow<'a, [String]>,
) -> Result<()> {
    match owners.get(&name) {
        None => {
            owners.insert(name, keys);
            Ok(())
        }
        Some(first) => Err(Error::FileCollision {
            first: first.to_vec(),
            second: keys.into_owned(),
            name: name.into_owned(),
        }),
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
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
pub fn save(path: &Path, plan: &mut SavePlan<'_>, options: SaveOptions) -> Result<Vec<Saved>> {
    add_entries(plan);
    let names = Names::new(plan, options.naming)?;
    transaction::settle_above(path)?;
    schedule::install(|| {
        for _ in 0..ATTEMPTS {
            let saved = match Folder::lock(path) {
                Ok(folder) => Some(save_in(&folder, plan, &names, options)?),
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    save_new(path, plan, &names, options)?
                }
                Err(error) => return Err(error),
            };
            if let Some(saved) = saved {
                return Ok(saved);
            }
        }
        Err(Error::Busy { path: path.into() })
    })
}

/// Adds to each level's metadata the entries of its fields, in their order.
fn add_entries(plan: &mut SavePlan<'_>) {
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
        if let Some(parent) = level.parent {
            let entry = Entry::Level(level.kind.clone().into_owned());
            entries[parent].push((level.key.clone().into_owned(), entry));
        }
    }
    for (_, leaf) in leaves {
        add(leaf, &mut entries);
    }
    for (level, new) in plan.levels.iter_mut().zip(entries) {
        level.meta.entries.extend(new);
    }
}

/// The files of the levels: their metadata and what else they have.
fn level_writes<'a>(plan: &SavePlan<'a>, names: &Names, root: &Path) -> Result<Vec<Write<'a>>> {
    let mut writes = Vec::with_capacity(plan.levels.len());
    for (level, folder) in plan.levels.iter().zip(&names.levels) {
        let target = join(folder, META);
        let text = level.meta.to_json(&root.join(&target))?;
        let files = level
            .files
            .iter()
            .map(|(name, bytes)| (join(folder, name), bytes.clone()));
        for (target, bytes) in files.chain([(target, text)]) {
            writes.push(Write {
                target,
                source: Source::Owned(bytes),
                map: false,
                key: Vec::new(),
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
        key: names.leaf_keys(leaf),
    }
}

/// Refuses a tensor that is mapped from another file than its place, unless it may be copied.
fn check_origin(leaf: &SaveLeaf<'_>, names: &Names, target: PathBuf, options: SaveOptions) -> Result<()> {
    match &leaf.origin {
        Some(origin) if !options.copy_existing => Err(Error::MappedElsewhere {
            path: origin.clone(),
            target,
        }
        .at_key(&names.leaf_keys(leaf))),
        _ => Ok(()),
    }
}

/// Saves a folder that does not exist; none if it does by now.
fn save_new(
    path: &Path,
    plan: &SavePlan<'_>,
    names: &Names,
    options: SaveOptions,
) -> Result<Option<Vec<Saved>>> {
    let mut changes = Changes {
        folders: names.levels[1..].to_vec(),
        ..Changes::default()
    };
    let mut written = Vec::with_capacity(plan.leaves.len());
    for (leaf, file) in plan.leaves.iter().zip(&names.leaves) {
        check_origin(leaf, names, path.join(file), options)?;
        let has_file = !leaf.source.is_empty();
        if has_file {
            changes.writes.push(leaf_write(names, leaf, file));
        }
        written.push(has_file);
    }
    changes.writes.extend(level_writes(plan, names, path)?);
    let maps = transaction::create(path, &changes, options.durable)?;
    Ok(maps.map(|maps| saved(&written, &names.leaves, maps)))
}

/// What became of the leaves: those that were written have a map, in order.
fn saved(written: &[bool], files: &[String], maps: Vec<Option<Map>>) -> Vec<Saved> {
    let mut maps = maps.into_iter().flatten();
    let leaf = |(written, file): (&bool, &String)| Saved {
        file: file.clone(),
        map: written.then(|| maps.next()).flatten(),
    };
    written.iter().zip(files).map(leaf).collect()
}

/// Saves into the locked `folder`.
fn save_in(folder: &Folder, plan: &SavePlan<'_>, names: &Names, options: SaveOptions) -> Result<Vec<Saved>> {
    folder.recover()?;
    let mut changes = Changes {
        folders: names.levels[1..].to_vec(),
        ..Changes::default()
    };
    let mut written = Vec::with_capacity(plan.leaves.len());
    for (leaf, file) in plan.leaves.iter().zip(&names.leaves) {
        let kept = leaf.source.is_empty() || is_in_place(folder, leaf, file);
        if !kept {
            check_origin(leaf, names, folder.full(file), options)?;
            changes.writes.push(leaf_write(names, leaf, file));
        }
        written.push(!kept);
    }
    if !options.replace
        && let Some(write) = changes.writes.iter().find(|write| folder.has(&write.target))
    {
        return Err(Error::Exists {
            path: folder.full(&write.target),
        }
        .at_key(&write.key));
    }
    changes.writes.extend(level_writes(plan, names, &folder.path)?);
    plan_removals(folder, plan, names, &mut changes);
    let maps = folder.change(changes, options.durable)?;
    Ok(saved(&written, &names.leaves, maps))
}

/// Whether the leaf is mapped from the very file that is at its place.
fn is_in_place(folder: &Folder, leaf: &SaveLeaf<'_>, file: &str) -> bool {
    let Some(origin) = &leaf.origin else {
        return false;
    };
    let Ok(place) = folder.stat(file) else {
        return false;
    };
    u64::try_from(place.st_size) == Ok(leaf.source.len())
        && rustix::fs::stat(origin)
            .is_ok_and(|origin| (origin.st_dev, origin.st_ino) == (place.st_dev, place.st_ino))
}

/// Plans to remove what the tree in the folder has and the new one has not. A tree whose metadata cannot be read is no
/// tree: its files stay, as they belong to no one known.
fn plan_removals(folder: &Folder, plan: &SavePlan<'_>, names: &Names, changes: &mut Changes<'_>) {
    let Ok(old) = reader::read_levels(folder) else {
        return;
    };
    let levels: HashSet<&str> = names.levels.iter().map(String::as_str).collect();
    let mut used: HashSet<&str> = names.leaves.iter().map(String::as_str).collect();
    used.extend(changes.writes.iter().map(|write| write.target.as_str()));
    // The file of a leaf that has no elements by now goes too: such leaves have none.
    for (leaf, file) in plan.leaves.iter().zip(&names.leaves) {
        if leaf.source.is_empty() {
            used.remove(file.as_str());
        }
    }
    let mut removed: Vec<String> = Vec::new();
    for leaf in old
        .leaves
        .iter()
        .chain(old.ragged.iter().flat_map(|ragged| &ragged.files))
    {
        let place = |naming: Naming| {
            let name = format!("{}{LEAF_SUFFIX}", naming.name(&leaf.key));
            join(&old.levels[leaf.level].folder, &name)
        };
        let file = [Naming::Robust, Naming::Verbatim]
            .into_iter()
            .map(place)
            .find(|file| is_inside(file) && folder.has(file));
        removed.extend(file.filter(|file| !used.contains(file.as_str())));
    }
    for level in old.levels.iter().filter(|level| level.meta.is_plain()) {
        if !levels.contains(level.folder.as_str()) && is_inside(&level.folder) {
            removed.push(join(&level.folder, META));
            changes.removed_folders.push(level.folder.clone());
        }
    }
    changes.removed_folders.reverse();
    changes.removed_files.extend(removed);
}

/// Adds one leaf to the folder `path`, or replaces it. `levels` lead from the root to the level of the leaf; those that
/// the folder does not have are made as they are given.
///
/// # Errors
/// As [`save`]; nothing is changed then.
pub fn add_leaf(
    path: &Path,
    levels: Vec<SaveLevel<'_>>,
    leaf: SaveLeaf<'_>,
    options: SaveOptions,
) -> Result<Saved> {
    let mut plan = SavePlan {
        levels,
        leaves: vec![leaf],
    };
    transaction::settle_above(path)?;
    let folder = match Folder::lock(path) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let mut saved = save(path, &mut plan, options)?;
            return saved.pop().ok_or_else(|| Error::Busy { path: path.into() });
        }
        folder => folder?,
    };
    folder.recover()?;
    let names = Names::new(&plan, options.naming)?;
    let mut changes = Changes::default();
    for (level, name) in plan.levels.iter_mut().zip(&names.levels) {
        match reader::read_metadata(&folder, &Redirects::new(), name) {
            Ok(meta) => level.meta = meta,
            Err(Error::NoMetadata { .. }) => changes.folders.push(name.clone()),
            Err(error) => return Err(error),
        }
    }
    changes.folders.retain(|name| !name.is_empty());
    let (leaf, file) = (&plan.leaves[0], &names.leaves[0]);
    let kept = leaf.source.is_empty() || is_in_place(&folder, leaf, file);
    if !kept {
        check_origin(leaf, &names, folder.full(file), options)?;
        changes.writes.push(leaf_write(&names, leaf, file));
    }
    if !kept && !options.replace && folder.has(file) {
        return Err(Error::Exists {
            path: folder.full(file),
        }
        .at_key(&names.leaf_keys(leaf)));
    }
    if leaf.source.is_empty() && folder.has(file) {
        changes.removed_files.push(file.clone());
    }
    replace_entries(&mut plan);
    changes.writes.extend(level_writes(&plan, &names, path)?);
    let maps = folder.change(changes, options.durable)?;
    let mut saved = saved(&[!kept], &names.leaves, maps);
    saved.pop().ok_or_else(|| Error::Busy { path: path.into() })
}

/// Adds the entries of a chain of levels and their one leaf, in place of those of the same key.
fn replace_entries(plan: &mut SavePlan<'_>) {
    let leaf = &plan.leaves[0];
    if let Some(entry) = leaf.entry() {
        let entries = &mut plan.levels[leaf.level].meta.entries;
        match entries.iter_mut().find(|(key, _)| *key == leaf.key) {
            Some((_, old)) => *old = entry,
            None => entries.push((leaf.key.clone().into_owned(), entry)),
        }
    }
    for number in 1..plan.levels.len() {
        let (key, kind) = (plan.levels[number].key.clone(), plan.levels[number].kind.clone());
        let entries = &mut plan.levels[number - 1].meta.entries;
        if !entries.iter().any(|(other, _)| *other == key) {
            entries.push((key.into_owned(), Entry::Level(kind.into_owned())));
        }
    }
}

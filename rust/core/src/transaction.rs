//! Changes to a folder that happen as a whole or not at all.
//!
//! A new folder is made complete beside its place (see `fresh`). A folder that exists gets its new files in [`STAGING`], a
//! folder within it. What is new and in nobody's way is put in place from there at once, so that all that can refuse has had
//! its chance. The rest, what is to be replaced and removed, is in a journal; renaming the folder to [`COMMITTED`] is the
//! moment from which the changes count. They are then carried out and the folder goes. Whoever finds a committed folder
//! carries it out, or, where that is refused, reads as if it were done. Whoever finds a staging folder that nobody works on
//! removes it, with what had been put in place from it.
//!
//! Writers exclude each other by locking the folder ([`Locked`]).

use std::collections::{BTreeSet, HashMap, HashSet};

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::folder::{Folder, Locked, check_descriptors};
use crate::journal::{COMMITTED, JOURNAL, Journal, STAGING, TRIED, Tried, View, damaged};
use crate::key::KeyPath;
use crate::memmap::Map;
use crate::metadata::META;
use crate::writer::{Source, Stayed, Write, Writer};
use crate::{Error, Result};

/// What forbids that a file is replaced, or that a folder loses an entry.
const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);

/// Changes to one folder.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    /// Folders that must exist, parents first.
    pub(crate) folders: Vec<String>,
    pub(crate) writes: Vec<Write<'a>>,
    pub(crate) removed_files: Vec<String>,
    /// Folders that go if nothing else is in them, the deepest first.
    pub(crate) removed_folders: Vec<String>,
    pub(crate) stayed: Stayed<'a>,
}

/// Finishes what was interrupted in a locked folder, as far as that is possible, and gives the folder as it then is.
///
/// # Errors
/// [`Error::Damaged`] where what was interrupted cannot be understood, or the system does not let it be read.
pub(crate) fn recovered(folder: &Locked) -> Result<View<'_>> {
    if folder.has(STAGING)? {
        // What cannot be removed is told by the next writer that needs the place.
        let _ = discard(folder);
    }
    if !folder.is_folder(COMMITTED)? {
        return Ok(View::plain(folder));
    }
    let journal = Journal::committed(folder)?;
    match carry_out(folder, &journal) {
        Ok(()) => Ok(View::plain(folder)),
        Err(error @ Error::LinkedFolder { .. }) => Err(damaged(folder, error)),
        Err(_) => Ok(View::after(folder, journal)),
    }
}

/// The same for changes that leave nothing of what was there: they can take the place of what cannot be understood.
///
/// # Errors
/// The system does not let it be read.
pub(crate) fn recovered_or_damaged(folder: &Locked) -> Result<View<'_>> {
    match recovered(folder) {
        Err(Error::Damaged { .. }) => Ok(View::damaged(folder)),
        found => found,
    }
}

/// Carries out what is committed, and says why where that is refused.
pub(crate) fn carry_out_again(folder: &Folder) -> Result<()> {
    carry_out(folder, &Journal::committed(folder)?)
}

/// Removes the staging folder, and what was put in place from it; or what another program put in the place of that folder.
fn discard(folder: &Folder) -> Result<()> {
    if folder.is_folder(STAGING)? {
        let tried = Tried::staged(folder)?;
        let files = tried.files.iter().map(|(_, place)| place);
        // A list that leads through links came with the data set.
        if refuse_links(folder, files.chain(&tried.folders), STAGING).is_ok() {
            take_back(folder, &tried);
        }
        let _ = folder.unlink(&format!("{STAGING}/{TRIED}"));
    }
    folder.remove_all(STAGING)
}

/// Removes again what was put in place: the files that are no longer in the staging folder.
fn take_back(folder: &Folder, tried: &Tried) {
    for (name, place) in &tried.files {
        if matches!(folder.has(&format!("{STAGING}/{name}")), Ok(false)) {
            // Both may fail without harm: nothing refers to what stays.
            let _ = folder.unlink(place);
        }
    }
    for made in tried.folders.iter().rev() {
        let _ = folder.remove_folder(made);
    }
}

fn carry_out(folder: &Folder, journal: &Journal) -> Result<()> {
    refuse_links(folder, journal.places(), COMMITTED)?;
    let done = |action, place: &str, result: Result<(), Errno>, fine: &[Errno]| match result {
        Err(errno) if !fine.contains(&errno) => Err(Error::io(action, folder.full(place), errno)),
        _ => Ok(()),
    };
    // From here on what was put in place before stays.
    let tried = format!("{COMMITTED}/{TRIED}");
    done(
        "remove",
        &tried,
        folder.unlink(&tried),
        &[Errno::NOENT, Errno::ISDIR],
    )?;
    for file in &journal.remove_files {
        done(
            "remove",
            file,
            folder.unlink(file),
            // A folder is not what was meant.
            &[Errno::NOENT, Errno::NOTDIR, Errno::ISDIR],
        )?;
    }
    // An empty folder that stays is in nobody's way.
    let kept = [
        Errno::NOENT,
        Errno::NOTEMPTY,
        Errno::EXIST,
        Errno::NOTDIR,
        Errno::BUSY,
        Errno::ACCESS,
        Errno::PERM,
    ];
    for gone in &journal.remove_folders {
        done("remove", gone, folder.remove_folder(gone), &kept)?;
    }
    for made in &journal.make_folders {
        done("create", made, folder.make_folder(made), &[Errno::EXIST])?;
    }
    for (name, place) in &journal.rename {
        match put(folder, &format!("{COMMITTED}/{name}"), place) {
            // It was renamed before whoever carried this out was stopped.
            Err(Errno::NOENT) if folder.has(place)? => {}
            result => done("replace", place, result, &[])?,
        }
    }
    // From here on it is rubbish again, which goes at once or with the next writer. Where rubbish that cannot be removed is in
    // the way, the journal goes first: without it there is nothing to be done.
    if folder.rename(COMMITTED, STAGING).is_ok() {
        let _ = folder.remove_all(STAGING);
        return Ok(());
    }
    let journal = format!("{COMMITTED}/{JOURNAL}");
    done("remove", &journal, folder.unlink(&journal), &[Errno::NOENT])?;
    let _ = folder.remove_all(COMMITTED);
    Ok(())
}

/// Renames a file, also to a place that is taken. What is there is removed first: some file systems (ext4) write a
/// file to the disk when it is renamed onto another, which takes a hundred times as long.
fn put(folder: &Folder, staged: &str, place: &str) -> Result<(), Errno> {
    match put_new(folder, staged, place) {
        Err(Errno::EXIST) => match folder.unlink(place) {
            Ok(()) | Err(Errno::NOENT) => folder.rename(staged, place),
            refused => refused,
        },
        done => done,
    }
}

/// Renames a file to a place that is free, where the system can tell; else also to one that is not.
fn put_new(folder: &Folder, staged: &str, place: &str) -> Result<(), Errno> {
    match rustix::fs::renameat_with(folder, staged, folder, place, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => folder.rename(staged, place),
        done => done,
    }
}

/// The folder that a place is in.
fn parent(place: &str) -> &str {
    place.rsplit_once('/').map_or("", |(above, _)| above)
}

/// A folder that is a link could lead a journal that came with a data set to places outside of it.
fn refuse_links<'a>(
    folder: &Folder,
    places: impl Iterator<Item = &'a String>,
    staging: &'a str,
) -> Result<()> {
    let above: BTreeSet<&str> = places
        .flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end]))
        .chain([staging])
        .collect();
    for path in above {
        if folder.kind(path)?.is_some_and(FileType::is_symlink) {
            return Err(Error::LinkedFolder {
                path: folder.full(path),
            });
        }
    }
    Ok(())
}

/// Makes the changes in a locked folder that is as `view` says. The maps are in the order of the writes.
///
/// # Errors
/// The system refuses; nothing is changed then, unless the error is [`Error::Unfinished`].
pub(crate) fn change(view: &View<'_>, changes: Changes<'_>, durable: bool) -> Result<Vec<Option<Map>>> {
    let folder = view.folder;
    check_descriptors()?;
    let make = || match folder.make_folder(STAGING) {
        Err(Errno::EXIST) => discard(folder).and_then(|()| {
            folder
                .make_folder(STAGING)
                .map_err(|errno| Error::io("create", folder.full(STAGING), errno))
        }),
        done => done.map_err(|errno| Error::io("write in", &folder.path, errno)),
    };
    make()?;
    let staged = Staged::new(view, changes, durable).and_then(|staged| {
        staged.try_out(folder)?;
        staged.commit(folder, durable)?;
        Ok(staged)
    });
    let staged = staged.inspect_err(|_| {
        // The error at hand is the one to tell; what cannot be removed now goes with the next writer.
        let _ = discard(folder);
    })?;
    let finish = || {
        if durable {
            folder.sync()?;
        }
        carry_out(folder, &staged.journal)?;
        if durable {
            staged.sync(folder)?;
        }
        Ok(())
    };
    finish().map_err(|source: Error| Error::Unfinished {
        path: folder.path.clone(),
        source: Box::new(source),
    })?;
    Ok(staged.maps)
}

/// Changes whose files are all in the staging folder.
struct Staged {
    journal: Journal,
    tried: Tried,
    maps: Vec<Option<Map>>,
    /// The key path of each file, by its name in the staging folder.
    keys: Vec<KeyPath>,
    /// Whether there are committed changes that could not be carried out, whose place these take.
    supersedes: bool,
}

impl Staged {
    fn new(view: &View<'_>, mut changes: Changes<'_>, durable: bool) -> Result<Self> {
        let folder = view.folder;
        rewrite_root(view, &mut changes)?;
        let staging = Folder::open(&folder.full(STAGING))?;
        let names: Vec<String> = (0..changes.writes.len())
            .map(|number| number.to_string())
            .collect();
        let writer = Writer {
            folder: &staging,
            root: &folder.path,
            durable,
            stayed: changes.stayed,
        };
        let maps = writer.write_all(&names, &changes.writes)?;
        let (places, keys): (Vec<_>, Vec<_>) = changes
            .writes
            .into_iter()
            .map(|write| (write.target, write.key))
            .unzip();
        let mut journal = Journal {
            remove_files: changes.removed_files,
            remove_folders: changes.removed_folders,
            make_folders: changes.folders,
            rename: names.into_iter().zip(places).collect(),
        };
        let supersedes = folder.has(COMMITTED)?;
        if supersedes && !view.is_damaged {
            take_over(&mut journal, Journal::committed(folder)?);
        }
        refuse_links(folder, journal.places(), STAGING)?;
        let tried = set_apart(folder, &mut journal)?;
        check_parents(folder, &journal)?;
        let staged = Self {
            journal,
            tried,
            maps,
            keys,
            supersedes,
        };
        staged.write(&staging, durable)?;
        Ok(staged)
    }

    /// Writes what is to be done into the staging folder.
    fn write(&self, staging: &Folder, durable: bool) -> Result<()> {
        let mut texts = vec![(JOURNAL, serde_json::to_vec(&self.journal))];
        if !self.tried.is_empty() {
            texts.push((TRIED, serde_json::to_vec(&self.tried)));
        }
        let writer = Writer {
            folder: staging,
            root: &staging.path,
            durable,
            stayed: Stayed::default(),
        };
        for (name, text) in texts {
            let text = text.map_err(|source| Error::Json {
                path: staging.path.join(name),
                source,
            })?;
            let write = Write {
                target: name.into(),
                source: Source::Owned(text),
                map: false,
                key: KeyPath::default(),
            };
            writer.write_all(&[name.to_owned()], &[write])?;
        }
        if durable {
            staging.sync()?;
        }
        Ok(())
    }

    /// Puts in place what is in nobody's way.
    fn try_out(&self, folder: &Folder) -> Result<()> {
        for made in &self.tried.folders {
            folder
                .make_folder(made)
                .map_err(|errno| refused(folder, made, FOLDER, errno))?;
        }
        for (name, place) in &self.tried.files {
            put_new(folder, &format!("{STAGING}/{name}"), place)
                .map_err(|errno| self.at_key(name, refused(folder, place, FILE, errno)))?;
        }
        Ok(())
    }

    /// An error of a staged file as one of the key that it is for.
    fn at_key(&self, name: &str, error: Error) -> Error {
        let key = name
            .parse::<usize>()
            .ok()
            .and_then(|number| self.keys.get(number));
        match key {
            Some(key) if !key.is_root() => error.at_key(key),
            _ => error,
        }
    }

    fn commit(&self, folder: &Folder, durable: bool) -> Result<()> {
        let fail = |errno| Error::io("write in", &folder.path, errno);
        if durable {
            self.sync(folder)?;
        }
        if self.supersedes {
            // What the old changes had put in place before stays, as it belongs to what these replace.
            if folder.is_folder(COMMITTED)? {
                match folder.unlink(&format!("{COMMITTED}/{TRIED}")) {
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                    Err(errno) => return Err(fail(errno)),
                }
            }
            rustix::fs::renameat_with(folder, STAGING, folder, COMMITTED, RenameFlags::EXCHANGE)
                .map_err(fail)?;
            // What is left of the old ones is in the way of nothing but the next writer, which tries again.
            let _ = folder.remove_all(STAGING);
        } else {
            folder.rename(STAGING, COMMITTED).map_err(fail)?;
        }
        Ok(())
    }

    /// Flushes the folders whose entries change.
    fn sync(&self, folder: &Folder) -> Result<()> {
        let files = self.journal.rename.iter().chain(&self.tried.files);
        let changed: HashSet<&str> = files
            .map(|(_, place)| parent(place))
            .chain(self.tried.folders.iter().map(|made| parent(made)))
            .chain([""])
            .collect();
        for place in changed {
            // Before the commit a file may still be there, and after it again.
            if place.is_empty() || folder.is_folder(place)? {
                folder.sync_below(place)?;
            }
        }
        Ok(())
    }
}

/// Has the metadata of the root written again, as it is, where the changes leave it alone: readers see by it that there were
/// changes.
fn rewrite_root(view: &View<'_>, changes: &mut Changes<'_>) -> Result<()> {
    if changes.writes.iter().any(|write| write.target == META) {
        return Ok(());
    }
    let path = view.folder.full(META);
    match view.open_file(META, false) {
        Ok(file) => changes.writes.push(Write {
            target: META.into(),
            source: Source::Owned(crate::journal::read_all(file, &path)?),
            map: false,
            key: KeyPath::default(),
        }),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(Error::io("open", path, errno)),
    }
    Ok(())
}

/// Adds to a journal what is left to do of one that it takes the place of. What that one has new and this one has not goes.
fn take_over(journal: &mut Journal, old: Journal) {
    let written: HashSet<&str> = journal.rename.iter().map(|(_, place)| place.as_str()).collect();
    let known: HashSet<&str> = journal.remove_files.iter().map(String::as_str).collect();
    let gone = old
        .remove_files
        .into_iter()
        .chain(old.rename.into_iter().map(|(_, place)| place))
        .filter(|place| !written.contains(place.as_str()) && !known.contains(place.as_str()));
    let gone: Vec<String> = gone.collect();
    journal.remove_files.extend(gone);
    journal.remove_folders.extend(old.remove_folders);
    let made: HashSet<String> = journal.make_folders.iter().cloned().collect();
    journal
        .make_folders
        .extend(old.make_folders.into_iter().filter(|place| !made.contains(place)));
}

/// Takes out of a journal what can be put in place before the commit, and checks the places of the rest: no place of a file
/// is a folder, but one that goes with all that is in it, each folder is one, and what is to be replaced can be.
fn set_apart(folder: &Folder, journal: &mut Journal) -> Result<Tried> {
    let device = rustix::fs::fstat(folder)
        .map_err(|errno| Error::io("open", &folder.path, errno))?
        .st_dev;
    let gone = Gone::of(journal, device);
    let mut tried = Tried::default();
    // Folders where a file still is, with those below.
    let mut later: HashSet<String> = HashSet::new();
    for made in std::mem::take(&mut journal.make_folders) {
        if later.contains(parent(&made)) || (gone.files.contains(&made) && !folder.is_folder(&made)?) {
            later.insert(made.clone());
            journal.make_folders.push(made);
            continue;
        }
        match folder.there(&made, folder.stat(&made))? {
            // A link to nowhere is refused by those whose places are in it.
            None => tried.folders.push(made),
            Some(facts) if !FileType::from_raw_mode(facts.st_mode).is_dir() => {
                return Err(in_the_way(folder, &made, FOLDER)?);
            }
            Some(facts) if facts.st_dev != device => {
                return Err(Error::io("write in", folder.full(&made), Errno::XDEV));
            }
            Some(_) => {}
        }
    }
    for (name, place) in std::mem::take(&mut journal.rename) {
        let is_new = !later.contains(parent(&place)) && !check_place(folder, &place, &gone)?;
        // Metadata comes last: where others of it list no members, they are looked for by it.
        let is_metadata = place == META || place.ends_with(&format!("/{META}"));
        if is_new && !is_metadata {
            tried.files.push((name, place));
        } else {
            journal.rename.push((name, place));
        }
    }
    Ok(tried)
}

/// What a change removes, of those on one device.
struct Gone {
    files: HashSet<String>,
    folders: HashSet<String>,
    device: u64,
}

impl Gone {
    fn of(journal: &Journal, device: u64) -> Self {
        Self {
            files: journal.remove_files.iter().cloned().collect(),
            folders: journal.remove_folders.iter().cloned().collect(),
            device,
        }
    }

    /// What keeps the folder `place` there, if anything does: itself, or something in it.
    fn kept(&self, folder: &Folder, place: &str) -> Result<Option<String>> {
        let is_here = |facts: Stat| facts.st_dev == self.device;
        if !self.folders.contains(place) || !folder.facts(place)?.is_some_and(is_here) {
            return Ok(Some(place.to_owned()));
        }
        for name in folder.names(place)? {
            let inside = format!("{place}/{name}");
            let kept = if folder.is_folder(&inside)? {
                self.kept(folder, &inside)?
            } else {
                (!self.files.contains(&inside)).then_some(inside)
            };
            if kept.is_some() {
                return Ok(kept);
            }
        }
        Ok(None)
    }
}

/// What a place is for.
const FILE: &str = "a file";
const FOLDER: &str = "a folder";

/// The error that something that stays is where a file or folder has to be put.
fn in_the_way(folder: &Folder, place: &str, wanted: &'static str) -> Result<Error> {
    let kind = folder.kind(place)?;
    let (found, errno) = match kind {
        Some(kind) if kind.is_dir() => (FOLDER, Errno::ISDIR),
        Some(kind) if kind.is_symlink() => ("a symlink", Errno::EXIST),
        Some(kind) if kind.is_file() => (FILE, Errno::EXIST),
        _ => ("a pipe, socket or device", Errno::EXIST),
    };
    Ok(Error::InTheWay {
        path: folder.full(place),
        wanted,
        found: found.to_owned(),
        errno: if wanted == FOLDER { Errno::NOTDIR } else { errno }.raw_os_error(),
    })
}

/// The error of the system where something is put to a place that was free.
fn refused(folder: &Folder, place: &str, wanted: &'static str, errno: Errno) -> Error {
    match in_the_way(folder, place, wanted) {
        // Another program was faster.
        Ok(error) if errno == Errno::EXIST => error,
        _ => Error::io("create", folder.full(place), errno),
    }
}

/// What is at `place` itself, and whether the system was told that it stays, or the entries of it, where it is a folder.
fn look(folder: &Folder, place: &str) -> Result<Option<(FileType, bool)>> {
    let at = if place.is_empty() { "." } else { place };
    let wanted = StatxFlags::TYPE | StatxFlags::MODE;
    let facts = match rustix::fs::statx(folder, at, AtFlags::SYMLINK_NOFOLLOW, wanted) {
        // Without that call it is not known, and shows when it is done.
        Err(Errno::NOSYS) => return Ok(folder.kind(place)?.map(|kind| (kind, false))),
        facts => folder.there(place, facts)?,
    };
    let known = |facts: Statx| {
        let kind = FileType::from_raw_mode(facts.stx_mode.into());
        (kind, facts.stx_attributes.intersects(FIXED))
    };
    Ok(facts.map(known))
}

/// Whether something is at the place of a file, which must be something that can be replaced, or a folder that goes.
fn check_place(folder: &Folder, place: &str, gone: &Gone) -> Result<bool> {
    let Some((kind, is_fixed)) = look(folder, place)? else {
        return Ok(false);
    };
    if kind.is_dir()
        && let Some(kept) = gone.kept(folder, place)?
    {
        let mut error = in_the_way(folder, place, FILE)?;
        if let Error::InTheWay { found, .. } = &mut error
            && kept != place
        {
            *found = format!("{FOLDER} with {}", folder.full(&kept).display());
        }
        return Err(error);
    }
    if is_fixed {
        return Err(Error::io("replace", folder.full(place), Errno::PERM));
    }
    Ok(true)
}

/// Checks that this process may change the folders in which something is to be replaced or removed.
fn check_parents(folder: &Folder, journal: &Journal) -> Result<()> {
    let mut parents: BTreeSet<&str> = journal.rename.iter().map(|(_, place)| parent(place)).collect();
    for place in &journal.remove_files {
        let Some((kind, is_fixed)) = look(folder, place)? else {
            continue;
        };
        parents.insert(parent(place));
        if !kind.is_dir() && is_fixed {
            return Err(Error::io("replace", folder.full(place), Errno::PERM));
        }
    }
    for place in parents {
        let Some((kind, is_fixed)) = look(folder, place)? else {
            continue;
        };
        if !kind.is_dir() {
            continue;
        }
        folder.check_change(place)?;
        if is_fixed {
            return Err(Error::io("write in", folder.full(place), Errno::PERM));
        }
    }
    let places = journal.rename.iter().map(|(_, place)| place);
    check_owners(folder, places.chain(&journal.remove_files))
}

/// Checks that what is in folders with the sticky bit, which let only the owner of an entry remove it, can be.
fn check_owners<'a>(folder: &Folder, places: impl Iterator<Item = &'a String>) -> Result<()> {
    // For whom this process acts shows by what it made.
    let Some(own) = folder.facts(STAGING)?.map(|facts| facts.st_uid) else {
        return Ok(());
    };
    let is_anothers = |facts: &Stat| facts.st_uid != own;
    let is_sticky = |facts: &Stat| Mode::from_raw_mode(facts.st_mode).contains(Mode::SVTX);
    let mut bound: HashMap<&str, bool> = HashMap::new();
    for place in places {
        let above = parent(place);
        let is_bound = match bound.get(above) {
            Some(known) => *known,
            None => folder
                .facts(above)?
                .is_some_and(|facts| is_sticky(&facts) && is_anothers(&facts)),
        };
        bound.insert(above, is_bound);
        if is_bound && folder.facts(place)?.as_ref().is_some_and(is_anothers) && !owns_all() {
            return Err(Error::io("replace", folder.full(place), Errno::PERM));
        }
    }
    Ok(())
}

/// Whether this thread may act as the owner of files that are somebody else's (`CAP_FOWNER`).
fn owns_all() -> bool {
    const OWNER: u32 = 3;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits >> OWNER & 1 == 1)
}

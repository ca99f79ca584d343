//! What in a folder belongs to the tree that is saved there.

use std::collections::HashSet;

use crate::journal::View;
use crate::metadata::{ATTACHED, Entry, LEAF_SUFFIX, META, Naming, is_inside};
use crate::reader::{join, members};
use crate::{Result, whole};

/// Files and folders of a tree, each level before those below it.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    pub(crate) files: Vec<String>,
    pub(crate) folders: Vec<String>,
}

/// What the tree in the sub-folder `below` owns. A level whose metadata cannot be understood owns nothing that is known, and what
/// is behind a link is somebody else's: their files stay.
///
/// # Errors
/// The system does not let it be looked at.
pub(crate) fn owned(view: &View<'_>, below: &str) -> Result<Owned> {
    let mut found = Owned::default();
    let mut levels = vec![below.to_owned()];
    // A link back to a level above would be followed for ever.
    let mut seen = HashSet::new();
    while let Some(folder) = levels.pop() {
        let facts = view.folder.facts(&folder)?;
        let is_new = facts.is_some_and(|facts| seen.insert((facts.st_dev, facts.st_ino)));
        let is_linked = folder != below && !view.folder.is_folder(&folder)?;
        if !is_new || is_linked {
            continue;
        }
        if let Some(inside) = level(view, &folder, &mut found)? {
            levels.extend(inside);
            if folder != below {
                found.folders.push(folder);
            }
        }
    }
    Ok(found)
}

/// Adds the files of one level and gives the folders of those in it.
fn level(view: &View<'_>, folder: &str, found: &mut Owned) -> Result<Option<Vec<String>>> {
    let Some(meta) = whole::known(whole::metadata(view, folder))? else {
        return Ok(None);
    };
    found.files.push(join(folder, META));
    if !meta.is_plain() {
        for file in ATTACHED.iter().map(|name| join(folder, name)) {
            if view.has(&file)? {
                found.files.push(file);
            }
        }
        let members = members(view, folder, &meta)?;
        return Ok(Some(members.iter().map(|(name, _)| join(folder, name)).collect()));
    }
    let mut inside = Vec::new();
    for (key, entry) in &meta.entries {
        let suffixes: Vec<&str> = match entry {
            Entry::Level(_) => {
                let is_level = |place: &String| view.has(&join(place, META));
                inside.extend(place(folder, key, "", is_level)?);
                continue;
            }
            Entry::Leaf(_) => vec![""],
            Entry::Ragged(ragged) => std::iter::once("")
                .chain(ragged.parts().into_iter().map(|(suffix, _)| suffix))
                .collect(),
        };
        for suffix in suffixes {
            let key = format!("{key}{suffix}");
            found
                .files
                .extend(place(folder, &key, LEAF_SUFFIX, |file| view.has(file))?);
        }
    }
    Ok(Some(inside))
}

/// Where `key` is, by the first of both ways to name it that is there.
fn place(
    folder: &str,
    key: &str,
    suffix: &str,
    is_there: impl Fn(&String) -> Result<bool>,
) -> Result<Option<String>> {
    for naming in [Naming::Robust, Naming::Verbatim] {
        let place = join(folder, &format!("{}{suffix}", naming.name(key)));
        if is_inside(&place) && is_there(&place)? {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

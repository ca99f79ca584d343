//! Folders as one whole: changes that cannot be finished, that are interrupted, and that are made below another level.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tensordict_core::Error;
use tensordict_core::file::{
    SaveLeaf, SaveLevel, SaveOptions, SavePlan, Says, Source, add_leaf, replace_level, save,
};
use tensordict_core::metadata::{Metadata, Naming};
use tensordict_core::reader::{ReadOptions, Tree, read};
use tensordict_core::schema::{DType, LeafSchema};

const OPTIONS: SaveOptions = SaveOptions {
    naming: Naming::Robust,
    copy_existing: false,
    replace: true,
    durable: false,
};

fn level<'a>(parent: Option<usize>, key: &'a str, after: usize, text: Option<&str>) -> SaveLevel<'a> {
    SaveLevel {
        parent,
        key: key.into(),
        kind: "TensorDict".into(),
        meta: match text {
            Some(text) => Metadata::parse(text.as_bytes(), Path::new("text")).unwrap(),
            None => Metadata::plain(vec![2]),
        },
        after,
        files: Vec::new(),
    }
}

fn leaf<'a>(level: usize, key: &'a str, bytes: &'a [u8]) -> SaveLeaf<'a> {
    SaveLeaf {
        level,
        key: key.into(),
        schema: LeafSchema {
            dtype: DType::U8,
            shape: vec![2, bytes.len() as u64 / 2],
        },
        source: Source::Bytes(bytes),
        origin: None,
        says: Says::Schema,
    }
}

/// `{"a": bytes, "n": {"b": bytes}}`
fn plain(bytes: &[u8]) -> SavePlan<'_> {
    SavePlan {
        levels: vec![level(None, "", 0, None), level(Some(0), "n", 1, None)],
        leaves: vec![leaf(0, "a", bytes), leaf(1, "b", bytes)],
    }
}

/// `{"s": a stack of so many {"b": bytes}, "o": an object with a file beside it}`
fn stack(members: &[&'static str], bytes: &'static [u8], object: &str) -> SavePlan<'static> {
    let listed: Vec<String> = members
        .iter()
        .map(|name| format!(r#""{name}": {{}}, "#))
        .collect();
    let listed = listed.concat();
    let mut plan = SavePlan {
        levels: vec![
            level(None, "", 0, None),
            level(Some(0), "s", 0, Some(&format!(r#"{{{listed}"_type": "Stack"}}"#))),
        ],
        leaves: Vec::new(),
    };
    for (number, name) in members.iter().copied().enumerate() {
        plan.levels.push(level(Some(1), name, number, None));
        plan.leaves.push(leaf(number + 2, "b", bytes));
    }
    let mut holder = level(Some(0), "o", members.len(), Some(object));
    holder.files.push(("other.pickle".into(), bytes.to_vec()));
    plan.levels.push(holder);
    plan
}

fn load(path: &Path) -> Result<Tree, Error> {
    read(path, "", ReadOptions::default())
}

fn files(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(folder).unwrap() {
            let item = item.unwrap().path();
            found.push(item.strip_prefix(path).unwrap().to_str().unwrap().to_owned());
            if item.is_dir() {
                folders.push(item);
            }
        }
    }
    found.sort();
    found
}

fn lengths(tree: &Tree) -> Vec<usize> {
    let length = |leaf: &tensordict_core::reader::Leaf| leaf.map.as_ref().unwrap().len();
    tree.leaves.iter().map(length).collect()
}

#[test]
fn a_name_that_no_file_can_have_is_refused_before_anything_changes() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    let before = files(&path);
    let long = "x".repeat(250);
    let longer = "x".repeat(256);
    for (leaf_key, level_key) in [(long.as_str(), "m"), ("z", longer.as_str())] {
        let mut plan = plain(b"bbbb");
        plan.levels[1].key = level_key.into();
        plan.leaves[1].key = leaf_key.into();
        let error = save(&path, &plan, OPTIONS).unwrap_err();
        assert!(!matches!(error, Error::Unfinished { .. }), "{error}");
        assert_eq!(files(&path), before);
        assert_eq!(lengths(&load(&path).unwrap()), [2, 2]);
    }
    let error = add_leaf(
        &path,
        &[level(None, "", 0, None)],
        &leaf(0, &long, b"zz"),
        OPTIONS,
    )
    .unwrap_err();
    assert!(matches!(error, Error::Key { key, .. } if key == [long.clone()]));
    assert_eq!(files(&path), before);
    save(&path, &plain(b"cccc"), OPTIONS).unwrap();
    assert_eq!(lengths(&load(&path).unwrap()), [4, 4]);
}

/// Leaves a committed change behind, of which one place is taken by a folder with something in it.
fn stuck(path: &Path) {
    let committed = path.join(".tensordict-committed");
    fs::create_dir_all(path.join("a.memmap/in-the-way")).unwrap();
    fs::create_dir(&committed).unwrap();
    let meta = r#"{"a": {"shape": [2, 3], "dtype": "torch.uint8"}, "shape": [2], "_type": "T",
        "_class": "tensordict:TensorDict"}"#;
    fs::write(committed.join("0"), b"new new").unwrap();
    fs::write(committed.join("0"), b"newnew").unwrap();
    fs::write(committed.join("1"), meta).unwrap();
    let journal = r#"{"remove_files": ["n/b.memmap", "n/meta.json"], "remove_folders": ["n"], "make_folders": [],
        "rename": [["0", "a.memmap"], ["1", "meta.json"]]}"#;
    fs::write(committed.join("journal.json"), journal).unwrap();
}

#[test]
fn a_change_that_cannot_be_finished_is_read_as_if_it_were_and_the_next_takes_its_place() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    fs::remove_file(path.join("a.memmap")).unwrap();
    stuck(&path);
    for _ in 0..2 {
        let tree = load(&path).unwrap();
        assert_eq!(lengths(&tree), [6]);
        assert_eq!(tree.levels.len(), 1);
    }
    // A part cannot be added, as long as it is so; the whole can be replaced by what keeps out of the way.
    let levels = [level(None, "", 0, None)];
    assert!(matches!(
        add_leaf(&path, &levels, &leaf(0, "z", b"zz"), OPTIONS),
        Err(Error::Io { path: named, .. }) if named.ends_with("a.memmap")
    ));
    let mut plan = plain(b"cccc");
    plan.leaves[0].key = "q".into();
    save(&path, &plan, OPTIONS).unwrap();
    assert_eq!(lengths(&load(&path).unwrap()), [4, 4]);
    let left = [
        "a.memmap",
        "a.memmap/in-the-way",
        "meta.json",
        "n",
        "n/b.memmap",
        "n/meta.json",
        "q.memmap",
    ];
    assert_eq!(files(&path), left);
}

#[test]
fn a_change_that_is_in_the_way_again_is_refused_and_the_committed_one_stays() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    fs::remove_file(path.join("a.memmap")).unwrap();
    stuck(&path);
    assert!(save(&path, &plain(b"cccc"), OPTIONS).is_err());
    assert_eq!(lengths(&load(&path).unwrap()), [6]);
    fs::remove_dir_all(path.join("a.memmap")).unwrap();
    assert_eq!(lengths(&load(&path).unwrap()), [6]);
    assert_eq!(files(&path), ["a.memmap", "meta.json"]);
}

#[test]
fn what_a_killed_writer_put_in_place_goes_unless_its_change_counts() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    for step in 0..3 {
        save(&path, &plain(b"aa"), OPTIONS).unwrap();
        let before = files(&path);
        let staging = path.join(".tensordict-staging");
        fs::create_dir(&staging).unwrap();
        let tried = r#"{"folders": ["m"], "files": [["0", "m/x.memmap"], ["1", "z.memmap"]]}"#;
        // It was killed while it wrote that list, before the second file, or at the end.
        fs::write(
            staging.join("tried.json"),
            &tried[..if step == 0 { 9 } else { tried.len() }],
        )
        .unwrap();
        if step > 0 {
            fs::create_dir(path.join("m")).unwrap();
            fs::write(path.join("m/x.memmap"), b"x").unwrap();
            // That file is somebody else's: ours is still where it was.
            fs::write(path.join("z.memmap"), b"theirs").unwrap();
            fs::write(staging.join("1"), b"z").unwrap();
        }
        assert_eq!(lengths(&load(&path).unwrap()), [2, 2]);
        if step > 0 {
            fs::remove_file(path.join("z.memmap")).unwrap();
        }
        assert_eq!(files(&path), before);
    }
    let staging = path.join(".tensordict-staging");
    fs::create_dir(&staging).unwrap();
    symlink(top.path(), path.join("link")).unwrap();
    fs::write(top.path().join("victim"), b"mine").unwrap();
    for victim in ["link/victim", "../victim"] {
        fs::write(
            staging.join("tried.json"),
            format!(r#"{{"folders": [], "files": [["0", "{victim}"]]}}"#),
        )
        .unwrap();
        assert_eq!(lengths(&load(&path).unwrap()), [2, 2]);
        assert_eq!(fs::read(top.path().join("victim")).unwrap(), b"mine");
    }
}

#[test]
fn members_and_files_of_other_levels_come_and_go_with_the_whole() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    let object = r#"{"_type": "Object", "data": 1180591620717411303424, "text": "\ud800"}"#;
    save(&path, &stack(&["0", "1", "2"], b"aa", object), OPTIONS).unwrap();
    let tree = load(&path).unwrap();
    assert_eq!(lengths(&tree), [2, 2, 2]);
    let holder = tree.levels.iter().find(|level| level.key == "o").unwrap();
    assert_eq!(holder.meta.text.as_deref(), Some(object.as_bytes()));
    assert_eq!(holder.attached, [("other.pickle".to_owned(), b"aa".to_vec())]);
    save(&path, &stack(&["0"], b"bbbb", object), OPTIONS).unwrap();
    assert_eq!(lengths(&load(&path).unwrap()), [4]);
    assert!(!path.join("s/1").exists() && !path.join("s/2").exists());
    save(&path, &plain(b"cc"), OPTIONS).unwrap();
    assert_eq!(
        files(&path),
        ["a.memmap", "meta.json", "n", "n/b.memmap", "n/meta.json"]
    );
}

#[test]
fn more_than_nine_members_come_in_the_order_of_their_numbers() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];
    for listed in [true, false] {
        save(&path, &stack(&names, b"aa", r#"{"_type": "Object"}"#), OPTIONS).unwrap();
        if !listed {
            fs::write(path.join("s/meta.json"), r#"{"_type": "Stack"}"#).unwrap();
        }
        let tree = load(&path).unwrap();
        let members: Vec<&str> = tree
            .levels
            .iter()
            .filter(|level| level.parent == Some(1))
            .map(|level| level.key.as_str())
            .collect();
        assert_eq!(members, names);
    }
}

#[test]
fn a_level_of_another_is_changed_and_read_through_the_whole() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    let root =
        |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path.join("meta.json")).unwrap());
    let before = root(&path);
    add_leaf(
        &path.join("n"),
        &[level(None, "", 0, None)],
        &leaf(0, "z", b"zzzz"),
        OPTIONS,
    )
    .unwrap();
    assert_ne!(
        root(&path),
        before,
        "readers of the whole must see that there was a change"
    );
    let tree = load(&path.join("n")).unwrap();
    assert_eq!(lengths(&tree), [2, 4]);
    assert_eq!(tree.leaves[1].file, "z.memmap");
    assert_eq!(tree.levels[0].folder, "");
    // What is committed in the whole counts for who reads a part of it.
    let committed = path.join(".tensordict-committed");
    fs::create_dir(&committed).unwrap();
    fs::write(committed.join("0"), b"bb").unwrap();
    let journal = r#"{"remove_files": ["n/z.memmap"], "remove_folders": [], "make_folders": [], "rename": [["0", "n/b.memmap"]]}"#;
    fs::write(committed.join("journal.json"), journal).unwrap();
    assert!(load(&path.join("n")).is_err());
    assert!(!committed.exists());
    // A folder in another that does not know it is a whole of its own.
    save(&path.join("extra"), &plain(b"ee"), OPTIONS).unwrap();
    let before = root(&path);
    save(&path.join("extra"), &plain(b"eeee"), OPTIONS).unwrap();
    assert_eq!(root(&path), before);
}

#[test]
fn an_object_is_replaced_with_its_files() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &stack(&["0"], b"aa", r#"{"_type": "Object"}"#), OPTIONS).unwrap();
    let text = br#"{"_type": "Object", "data": 3}"#;
    let meta = || Metadata::parse(text, Path::new("text")).unwrap();
    replace_level(&path.join("o"), &meta(), &[("pickle.pkl".into(), b"p".to_vec())]).unwrap();
    assert!(!path.join("o/other.pickle").exists());
    assert_eq!(fs::read(path.join("o/pickle.pkl")).unwrap(), b"p");
    assert_eq!(fs::read(path.join("o/meta.json")).unwrap(), text);
    replace_level(&path.join("o"), &meta(), &[]).unwrap();
    assert!(!path.join("o/pickle.pkl").exists());
    let gone = replace_level(&path.join("gone"), &meta(), &[]);
    assert!(matches!(gone, Err(Error::Io { .. })));
}

#[test]
fn a_link_to_nowhere_and_a_file_that_lies_about_its_size_are_refused() {
    let top = tempfile::tempdir().unwrap();
    let link = top.path().join("link");
    symlink(top.path().join("nowhere"), &link).unwrap();
    assert!(matches!(
        save(&link, &plain(b"aa"), OPTIONS),
        Err(Error::LinkedFolder { path }) if path == link
    ));
    let path = top.path().join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    let file = fs::File::options()
        .write(true)
        .open(path.join("meta.json"))
        .unwrap();
    if file.set_len(8 << 40).is_ok() {
        assert!(matches!(load(&path), Err(Error::Io { action: "read", .. })));
    }
}

#[test]
fn a_leaf_that_does_not_fit_what_is_there_by_now_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    let before = files(&path);
    let root = || level(None, "", 0, None);
    let three = SaveLeaf {
        schema: LeafSchema {
            dtype: DType::U8,
            shape: vec![3],
        },
        ..leaf(0, "z", b"zzz")
    };
    assert!(matches!(
        add_leaf(&path, &[root()], &three, OPTIONS),
        Err(Error::BatchSize { .. })
    ));
    for (levels, leaf) in [
        (vec![root()], leaf(0, "n", b"zz")),
        (vec![root(), level(Some(0), "a", 0, None)], leaf(1, "z", b"zz")),
    ] {
        assert!(matches!(
            add_leaf(&path, &levels, &leaf, OPTIONS),
            Err(Error::KeyCollision { .. })
        ));
    }
    let mut part = plain(b"aa");
    part.levels[0].meta = Metadata::plain(vec![1]);
    part.leaves.clear();
    part.levels.truncate(1);
    assert!(matches!(
        save(&path.join("n"), &part, OPTIONS),
        Err(Error::BatchSize { .. })
    ));
    let meta = Metadata::parse(br#"{"_type": "Object"}"#, Path::new("text")).unwrap();
    assert!(replace_level(&path.join("n"), &meta, &[]).is_err());
    assert_eq!(files(&path), before);
}

#[test]
fn levels_are_found_by_either_spelling() {
    let top = tempfile::tempdir().unwrap();
    for (saved, added) in [
        (Naming::Robust, Naming::Verbatim),
        (Naming::Verbatim, Naming::Robust),
    ] {
        let path = top.path().join(format!("{saved:?}"));
        let options = |naming| SaveOptions { naming, ..OPTIONS };
        let mut plan = plain(b"aa");
        plan.levels[1].key = "n e".into();
        save(&path, &plan, options(saved)).unwrap();
        let levels = [level(None, "", 0, None), level(Some(0), "n e", 0, None)];
        add_leaf(&path, &levels, &leaf(1, "z", b"zz"), options(added)).unwrap();
        assert_eq!(lengths(&load(&path).unwrap()), [2, 2, 2]);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
    }
}

#[test]
fn a_link_where_a_new_folder_is_made_is_not_followed() {
    let top = tempfile::tempdir().unwrap();
    let home = top.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("thesis"), b"mine").unwrap();
    symlink(&home, top.path().join(".new.tensordict-staging")).unwrap();
    let path = top.path().join("new");
    assert!(load(&path).is_err());
    assert!(matches!(
        save(&path, &plain(b"aa"), OPTIONS),
        Err(Error::LinkedFolder { .. })
    ));
    assert_eq!(fs::read(home.join("thesis")).unwrap(), b"mine");
    // Nor is a folder of ours mistaken for one of a writer that was killed.
    assert!(save(&top.path().join(".x.tensordict-staging"), &plain(b"aa"), OPTIONS).is_err());
    let mut named = plain(b"aa");
    named.levels[1].key = ".x.tensordict-staging".into();
    assert!(matches!(
        save(&path.with_file_name("t"), &named, OPTIONS),
        Err(Error::FileCollision { .. })
    ));
}

#[test]
fn a_level_may_have_fewer_batch_dimensions_than_the_one_it_is_in() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    let mut tree = plain(b"aa");
    tree.levels[1].meta = Metadata::plain(Vec::new());
    save(&path, &tree, OPTIONS).unwrap();
    assert_eq!(load(&path).unwrap().levels[1].meta.shape, Some(Vec::new()));
}

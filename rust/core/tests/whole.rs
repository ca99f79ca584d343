//! Folders as one whole: changes that cannot be finished, that are interrupted, and that are made below another level.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tensordict_core::Error;
use tensordict_core::file::{SaveLeaf, SaveOptions, SavePlan, add_leaf, replace_level, save};
use tensordict_core::metadata::{Metadata, Naming};
use tensordict_core::schema::{DType, LeafSchema};

use common::*;

/// `{"s": a stack of so many {"b": bytes}, "o": an object with a file beside it}`
fn stack(members: &[&'static str], bytes: &'static [u8], object: &str) -> SavePlan<'static> {
    let listed: Vec<String> = members
        .iter()
        .map(|name| format!(r#""{name}": {{}}, "#))
        .collect();
    let listed = listed.concat();
    let mut plan = SavePlan {
        levels: vec![
            level(None, "", 0),
            described(Some(0), "s", 0, &format!(r#"{{{listed}"_type": "Stack"}}"#)),
        ],
        leaves: Vec::new(),
    };
    for (number, name) in members.iter().copied().enumerate() {
        plan.levels.push(level(Some(1), name, number));
        plan.leaves.push(leaf(number + 2, "b", bytes));
    }
    let mut holder = described(Some(0), "o", members.len(), object);
    holder.files.push(("other.pickle".into(), bytes.to_vec()));
    plan.levels.push(holder);
    plan
}

#[test]
fn a_name_that_no_file_can_have_is_refused_before_anything_changes() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    let before = everything(&path);
    let long = "x".repeat(250);
    let longer = "x".repeat(256);
    for (leaf_key, level_key) in [(long.as_str(), "m"), ("z", longer.as_str())] {
        let mut plan = plain(b"bbbb");
        plan.levels[1].key = level_key.into();
        plan.leaves[1].key = leaf_key.into();
        let error = save(&path, &plan, OPTIONS).unwrap_err();
        assert!(!matches!(error, Error::Unfinished { .. }), "{error}");
        assert_eq!(everything(&path), before);
        assert_eq!(lengths(&load(&path).unwrap()), [2, 2]);
    }
    let error = add_leaf(&path, &[level(None, "", 0)], &leaf(0, &long, b"zz"), OPTIONS).unwrap_err();
    assert!(matches!(error, Error::Key { key, .. } if key == long.as_str().into()));
    assert_eq!(everything(&path), before);
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
    let levels = [level(None, "", 0)];
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
    assert_eq!(everything(&path), left);
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
    assert_eq!(everything(&path), ["a.memmap", "meta.json"]);
}

#[test]
fn what_a_killed_writer_put_in_place_goes_unless_its_change_counts() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    for step in 0..3 {
        save(&path, &plain(b"aa"), OPTIONS).unwrap();
        let before = everything(&path);
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
        assert_eq!(everything(&path), before);
    }
    let staging = path.join(".tensordict-staging");
    symlink(top.path(), path.join("link")).unwrap();
    fs::write(top.path().join("victim"), b"mine").unwrap();
    for victim in ["link/victim", "../victim"] {
        fs::create_dir(&staging).unwrap();
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
        everything(&path),
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
        &[level(None, "", 0)],
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
    replace_level(
        &path.join("o"),
        &meta(),
        &[("pickle.pkl".into(), b"p".to_vec())],
        &[],
    )
    .unwrap();
    assert!(!path.join("o/other.pickle").exists());
    assert_eq!(fs::read(path.join("o/pickle.pkl")).unwrap(), b"p");
    assert_eq!(fs::read(path.join("o/meta.json")).unwrap(), text);
    replace_level(&path.join("o"), &meta(), &[], &[]).unwrap();
    assert!(!path.join("o/pickle.pkl").exists());
    let gone = replace_level(&path.join("gone"), &meta(), &[], &[]);
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
    let before = everything(&path);
    let root = || level(None, "", 0);
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
        (vec![root(), level(Some(0), "a", 0)], leaf(1, "z", b"zz")),
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
    assert!(replace_level(&path.join("n"), &meta, &[], &[]).is_err());
    assert_eq!(everything(&path), before);
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
        let levels = [level(None, "", 0), level(Some(0), "n e", 0)];
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
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    assert_eq!(everything(&home), ["thesis"]);
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

/// What another program, or a power cut, can leave in the place of a folder of ours.
const STRANGE: [&str; 12] = [
    "file", "link", "dangling", "socket", "empty", "cut", "garbage", "type", "outside", "folder", "loop",
    "linked",
];

fn leave(path: &Path, name: &str, list: &str, what: &str) {
    let place = path.join(name);
    let elsewhere = path.with_file_name("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::write(elsewhere.join("victim"), "mine").unwrap();
    match what {
        "file" => return fs::write(&place, "theirs").unwrap(),
        "link" => {
            let content =
                r#"{"remove_files": ["a.memmap"], "remove_folders": [], "make_folders": [], "rename": []}"#;
            fs::write(elsewhere.join(list), content).unwrap();
            return symlink(&elsewhere, &place).unwrap();
        }
        "dangling" => return symlink("nowhere", &place).unwrap(),
        "socket" => return drop(std::os::unix::net::UnixListener::bind(&place).unwrap()),
        _ => fs::create_dir(&place).unwrap(),
    }
    fs::write(place.join("unknown"), "theirs").unwrap();
    fs::create_dir_all(place.join("deep/er")).unwrap();
    let file = place.join(list);
    let outside = r#"{"remove_files": ["../elsewhere/victim"], "remove_folders": [], "make_folders": [], "rename": [],
        "folders": [], "files": [["0", "../elsewhere/victim"]]}"#;
    match what {
        "empty" => fs::write(file, "").unwrap(),
        "cut" => fs::write(file, r#"{"remove_files": ["a.mem"#).unwrap(),
        "garbage" => fs::write(file, [0, 255, 7]).unwrap(),
        "type" => fs::write(file, r#"{"remove_files": 3, "folders": {}}"#).unwrap(),
        "outside" => fs::write(file, outside).unwrap(),
        "folder" => fs::create_dir(file).unwrap(),
        "loop" => symlink(list, file).unwrap(),
        _ => {
            symlink(&elsewhere, path.join("way")).unwrap();
            fs::write(file, outside.replace("../elsewhere", "way")).unwrap();
        }
    }
}

#[test]
fn what_others_left_in_the_place_of_our_folders_blocks_nothing_for_good() {
    for (name, list) in [
        (".tensordict-committed", "journal.json"),
        (".tensordict-staging", "tried.json"),
    ] {
        for what in STRANGE {
            let top = tempfile::tempdir().unwrap();
            let path = top.path().join("t");
            let said = format!("{name} {what}");
            save(&path, &plain(b"aa"), OPTIONS).unwrap();
            leave(&path, name, list, what);
            // Nothing of ours is in what is no folder, and what is staged does not count.
            let is_damaged =
                list == "journal.json" && !["file", "link", "dangling", "socket"].contains(&what);
            match load(&path) {
                Err(Error::Damaged { path: named, .. }) if is_damaged => assert_eq!(named, path.join(name)),
                found => assert_eq!(lengths(&found.unwrap()), [2, 2], "{said}"),
            }
            // A part cannot take the place of what is not known.
            let levels = [level(None, "", 0)];
            match add_leaf(&path, &levels, &leaf(0, "z", b"zz"), OPTIONS) {
                Err(Error::Damaged { .. }) if is_damaged => {}
                done => drop(done.unwrap()),
            }
            if is_damaged {
                assert!(matches!(
                    save(&path.join("n"), &plain(b"zz"), OPTIONS),
                    Err(Error::Damaged { .. })
                ));
            }
            save(&path, &plain(b"bbbb"), OPTIONS).unwrap();
            assert_eq!(lengths(&load(&path).unwrap()), [4, 4], "{said}");
            let mut left = everything(&path);
            left.retain(|place| place != "way");
            assert_eq!(
                left,
                ["a.memmap", "meta.json", "n", "n/b.memmap", "n/meta.json"],
                "{said}"
            );
            assert_eq!(fs::read(top.path().join("elsewhere/victim")).unwrap(), b"mine");
        }
    }
}

#[test]
fn what_is_no_folder_beside_a_new_one_is_removed() {
    let top = tempfile::tempdir().unwrap();
    let elsewhere = top.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("victim"), "mine").unwrap();
    let beside = top.path().join(".t.tensordict-staging");
    for what in ["file", "link", "dangling"] {
        match what {
            "file" => fs::write(&beside, "theirs").unwrap(),
            "link" => symlink(&elsewhere, &beside).unwrap(),
            _ => symlink("nowhere", &beside).unwrap(),
        }
        let path = top.path().join("t");
        assert!(load(&path).is_err());
        save(&path, &plain(b"aa"), OPTIONS).unwrap();
        assert_eq!(lengths(&load(&path).unwrap()), [2, 2]);
        assert!(beside.symlink_metadata().is_err());
        fs::remove_dir_all(&path).unwrap();
    }
    assert_eq!(fs::read(elsewhere.join("victim")).unwrap(), b"mine");
}

#[test]
fn a_save_of_a_level_keeps_what_is_committed_in_the_whole() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    let meta = fs::read(path.join("meta.json")).unwrap();
    fs::remove_file(path.join("a.memmap")).unwrap();
    stuck(&path);
    fs::write(path.join(".tensordict-committed/1"), meta).unwrap();
    fs::write(path.join(".tensordict-committed/0"), b"AA").unwrap();
    let journal = r#"{"remove_files": [], "remove_folders": [], "make_folders": [], "rename": [["0", "a.memmap"], ["1", "meta.json"]]}"#;
    fs::write(path.join(".tensordict-committed/journal.json"), journal).unwrap();
    assert_eq!(lengths(&load(&path).unwrap()), [2, 2]);
    let part = SavePlan {
        levels: vec![level(None, "", 0)],
        leaves: vec![leaf(0, "b", b"bbbb")],
    };
    assert!(matches!(
        save(&path.join("n"), &part, OPTIONS),
        Err(Error::Io { path: named, .. }) if named.ends_with("a.memmap")
    ));
    assert_eq!(lengths(&load(&path).unwrap()), [2, 2]);
    fs::remove_dir_all(path.join("a.memmap")).unwrap();
    save(&path.join("n"), &part, OPTIONS).unwrap();
    assert_eq!(lengths(&load(&path).unwrap()), [2, 4]);
    assert_eq!(fs::read(path.join("a.memmap")).unwrap(), b"AA");
}

#[test]
fn metadata_of_other_programs_makes_no_whole() {
    let top = tempfile::tempdir().unwrap();
    let class = "<class 'tensordict._lazy.LazyStackedTensorDict'>";
    for (text, name, is_whole) in [
        (r#"{"_type": "run"}"#.to_owned(), "0", false),
        (r#"{"_type": "run", "0": {"type": "x"}}"#.to_owned(), "0", false),
        (
            r#"{"_type": "<class 'int'>", "stack_dim": 0}"#.to_owned(),
            "0",
            false,
        ),
        (r#"{"_type": "<class 'my.Run'>"}"#.to_owned(), "0", false),
        (r#"{"_type": "run"}"#.to_owned(), "_tensordict", false),
        (r#"{"0": {"type": "x"}}"#.to_owned(), "0", false),
        (r#"{"_type": ["x"], "0": {}}"#.to_owned(), "0", false),
        (format!(r#"{{"_type": "{class}", "stack_dim": 0}}"#), "0", true),
        (format!(r#"{{"_type": "{class}", "stack_dim": 0}}"#), "x", false),
        (
            format!(r#"{{"_type": "{class}", "0": {{"type": "T"}}}}"#),
            "0",
            true,
        ),
        (
            r#"{"_type": "<class '__main__.C'>"}"#.to_owned(),
            "_tensordict",
            true,
        ),
    ] {
        let path = top.path().join("t");
        save(&path.join(name), &plain(b"aa"), OPTIONS).unwrap();
        fs::write(path.join("meta.json"), &text).unwrap();
        let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(path.join("meta.json")).unwrap());
        let before = inode();
        add_leaf(
            &path.join(name),
            &[level(None, "", 0)],
            &leaf(0, "z", b"zz"),
            OPTIONS,
        )
        .unwrap();
        // What belongs to a whole is changed in it, and its metadata is written again.
        assert_eq!(inode() != before, is_whole, "{text} {name}");
        assert_eq!(fs::read(path.join("meta.json")).unwrap(), text.as_bytes());
        fs::remove_dir_all(&path).unwrap();
    }
}

/// A set whose level `n` is a link, and the folder of the set that is behind it.
fn linked(top: &Path, how: &str) -> std::path::PathBuf {
    let other = top.join("other");
    save(&other, &plain(b"xx"), OPTIONS).unwrap();
    let path = top.join("t");
    save(&path, &plain(b"aa"), OPTIONS).unwrap();
    fs::remove_dir_all(path.join("n")).unwrap();
    match how {
        "set" => symlink(&other, path.join("n")).unwrap(),
        "level" => symlink("../other/n", path.join("n")).unwrap(),
        "chain" => {
            symlink("other", top.join("between")).unwrap();
            symlink(top.join("between/n"), path.join("n")).unwrap();
        }
        _ => {
            fs::create_dir(path.join("n")).unwrap();
            fs::copy(other.join("n/meta.json"), path.join("n/meta.json")).unwrap();
            symlink("../../other/n/b.memmap", path.join("n/b.memmap")).unwrap();
        }
    }
    other
}

#[test]
fn what_is_committed_behind_a_link_counts() {
    for how in ["set", "level", "chain", "leaf"] {
        let top = tempfile::tempdir().unwrap();
        let other = linked(top.path(), how);
        let path = top.path().join("t");
        let before = lengths(&load(&path).unwrap()).len();
        let committed = other.join(".tensordict-committed");
        let commit = |journal: &str| {
            fs::create_dir(&committed).unwrap();
            fs::write(committed.join("0"), b"YY").unwrap();
            fs::write(committed.join("journal.json"), journal).unwrap();
        };
        fs::remove_file(other.join("n/b.memmap")).unwrap();
        commit(
            r#"{"remove_files": [], "remove_folders": [], "make_folders": [], "rename": [["0", "n/b.memmap"]]}"#,
        );
        assert_eq!(lengths(&load(&path).unwrap()), vec![2; before], "{how}");
        assert!(!committed.exists());
        assert_eq!(fs::read(other.join("n/b.memmap")).unwrap(), b"YY");
        commit("{");
        assert!(
            matches!(load(&path), Err(Error::Damaged { path, .. }) if path == fs::canonicalize(&committed).unwrap())
        );
        fs::remove_dir_all(&committed).unwrap();
        fs::create_dir_all(other.join("a.memmap/taken")).unwrap_err();
        fs::remove_file(other.join("a.memmap")).unwrap();
        fs::create_dir_all(other.join("a.memmap/taken")).unwrap();
        commit(
            r#"{"remove_files": [], "remove_folders": [], "make_folders": [], "rename": [["0", "a.memmap"]]}"#,
        );
        assert!(matches!(load(&path), Err(Error::Io { path, .. }) if path.ends_with("other/a.memmap")));
    }
}

#[test]
fn a_load_is_of_one_save_also_behind_links() {
    for how in ["set", "level", "chain"] {
        let top = tempfile::tempdir().unwrap();
        let other = linked(top.path(), how);
        let path = top.path().join("t");
        let many = |size: usize| SavePlan {
            levels: vec![level(None, "", 0), level(Some(0), "n", 0)],
            leaves: ["p", "q", "r", "s"]
                .into_iter()
                .map(|key| leaf(1, key, &b"xxxxxx"[..size]))
                .collect(),
        };
        save(&other, &many(2), OPTIONS).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..150 {
                    save(&other, &many(2 + 2 * (turn % 3)), OPTIONS).unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut loads = 0;
            while !done.load(Ordering::Relaxed) || loads < 20 {
                let tree = load(&path).unwrap();
                let of_other: Vec<usize> = lengths(&tree)[1..].to_vec();
                assert_eq!(of_other, vec![of_other[0]; 4]);
                loads += 1;
            }
        });
    }
}

#[test]
fn links_to_each_other_are_waited_for_in_one_order() {
    let top = tempfile::tempdir().unwrap();
    let sets = ["one", "two"].map(|name| top.path().join(name));
    for (number, path) in sets.iter().enumerate() {
        save(path, &plain(b"aa"), OPTIONS).unwrap();
        save(&top.path().join(format!("kept{number}")), &plain(b"aa"), OPTIONS).unwrap();
    }
    for (path, other) in [(&sets[0], &sets[1]), (&sets[1], &sets[0])] {
        fs::remove_dir_all(path.join("n")).unwrap();
        fs::create_dir(path.join("m")).unwrap();
        fs::write(
            path.join("m/meta.json"),
            fs::read(top.path().join("kept0/n/meta.json")).unwrap(),
        )
        .unwrap();
        fs::copy(top.path().join("kept0/n/b.memmap"), path.join("m/b.memmap")).unwrap();
        symlink(other.join("m"), path.join("n")).unwrap();
        let meta = fs::read_to_string(path.join("meta.json")).unwrap();
        let meta = meta.replacen('{', r#"{"m":{"type":"TensorDict"},"#, 1);
        fs::write(path.join("meta.json"), meta).unwrap();
    }
    std::thread::scope(|scope| {
        for path in &sets {
            scope.spawn(move || {
                for _ in 0..100 {
                    let levels = [level(None, "", 0)];
                    add_leaf(path, &levels, &leaf(0, "z", b"zz"), OPTIONS).unwrap();
                }
            });
            for _ in 0..2 {
                scope.spawn(move || {
                    for _ in 0..100 {
                        load(path).unwrap();
                    }
                });
            }
        }
    });
}

#[test]
fn what_is_behind_a_link_stays_when_the_level_goes() {
    let top = tempfile::tempdir().unwrap();
    let other = linked(top.path(), "set");
    let before = everything(&other);
    let path = top.path().join("t");
    let plan = SavePlan {
        levels: vec![level(None, "", 0)],
        leaves: vec![leaf(0, "a", b"AAAA")],
    };
    assert!(save(&path, &plain(b"cc"), OPTIONS).is_err());
    save(&path, &plan, OPTIONS).unwrap();
    assert_eq!(lengths(&load(&path).unwrap()), [4]);
    assert_eq!(everything(&other), before);
    assert_eq!(everything(&path), ["a.memmap", "meta.json", "n"]);
}

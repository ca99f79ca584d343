//! Saving and reading folders, with what is broken, hostile or interrupted.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::Path;

use tensordict_core::Error;
use tensordict_core::file::{Origin, SaveOptions, SavePlan, Stayed, add_leaf, save};
use tensordict_core::memmap::FileId;
use tensordict_core::metadata::Naming;
use tensordict_core::reader::{Found, Tree};

use common::*;

fn origin(path: &Path) -> Origin {
    Origin {
        path: path.into(),
        file: FileId::at(path),
        shared: true,
    }
}

/// `{"a": a, "n": {"b": b}, "c": "cc"}`
fn sample<'a>(a: &'a [u8], b: &'a [u8]) -> SavePlan<'a> {
    SavePlan {
        levels: vec![level(None, "", 0), level(Some(0), "n", 1)],
        leaves: vec![leaf(0, "a", a), leaf(1, "b", b), leaf(0, "c", b"cc")],
    }
}

fn text(tree: &Tree) -> String {
    fn level(tree: &Tree, number: usize) -> String {
        let level_ = &tree.levels[number];
        let fields = level_
            .meta
            .entries
            .iter()
            .zip(&level_.fields)
            .map(|((key, _), field)| match field {
                Found::Level(below) => format!("{key}:{{{}}}", level(tree, *below)),
                Found::Ragged(_) => format!("{key}:ragged"),
                Found::Leaf(leaf) => {
                    let leaf = &tree.leaves[*leaf];
                    format!(
                        "{key}:{}",
                        leaf.map.as_ref().map_or(0, tensordict_core::memmap::Map::len)
                    )
                }
            });
        fields.collect::<Vec<_>>().join(",")
    }
    level(tree, 0)
}

#[test]
fn a_new_folder_is_read_back_in_order() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("x/y");
    let saved = save(&path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    assert!(saved.iter().all(|leaf| leaf.map.is_some()));
    assert_eq!(text(&load(&path).unwrap()), "a:4,n:{b:2},c:2");
    assert_eq!(
        files(top.path()),
        [
            "x/y/a.memmap",
            "x/y/c.memmap",
            "x/y/meta.json",
            "x/y/n/b.memmap",
            "x/y/n/meta.json"
        ]
    );
    assert_eq!(fs::read(path.join("a.memmap")).unwrap(), b"aaaa");
}

#[test]
fn what_is_replaced_goes_and_what_is_not_ours_stays() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path();
    save(path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    let plan = SavePlan {
        levels: vec![level(None, "", 0)],
        leaves: vec![leaf(0, "a", b"AA")],
    };
    save(path, &plan, OPTIONS).unwrap();
    assert_eq!(text(&load(path).unwrap()), "a:2");
    assert_eq!(files(path), ["a.memmap", "meta.json", "notes.txt"]);
    assert!(!path.join("n").exists());
}

#[test]
fn a_mapped_file_in_its_place_is_left_alone() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path();
    save(path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    let mut plan = sample(b"aaaa", b"BB");
    plan.leaves[0].origin = Some(origin(&path.join("a.memmap")));
    plan.leaves[1].origin = Some(origin(&path.join("a.memmap")));
    let error = save(path, &plan, OPTIONS).unwrap_err().to_string();
    assert!(
        error.contains("(\"n\", \"b\")") && error.contains("a.memmap"),
        "{error}"
    );
    let mut plan = sample(b"aaaa", b"BB");
    plan.leaves[0].origin = Some(origin(&path.join("a.memmap")));
    let saved = save(path, &plan, OPTIONS).unwrap();
    let mapped: Vec<bool> = saved.iter().map(|leaf| leaf.map.is_some()).collect();
    assert_eq!(mapped, [false, true, true]);
    assert_eq!(fs::read(path.join("n/b.memmap")).unwrap(), b"BB");
}

#[test]
fn bytes_that_did_not_stay_are_not_saved() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    let moved = || false;
    let options = SaveOptions {
        stayed: Stayed::asked(&moved),
        ..OPTIONS
    };
    assert!(matches!(
        save(&path, &sample(b"aaaa", b"bb"), options),
        Err(Error::Moved)
    ));
    assert!(files(top.path()).is_empty());
    save(&path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    let before = files(&path);
    assert!(matches!(
        save(&path, &sample(b"AAAA", b"BB"), options),
        Err(Error::Moved)
    ));
    assert_eq!(files(&path), before);
    save(&path, &sample(b"AAAA", b"BB"), OPTIONS).unwrap();
    assert_eq!(fs::read(path.join("n/b.memmap")).unwrap(), b"BB");
}

#[test]
fn a_refused_save_changes_nothing() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    let before = files(&path);
    let keep = SaveOptions {
        replace: false,
        ..OPTIONS
    };
    assert!(matches!(
        save(&path, &sample(b"aaaa", b"bb"), keep),
        Err(Error::Key { .. })
    ));
    for key in ["..", "x/y", "", "."] {
        let verbatim = SaveOptions {
            naming: Naming::Verbatim,
            ..OPTIONS
        };
        let mut plan = sample(b"AAAA", b"BB");
        plan.levels[1].key = key.into();
        assert!(save(&path, &plan, verbatim).is_err(), "{key:?}");
    }
    for (kind, key) in [
        ("level", "meta.json"),
        ("level", "a.memmap"),
        ("level", ".tensordict-staging"),
        ("leaf", "a"),
    ] {
        let mut plan = sample(b"AAAA", b"BB");
        match kind {
            "level" => plan.levels[1].key = key.into(),
            _ => plan.leaves[2].key = key.into(),
        }
        assert!(
            matches!(save(&path, &plan, OPTIONS), Err(Error::FileCollision { .. })),
            "{key:?}"
        );
    }
    fs::create_dir(path.join("z.memmap")).unwrap();
    let mut plan = sample(b"AAAA", b"BB");
    plan.leaves[2].key = "z".into();
    assert!(save(&path, &plan, OPTIONS).is_err());
    fs::remove_dir(path.join("z.memmap")).unwrap();
    assert_eq!(files(&path), before);
    assert_eq!(fs::read(path.join("a.memmap")).unwrap(), b"aaaa");
}

#[test]
fn broken_files_are_errors_that_name_path_and_key() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path();
    let broken = |harm: &dyn Fn(&Path)| {
        save(path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
        harm(&path.join("n/b.memmap"));
        let error = load(path).unwrap_err().to_string();
        assert!(
            error.contains("(\"n\", \"b\")") && error.contains("n/b.memmap"),
            "{error}"
        );
        let _ = fs::remove_file(path.join("n/b.memmap"));
        let _ = fs::remove_dir(path.join("n/b.memmap"));
    };
    broken(&|file| fs::write(file, b"b").unwrap());
    broken(&|file| fs::write(file, b"bbb").unwrap());
    broken(&|file| fs::remove_file(file).unwrap());
    broken(&|file| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    });
    broken(&|file| {
        fs::remove_file(file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", file).unwrap();
    });
    save(path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    fs::remove_dir_all(path.join("n")).unwrap();
    assert!(load(path).unwrap_err().to_string().starts_with("\"n\": "));
    std::os::unix::fs::symlink(path, path.join("n")).unwrap();
    assert!(
        load(path)
            .unwrap_err()
            .to_string()
            .starts_with("\"n\": cannot read")
    );
    fs::remove_file(path.join("meta.json")).unwrap();
    assert!(matches!(load(path), Err(Error::NoMetadata { .. })));
}

#[test]
fn a_killed_save_is_cleaned_or_finished() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    let before = files(&path);
    // Killed while staging.
    let staging = path.join(".tensordict-staging");
    fs::create_dir(&staging).unwrap();
    fs::write(staging.join("0"), b"AAAA").unwrap();
    assert_eq!(text(&load(&path).unwrap()), "a:4,n:{b:2},c:2");
    assert_eq!(files(&path), before);
    assert!(!staging.exists());
    // Killed after the commit, with one part carried out and one not.
    let committed = path.join(".tensordict-committed");
    fs::create_dir(&committed).unwrap();
    fs::write(committed.join("0"), b"AAAA").unwrap();
    let journal = r#"{"remove_files": ["c.memmap"], "remove_folders": [], "make_folders": ["n"],
        "rename": [["0", "a.memmap"], ["1", "n/b.memmap"]]}"#;
    fs::write(committed.join("journal.json"), journal).unwrap();
    assert!(
        matches!(load(&path), Err(Error::Key { .. })),
        "the file of c went and its entry stayed"
    );
    assert_eq!(fs::read(path.join("a.memmap")).unwrap(), b"AAAA");
    assert!(!committed.exists());
    // Killed while making a new folder.
    let beside = top.path().join(".u.tensordict-staging");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("a.memmap"), b"A").unwrap();
    assert!(load(&top.path().join("u")).is_err());
    assert!(!beside.exists());
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("zz.memmap"), b"A").unwrap();
    save(&top.path().join("u"), &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    assert_eq!(files(&top.path().join("u")).len(), 5);
    assert!(!beside.exists());
}

#[test]
fn a_hostile_journal_cannot_leave_the_folder() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    let victim = top.path().join("victim");
    for journal in [
        r#"{"remove_files": ["../victim"], "remove_folders": [], "make_folders": [], "rename": []}"#,
        r#"{"remove_files": ["link/victim"], "remove_folders": [], "make_folders": [], "rename": []}"#,
        r#"{"remove_files": [], "remove_folders": [], "make_folders": [], "rename": [["0", "../victim"]]}"#,
        r#"{"remove_files": [], "remove_folders": [], "make_folders": [], "rename": [["../../victim", "a"]]}"#,
        r#"{"remove_files": [], "remove_folders": [], "make_folders": ["/tmp/x"], "rename": []}"#,
    ] {
        save(&path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(top.path(), path.join("link")).unwrap();
        fs::create_dir(path.join(".tensordict-committed")).unwrap();
        fs::write(path.join(".tensordict-committed/0"), "x").unwrap();
        fs::write(path.join(".tensordict-committed/journal.json"), journal).unwrap();
        assert!(load(&path).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_leaf_is_added_with_the_levels_it_needs() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    let empty = SavePlan {
        levels: vec![level(None, "", 0)],
        leaves: Vec::new(),
    };
    let add = |key, bytes| {
        add_leaf(
            &path,
            &[level(None, "", 0), level(Some(0), "n", 0)],
            &leaf(1, key, bytes),
            OPTIONS,
        )
    };
    // A folder that was moved or removed is not made again, as a set of that leaf alone.
    assert!(add("a", b"aa").is_err());
    assert!(!path.exists());
    save(&path, &empty, OPTIONS).unwrap();
    for (key, bytes) in [("a", b"aaaa".as_slice()), ("b", b"bb"), ("a", b"AA")] {
        let levels = [level(None, "", 0), level(Some(0), "n", 0)];
        add_leaf(&path, &levels, &leaf(1, key, bytes), OPTIONS).unwrap();
    }
    assert_eq!(text(&load(&path).unwrap()), "n:{a:2,b:2}");
    let keep = SaveOptions {
        replace: false,
        ..OPTIONS
    };
    assert!(
        add_leaf(
            &path,
            &[level(None, "", 0), level(Some(0), "n", 0)],
            &leaf(1, "a", b"zz"),
            keep
        )
        .is_err()
    );
    assert_eq!(fs::read(path.join("n/a.memmap")).unwrap(), b"AA");
}

#[test]
fn mutated_metadata_is_read_or_refused() {
    use proptest::prelude::*;
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    save(&path, &sample(b"aaaa", b"bb"), OPTIONS).unwrap();
    let good = fs::read(path.join("meta.json")).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(10_000)
        },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let edit = (
        any::<prop::sample::Index>(),
        0..4_usize,
        "[-0-9\\[\\]{}\",:a-z.e/]{0,6}",
    );
    let edits = prop::collection::vec(edit, 1..4);
    let result = runner.run(&edits, |edits| {
        let mut mutated = good.clone();
        for (place, cut, text) in &edits {
            let start = place.index(mutated.len());
            let end = (start + cut).min(mutated.len());
            mutated.splice(start..end, text.bytes());
            if mutated.is_empty() {
                mutated.push(b' ');
            }
        }
        fs::write(path.join("meta.json"), &mutated).unwrap();
        if let Ok(tree) = load(&path) {
            for leaf in &tree.leaves {
                let bytes = leaf.schema.bytes().unwrap();
                prop_assert_eq!(leaf.map.as_ref().map_or(0, |map| map.len() as u64), bytes);
            }
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn writers_and_readers_at_once_see_one_state() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    let sizes = [2_usize, 4];
    save(&path, &sample(b"aa", b"aa"), OPTIONS).unwrap();
    std::thread::scope(|scope| {
        for size in sizes {
            let path = &path;
            scope.spawn(move || {
                let bytes = vec![b'x'; size];
                for _ in 0..50 {
                    save(path, &sample(&bytes, &bytes), OPTIONS).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let tree = load(&path).unwrap();
                    let lengths: Vec<usize> = tree
                        .leaves
                        .iter()
                        .map(|leaf| leaf.map.as_ref().unwrap().len())
                        .collect();
                    let a = tree.leaves.iter().position(|leaf| leaf.key == "a").unwrap();
                    let b = tree.leaves.iter().position(|leaf| leaf.key == "b").unwrap();
                    assert_eq!(lengths[a], lengths[b]);
                }
            });
        }
    });
    assert_eq!(files(&path).len(), 5);
}

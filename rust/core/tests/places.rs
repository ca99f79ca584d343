//! Places that cannot be looked at, that are taken, and that entries of another kind had.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;

use tensordict_core::Error;
use tensordict_core::file::{SaveOptions, SavePlan, save};

use common::*;

/// What the system says of an error.
fn errno(error: &Error) -> Option<i32> {
    match error {
        Error::Io { source, .. } => source.raw_os_error(),
        Error::Key { source, .. } | Error::Unfinished { source, .. } => errno(source),
        _ => None,
    }
}

#[test]
fn what_the_system_does_not_let_be_looked_at_refuses_a_save() {
    // A link to itself is what the system gives an error for, as for a disk that fails.
    for place in ["meta.json", "n/meta.json", "n"] {
        for whole in [true, false] {
            let top = tempfile::tempdir().unwrap();
            let path = top.path().join("t");
            save(&path, &plain(b"aa"), OPTIONS).unwrap();
            let aside = top.path().join("aside");
            fs::rename(path.join(place), &aside).unwrap();
            let name = path.join(place);
            symlink(name.file_name().unwrap(), &name).unwrap();
            let before = everything(&path);
            let plan = SavePlan {
                levels: vec![level(None, "", 0)],
                leaves: vec![leaf(0, "z", b"zz")],
            };
            let target = if whole { path.clone() } else { path.join("n") };
            let said = save(&target, &plan, OPTIONS).unwrap_err();
            assert_eq!(
                errno(&said),
                Some(rustix::io::Errno::LOOP.raw_os_error()),
                "{said}"
            );
            assert!(said.to_string().contains(&*name.to_string_lossy()), "{said}");
            assert_eq!(everything(&path), before);
            // As soon as it can be looked at again, what goes is known.
            fs::remove_file(&name).unwrap();
            fs::rename(&aside, &name).unwrap();
            assert_eq!(lengths(&load(&path).unwrap()), [2, 2]);
            save(&path, &plan, OPTIONS).unwrap();
            assert_eq!(everything(&path), ["meta.json", "z.memmap"]);
        }
    }
}

#[test]
fn what_is_in_the_way_is_named() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("t");
    let mut old = plain(b"aa");
    old.levels.push(level(Some(0), "q.memmap", 2));
    old.leaves.push(leaf(2, "c", b"aa"));
    save(&path, &old, OPTIONS).unwrap();
    fs::create_dir(path.join("z.memmap")).unwrap();
    fs::write(path.join("m"), "theirs").unwrap();
    fs::write(path.join("q.memmap/theirs"), "theirs").unwrap();
    drop(std::os::unix::net::UnixListener::bind(path.join("s")).unwrap());
    let before = everything(&path);
    let inside = path.join("q.memmap/theirs");
    let inside = format!("a folder with {}", inside.display());
    for (key, is_leaf, place, stands) in [
        ("z", true, "z.memmap", "a folder"),
        ("q", true, "q.memmap", inside.as_str()),
        ("m", false, "m", "a file"),
        ("s", false, "s", "a pipe, socket or device"),
    ] {
        let mut plan = plain(b"bb");
        if is_leaf {
            plan.leaves.push(leaf(0, key, b"bb"));
        } else {
            plan.levels.push(level(Some(0), key, 2));
        }
        let said = save(&path, &plan, OPTIONS).unwrap_err();
        let text = said.to_string();
        assert!(
            matches!(&said, Error::InTheWay { path: named, found, .. } if *named == path.join(place) && found == stands),
            "{said}"
        );
        assert!(
            text.contains("move it away or remove it") && !text.contains("exists"),
            "{said}"
        );
        assert_eq!(everything(&path), before);
        assert_eq!(lengths(&load(&path).unwrap()), [2, 2, 2]);
    }
    let nowhere = top.path().join("nowhere");
    symlink("not there", &nowhere).unwrap();
    assert!(matches!(
        save(&nowhere.join("t"), &plain(b"aa"), OPTIONS),
        Err(Error::LinkedFolder { path }) if path == nowhere
    ));
}

/// A tree in which `x` is a leaf, a level, an object, or not there; beside another entry.
fn kinds(of: &'static str, bytes: &'static [u8]) -> SavePlan<'static> {
    let mut plan = SavePlan {
        levels: vec![level(None, "", 1)],
        leaves: vec![leaf(0, "beside", bytes)],
    };
    let (what, key) = of.split_once(' ').unwrap();
    match what {
        "leaf" => plan.leaves.push(leaf(0, key, bytes)),
        "level" => {
            plan.levels.push(level(Some(0), key, 1));
            plan.levels.push(level(Some(1), "deep", 1));
            plan.levels.push(level(Some(1), "other.pickle", 2));
            plan.leaves.push(leaf(2, "c", bytes));
            plan.leaves.push(leaf(3, "c", bytes));
        }
        "object" => {
            let mut holder = described(Some(0), key, 1, r#"{"_type": "Object"}"#);
            holder.files.push(("other.pickle".into(), bytes.to_vec()));
            plan.levels.push(holder);
        }
        _ => {}
    }
    plan
}

#[test]
fn an_entry_of_one_kind_takes_the_place_of_one_of_another() {
    let all = [
        "leaf x",
        "leaf x.memmap",
        "level x",
        "level x.memmap",
        "level x.memmap.memmap",
        "object x",
        "object x.memmap",
        "no x",
    ];
    for old in all {
        for new in all {
            for durable in [false, true] {
                let top = tempfile::tempdir().unwrap();
                let (path, fresh) = (top.path().join("t"), top.path().join("fresh"));
                let options = SaveOptions { durable, ..OPTIONS };
                save(&path, &kinds(old, b"aa"), options).unwrap();
                save(&path, &kinds(new, b"bbbb"), options).unwrap();
                save(&fresh, &kinds(new, b"bbbb"), options).unwrap();
                assert_eq!(everything(&path), everything(&fresh), "{new} over {old}");
                let (found, wanted) = (load(&path).unwrap(), load(&fresh).unwrap());
                assert_eq!(lengths(&found), lengths(&wanted), "{new} over {old}");
                assert_eq!(
                    found
                        .levels
                        .iter()
                        .map(|level| &level.attached)
                        .collect::<Vec<_>>(),
                    wanted
                        .levels
                        .iter()
                        .map(|level| &level.attached)
                        .collect::<Vec<_>>()
                );
            }
        }
    }
}

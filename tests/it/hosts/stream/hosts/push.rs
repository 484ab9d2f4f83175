//! `--push`: this gpuwatch copies itself to a machine that lacks it.

use super::Machines;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
};

/// The copies on a machine.
fn copies(machines: &Machines, name: &str) -> Vec<PathBuf> {
    let folder = machines.path(name).join("cache/gpuwatch/bin");
    let mut all: Vec<_> = fs::read_dir(folder).into_iter().flatten().map(|it| it.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn a_gpuwatch_copies_itself_once_verifies_the_copy_and_writes_over_no_other_file() {
    let machines = Machines::new();
    let _rank = machines.rank("node1", &[]);
    let link = |host: &str| {
        let output = machines.pushing(&["once", "--hosts", host, "--wait", "120s", "--json"]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (json["nodes"][0]["link"].clone(), json["nodes"][0]["why"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(link("node1"), ("up".into(), String::new()));
    let first = copies(&machines, "node1");
    let [copy] = &first[..] else { panic!("{first:?}") };
    let about = fs::metadata(copy).unwrap();
    assert_eq!((about.permissions().mode() & 0o777, about.len()), (0o700, fs::metadata(super::PROGRAM).unwrap().len()));
    assert_eq!(link("node1"), ("up".into(), String::new()));
    assert_eq!(fs::metadata(copy).unwrap().ino(), about.ino());
    assert_eq!(copies(&machines, "node1"), first);

    // A file with the copy's name and another content stays.
    let name = copy.file_name().unwrap().to_owned();
    let folder = machines.path("node2").join("cache/gpuwatch/bin");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(&name), "mine\n").unwrap();
    let (state, why) = link("node2");
    assert!(state == "refused" && why.contains("is not written over: remove it"), "{why}");
    assert_eq!(fs::read_to_string(folder.join(&name)).unwrap(), "mine\n");

    // Machines that cannot run it, and one whose disk is full.
    for (name, program, script, words) in [
        ("arm", "uname", "[ $1 = -s ] && echo Linux || echo aarch64", "it is Linux aarch64, this gpuwatch is for"),
        ("old", "getconf", "echo glibc 2.3", "it has glibc 2.3, this gpuwatch needs glibc 2."),
        ("musl", "getconf", "exit 1", "it has no glibc, this gpuwatch needs"),
        ("full", "dd", "cat >/dev/null; echo 'dd: no space left' >&2; exit 1", "no space left"),
    ] {
        machines.program(&format!("{name}/bin/{program}"), &format!("#!/bin/sh\n{script}\n"));
        let (state, why) = link(name);
        assert!(state == "refused" && why.contains(words), "{name}: {why}");
    }
    let (state, why) = {
        machines.faulty("banner", "cat >/dev/null; echo Welcome");
        link("banner")
    };
    assert!(state == "refused" && why.contains("answers nothing"), "{why}");
}

#[test]
fn a_copy_lies_where_no_other_user_can_exchange_it() {
    let machines = Machines::new();
    let _rank = machines.rank("node1", &[]);
    let link = || {
        let output = machines.pushing(&["once", "--hosts", "node1", "--wait", "120s", "--json"]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (json["nodes"][0]["link"].clone(), json["nodes"][0]["why"].as_str().unwrap_or_default().to_owned())
    };
    let set = |folder: &str, mode| {
        fs::create_dir_all(machines.path("node1").join(folder)).unwrap();
        fs::set_permissions(machines.path("node1").join(folder), fs::Permissions::from_mode(mode)).unwrap();
    };
    // Its group may write above the first place, and anybody in the second: a sticky folder protects what is below it,
    // but cannot be the place itself.
    for (cache, tmp) in [(0o775, 0o777), (0o777, 0o770), (0o2775, 0o702)] {
        set("cache", cache);
        set("tmp", tmp);
        let (state, why) = link();
        assert!(
            state == "refused" && why.contains("node1/cache (chmod go-w") && why.contains("node1/tmp (chmod"),
            "{why}"
        );
    }
    assert_eq!(copies(&machines, "node1").len(), 0);
    set("tmp", 0o1777);
    assert_eq!(link(), ("up".into(), String::new()));
    let uid = fs::metadata(machines.path("node1")).unwrap().uid();
    let folder = machines.path("node1").join(format!("tmp/gpuwatch-cache-{uid}/bin"));
    assert_eq!((copies(&machines, "node1").len(), fs::read_dir(&folder).unwrap().count()), (0, 1));
    // A place that is safe through a link is used without the link.
    set("safe", 0o700);
    fs::remove_dir_all(machines.path("node1").join("cache")).unwrap();
    std::os::unix::fs::symlink("safe", machines.path("node1").join("cache")).unwrap();
    assert_eq!(link(), ("up".into(), String::new()));
    assert_eq!(copies(&machines, "node1").len(), 1);
}

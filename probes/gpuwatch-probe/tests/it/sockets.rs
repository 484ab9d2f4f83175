//! Sockets of a probe: their directories, their names, and their removal.

use crate::{
    client::{Client, eventually, field},
    server::{private_dir, push_all, start_in, started},
};
use gpuwatch_probe::{Description, Probe, socket};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    process,
};

#[test]
fn directories_of_others_are_not_used() {
    let dir = private_dir();
    let at = |name: &str| dir.path().join(name);
    let open = at("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(dir.path(), at("link")).unwrap();
    fs::write(at("file"), "").unwrap();
    assert_eq!(socket::check(&at("none")), Err(socket::Reason::Missing));
    assert_eq!(socket::check(&at("link")), Err(socket::Reason::Symlink));
    assert_eq!(socket::check(&at("file")), Err(socket::Reason::NotADirectory));
    assert_eq!(socket::check(&open), Err(socket::Reason::Mode(0o755)));
    let owner = dir.path().metadata().unwrap().uid();
    assert_eq!(socket::check_owner(dir.path(), owner + 1), Err(socket::Reason::Foreign(owner)));
    assert_eq!(socket::check(dir.path()), Ok(()));

    let probe = start_in(&[open.clone(), at("link"), at("file"), at("deep/new")]);
    assert_eq!(probe.socket().parent(), Some(at("deep/new").as_path()));
    let refused = Probe::start(Description { directories: vec![open, at("link")], ..Description::default() });
    let why = refused.err().expect("nowhere to listen").to_string();
    assert!(why.contains("0755") && why.contains("symbolic link") && why.contains("GPUWATCH_SOCKET_DIR"), "{why}");
}

#[test]
fn the_socket_is_its_owners_alone_and_nothing_else_is_left() {
    let (probe, dir) = started();
    let mode = fs::symlink_metadata(probe.socket()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(names(dir.path()), [format!("{}.sock", process::id())]);
    drop(probe);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_path_longer_than_an_address_works() {
    let dir = private_dir();
    let long = dir.path().join("d".repeat(120)).join("e".repeat(120));
    let probe = start_in(&[long]);
    assert!(probe.socket().as_os_str().len() > 240);
    push_all(&probe, 1..=3);
    Client::connect(&probe.socket()).until(|it| field(it, "step") == Some(3));
    assert!(!socket::is_stale(&probe.socket()));
    probe.stop("test");
    assert!(!probe.socket().exists());
}

#[test]
fn stale_sockets_go_and_living_ones_stay() {
    let dir = private_dir();
    let taken = dir.path().join(format!("{}.sock", process::id()));
    let gone = gone();
    drop(UnixListener::bind(dir.path().join(format!("{gone}.sock"))).unwrap());
    drop(UnixListener::bind(dir.path().join(format!(".{gone}.1700.tmp"))).unwrap());
    let living = UnixListener::bind(&taken).unwrap();
    let probe = start_in(&[dir.path().to_owned()]);
    assert_eq!(probe.socket(), dir.path().join(format!("{}.1.sock", process::id())));
    assert_eq!(names(dir.path()), [format!("{}.1.sock", process::id()), format!("{}.sock", process::id())]);
    drop(probe);
    drop(living);
    // A child that another test starts has it too, until it runs its program.
    eventually("nobody listens", || socket::is_stale(&taken));
    assert_eq!(start_in(&[dir.path().to_owned()]).socket(), taken);
}

/// Returns the pid of a process that has ended.
fn gone() -> u32 {
    let mut child = process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn nothing_of_the_users_is_removed() {
    let dir = private_dir();
    let at = |name: &str| dir.path().join(name);
    let (gone, own) = (gone(), process::id());
    let files = ["notes.sock".into(), "notes.tmp".into(), format!("{gone}.sock"), format!(".{gone}.5.tmp")];
    let own_name = format!("{own}.sock");
    for name in files.iter().chain([&own_name]) {
        fs::write(at(name), "the user's").unwrap();
    }
    let pipe = format!("{gone}.1.sock");
    assert!(process::Command::new("mkfifo").arg(at(&pipe)).status().unwrap().success());
    symlink(at("notes.sock"), at(&format!("{gone}.2.sock"))).unwrap();
    // Sockets of other programs, and of a process that certainly runs.
    for name in ["database.sock", "1.7.sock"] {
        drop(UnixListener::bind(at(name)).unwrap());
    }
    let before = names(dir.path());
    let probe = start_in(&[dir.path().to_owned()]);
    assert_eq!(probe.socket(), at(&format!("{own}.1.sock")), "a file has the first name");
    drop(probe);
    assert_eq!(names(dir.path()), before);
    for name in files.iter().chain([&own_name]) {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), "the user's", "{name}");
    }
}

#[test]
fn a_file_that_took_the_sockets_name_stays() {
    let (probe, _dir) = started();
    let path = probe.socket();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "the user's").unwrap();
    drop(probe);
    assert_eq!(fs::read_to_string(&path).unwrap(), "the user's");
}

#[test]
fn a_directory_that_takes_no_socket_leads_to_the_next() {
    let (full, next) = (private_dir(), private_dir());
    let pid = process::id();
    let names = (0..64).map(|n| if n == 0 { format!("{pid}.sock") } else { format!("{pid}.{n}.sock") });
    let _taken: Vec<_> = names.map(|it| UnixListener::bind(full.path().join(it)).unwrap()).collect();
    let probe = start_in(&[full.path().to_owned(), next.path().to_owned()]);
    assert_eq!(probe.socket().parent(), Some(next.path()));
    let refused = Probe::start(Description { directories: vec![full.path().into()], ..Description::default() });
    let why = refused.err().expect("nowhere to listen").to_string();
    assert!(why.contains("is taken") && why.contains("GPUWATCH_SOCKET_DIR"), "{why}");
}

#[test]
fn a_socket_that_vanished_is_made_again() {
    let (probe, _dir) = started();
    push_all(&probe, 1..=3);
    let mut before = Client::connect(&probe.socket());
    before.until(|it| field(it, "step") == Some(3));
    fs::remove_file(probe.socket()).unwrap();
    eventually("it is there again", || socket::connect(&probe.socket()).is_ok());
    Client::connect(&probe.socket()).until(|it| field(it, "step") == Some(3));
    push_all(&probe, 4..=4);
    before.until(|it| field(it, "step") == Some(4));
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

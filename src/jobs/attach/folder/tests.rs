//! Hostile and abandoned folders.

use super::*;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use tempfile::TempDir;

struct Bench {
    home: TempDir,
    folder: Folder,
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(File::open(home.path()).unwrap().into(), "job".to_owned()).unwrap();
        Self { home, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("job").join(name)
    }

    /// A file outside, with a content that stays.
    fn precious(&self) -> PathBuf {
        let path = self.home.path().join("precious");
        fs::write(&path, "precious").unwrap();
        path
    }
}

#[test]
fn a_request_stands_where_its_files_show() {
    let mut bench = Bench::new();
    assert!(bench.folder.lock().unwrap());
    assert_eq!(bench.folder.state(), State::New);
    bench.folder.fill().unwrap();
    bench.folder.fill().unwrap();
    bench.folder.note_asked().unwrap();
    assert_eq!(bench.folder.state(), State::Asked);
    fs::write(bench.path(BEGUN), "").unwrap();
    assert_eq!(bench.folder.state(), State::Begun);
    fs::write(bench.path(ANSWER), "started").unwrap();
    assert_eq!(bench.folder.state(), State::Answered("started".to_owned()));
    fs::create_dir(bench.path(assets::name()).join("gpuwatch_probe/__pycache__")).unwrap();
    fs::write(bench.path(assets::name()).join("gpuwatch_probe/__pycache__/a.pyc"), "").unwrap();
    bench.folder.clear();
    assert_eq!(fs::read_dir(bench.home.path()).unwrap().count(), 0, "nothing stays");
}

/// A request that ends removes the folder while another one opens it.
#[test]
fn a_folder_that_another_request_removes_is_made_again() {
    let home = tempfile::tempdir().unwrap();
    let open = || Folder::open(File::open(home.path()).unwrap().into(), "job".to_owned());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = fs::remove_dir(home.path().join("job"));
            }
        });
        let all: io::Result<()> = (0..5000).try_for_each(|_| open().map(drop));
        is_over.store(true, Ordering::Relaxed);
        assert!(all.is_ok(), "{:?}", all.err());
    });
}

#[test]
fn no_link_is_followed_and_no_file_of_others_is_changed() {
    let bench = Bench::new();
    let precious = bench.precious();
    for name in OF_A_REQUEST {
        symlink(&precious, bench.path(name)).unwrap();
    }
    assert_eq!(bench.folder.state(), State::Begun, "an answer that is a link is no answer");
    bench.folder.note_asked().unwrap();
    bench.folder.write_script("x").unwrap_err();
    bench.folder.forget();
    fs::hard_link(&precious, bench.path(ASKED)).unwrap();
    bench.folder.note_asked().unwrap();
    // The probe's files are written into no directory that a link leads to.
    let elsewhere = bench.home.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("gpuwatch_probe")).unwrap();
    fs::write(elsewhere.join("kept"), "").unwrap();
    symlink(&elsewhere, bench.path(assets::name())).unwrap();
    bench.folder.fill().unwrap_err();
    assert_eq!(fs::read(precious).unwrap(), b"precious");
    assert!(elsewhere.join("kept").exists());
}

#[test]
fn pipes_devices_and_endless_files_are_no_answers() {
    let bench = Bench::new();
    rustix::fs::mknodat(rustix::fs::CWD, bench.path(ANSWER), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(bench.folder.state(), State::New);
    bench.folder.forget();
    File::create(bench.path(ANSWER)).unwrap().set_len(1 << 40).unwrap();
    let State::Answered(answer) = bench.folder.state() else { panic!("a regular file is an answer") };
    assert_eq!(answer.len() as u64, ANSWER_MAX);
}

#[test]
fn a_folder_that_another_user_can_write_to_is_refused() {
    let bench = Bench::new();
    fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o770)).unwrap();
    let again = Folder::open(File::open(bench.home.path()).unwrap().into(), "job".to_owned());
    assert!(again.unwrap_err().to_string().contains("another user"));
    symlink("/tmp", bench.home.path().join("link")).unwrap();
    Folder::open(File::open(bench.home.path()).unwrap().into(), "link".to_owned()).unwrap_err();
}

#[test]
fn one_request_at_a_time_has_the_folder() {
    let mut bench = Bench::new();
    let open = || Folder::open(File::open(bench.home.path()).unwrap().into(), "job".to_owned()).unwrap();
    let mut second = open();
    assert!(bench.folder.lock().unwrap());
    assert!(!second.lock().unwrap());
    bench.folder.clear();
    assert!(!second.lock().unwrap(), "its folder is gone");
    assert!(open().lock().unwrap());
}

#[test]
fn abandoned_folders_go_and_those_in_use_stay() {
    let bench = Bench::new();
    let above: OwnedFd = File::open(bench.home.path()).unwrap().into();
    let open = |name: &str| Folder::open(above.try_clone().unwrap(), name.to_owned()).unwrap();
    let mut used = open("p-used");
    assert!(used.lock().unwrap());
    for name in ["p-gone", "p-lives", "p-unknown", "q-gone"] {
        open(name).note_asked().unwrap();
    }
    sweep(&above, "p-", |rest| match rest {
        "gone" | "used" => Some(true),
        "lives" => Some(false),
        _ => None,
    });
    let mut left: Vec<_> = fs::read_dir(bench.home.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["job", "p-lives", "p-unknown", "p-used", "q-gone"]);
}

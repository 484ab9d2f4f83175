//! Root attaches to jobs of another user that turn against it: no file of root's is read, changed or removed.

use crate::{
    helpers::terminal::PROGRAM,
    probe::{containers, launch::Home, pytorch::script},
};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

/// A user without files, and without rights.
const USER: &str = "64242";

const AS_USER: [&str; 9] =
    ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "unshare", "-rm", "--propagation=private"];

/// The folder of the probe's files, in the cache of a user who has unpacked them.
fn assets(home: &Home) -> String {
    let unpacked = Command::new(PROGRAM).args(["run", "--", "true"]).envs(home.variables()).status();
    assert!(unpacked.unwrap().success());
    let mut all = fs::read_dir(home.0.path().join("cache/gpuwatch")).unwrap().flatten();
    all.next().unwrap().file_name().into_string().unwrap()
}

/// A job in a user and a mount namespace of its own.
struct Hostile {
    child: Child,
    victim: tempfile::TempDir,
    home: Home,
}

impl Hostile {
    fn start(trick: &str) -> Self {
        let home = Home::new();
        let victim = tempfile::tempdir().unwrap();
        fs::set_permissions(victim.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(victim.path().join("precious"), "precious").unwrap();
        fs::create_dir(victim.path().join("folder")).unwrap();
        fs::write(victim.path().join("folder/precious"), "precious").unwrap();
        // The checkout may lie where the other user cannot enter.
        let program = fs::read_to_string(script("hostile.py")).unwrap();
        let mut command = Command::new(AS_USER[0]);
        command.args(&AS_USER[1..]).args(["/usr/bin/python3", "-c", &program, trick]).arg(victim.path());
        command.arg(assets(&home)).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{trick}");
        Self { child, victim, home }
    }

    fn attach(&self, wait: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(["attach", "--no-record", "--wait", wait]).arg(self.child.id().to_string());
        command.envs(self.home.variables()).output().unwrap()
    }

    fn assert_unharmed(&self, trick: &str) {
        let is_precious = |path: &Path| {
            let about = fs::metadata(path).unwrap();
            assert_eq!((about.uid(), about.mode() & 0o777), (0, 0o644), "{trick}");
            assert_eq!(fs::read(path).unwrap(), b"precious", "{trick}");
        };
        is_precious(&self.victim.path().join("precious"));
        is_precious(&self.victim.path().join("folder/precious"));
        assert_eq!(fs::read_dir(self.victim.path()).unwrap().count(), 2, "{trick}: nothing was added");
        assert_eq!(fs::metadata(self.victim.path()).unwrap().uid(), 0, "{trick}");
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Only root can act as another user, and not every kernel lets that user make namespaces.
macro_rules! needs_another_user {
    () => {
        test_tiers::change!("namespaces");
        if !rustix::process::geteuid().is_root() {
            test_tiers::skip!("only root can act as another user");
        }
        if !containers::can_run(&AS_USER) {
            test_tiers::skip!("another user may make no namespaces here");
        }
    };
}

#[test]
fn a_job_of_another_user_answers_from_files_of_its_own() {
    needs_another_user!();
    let job = Hostile::start("plain");
    // It only looks like a job with PyTorch: what comes back is the answer of its own Python.
    super::expect(&job.attach("5m"), 2, "has not imported a PyTorch for GPUs");
    job.assert_unharmed("plain");
    let own =
        |entry: &fs::DirEntry| fs::symlink_metadata(entry.path()).is_ok_and(|about| about.uid().to_string() == USER);
    let left = fs::read_dir("/tmp").unwrap().flatten().filter(own);
    let name = format!("-{}-", job.child.id());
    let left: Vec<_> = left.map(|it| it.file_name()).filter(|it| it.to_string_lossy().contains(&name)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn links_pipes_and_mounts_in_the_place_of_its_files_do_no_harm() {
    needs_another_user!();
    // Where gpuwatch can remove or leave aside what is there, the job's own answer comes back.
    let answer = "has not imported a PyTorch for GPUs";
    let tricks = [
        ("links", "in the place of its file `lock`"),
        ("pipe", answer),
        ("zeros", answer),
        ("endless", answer),
        ("mounted", "in the place of its file `lock`"),
        ("mounted_folder", "in the place of its file `"),
        ("mounted_itself", answer),
        ("link_itself", answer),
    ];
    for (trick, phrase) in tricks {
        let job = Hostile::start(trick);
        let output = job.attach("5m");
        job.assert_unharmed(trick);
        super::expect(&output, 2, phrase);
    }
}

#[test]
fn a_job_that_exchanges_its_files_meanwhile_harms_nobody() {
    needs_another_user!();
    let job = Hostile::start("racing");
    for _ in 0..20 {
        let output = job.attach("100ms");
        assert!(matches!(output.status.code(), Some(2 | 3)), "{output:?}");
        job.assert_unharmed("racing");
    }
}

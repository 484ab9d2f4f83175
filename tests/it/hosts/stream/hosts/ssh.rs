//! The default transport: the system's ssh, and a real sshd of an ordinary user.

use crate::{
    helpers::{
        debian,
        terminal::{PATIENCE, PROGRAM, Terminal, until},
        torch,
    },
    hosts::stream::Rank,
    probe::{
        launch::Home,
        pytorch::{Job, script},
    },
};
use serde_json::Value;
use std::{
    env,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    net::{TcpListener, ToSocketAddrs},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A server of this test, with a client that reaches it under any name.
struct Server {
    child: Child,
    directory: tempfile::TempDir,
    /// A folder with the client, as `ssh`.
    path: PathBuf,
}

/// Starts the server as an ordinary user with a name and a shell, also for tests that root runs. Only that user can log
/// in, with a key.
const SERVE: &str = "mount --bind passwd /etc/passwd && exec unshare -U --map-user=1000 --map-group=1000 \"$@\"";

impl Server {
    /// Starts one for machines of these names, each with sockets of its own.
    fn start(folder: &Path, names: &[String]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (here, port) = (directory.path().to_owned(), free_port());
        for name in ["host", "key"] {
            let mut keygen = Command::new(program(folder, "bin/ssh-keygen"));
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", name]).envs(libraries(folder));
            let status = keygen.current_dir(&here).status();
            assert!(status.unwrap().success());
        }
        let home = here.display();
        fs::write(here.join("passwd"), format!("tester:x:1000:1000::{home}:/bin/sh\n")).unwrap();
        let settings = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {home}/host\nAuthorizedKeysFile {home}/key.pub\nPidFile none\n\
             UsePAM no\nStrictModes no\nPasswordAuthentication no\nAcceptEnv *\nMaxStartups 200\nPrintMotd no\n"
        );
        fs::write(here.join("sshd_config"), settings).unwrap();
        let mut server = Command::new("unshare");
        server.args(["-r", "-m", "sh", "-c", SERVE, "sh"]).arg(program(folder, "sbin/sshd"));
        server.args(["-D", "-e", "-f"]).arg(here.join("sshd_config")).current_dir(&here).envs(libraries(folder));
        let mut child = server.stderr(Stdio::piped()).spawn().unwrap();
        let (mut log, mut line) = (BufReader::new(child.stderr.take().unwrap()), String::new());
        while !line.contains("listening") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "sshd does not start");
        }
        std::thread::spawn(move || log.lines().for_each(drop));
        let path = client(folder, &here, port, names);
        Self { child, directory, path }
    }

    fn sockets(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The path with this test's client.
    fn path(&self) -> String {
        format!("{}:{}", self.path.display(), env::var("PATH").unwrap())
    }

    fn once(&self, hosts: &str, wait: &str) -> Value {
        let mut command = Command::new(PROGRAM);
        command.args(["once", "--json", "--remote-program", PROGRAM, "--hosts", hosts, "--wait", wait]);
        let output = command.envs(Home::new().variables()).env("PATH", self.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the client: the real one, with the names of this test in its configuration.
fn client(folder: &Path, here: &Path, port: u16, names: &[String]) -> PathBuf {
    let home = here.display();
    let host_key = fs::read_to_string(here.join("host.pub")).unwrap();
    fs::write(here.join("known"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
    let mut config = format!("Host closed\n  Port {}\n", free_port());
    for name in names {
        fs::create_dir_all(here.join(name)).unwrap();
        fs::set_permissions(here.join(name), fs::Permissions::from_mode(0o700)).unwrap();
        let _ = writeln!(config, "Host {name}\n  SetEnv GPUWATCH_NO_NVML=1 GPUWATCH_SOCKET_DIR={home}/{name}");
    }
    let _ = writeln!(
        config,
        "Host *\n  HostName 127.0.0.1\n  Port {port}\n  User tester\n  IdentityFile {home}/key\n  IdentitiesOnly yes\n  \
         UserKnownHostsFile {home}/known"
    );
    fs::write(here.join("config"), config).unwrap();
    let path = here.join("bin");
    fs::create_dir_all(&path).unwrap();
    let libraries = libraries(folder).map(|it| it.1).join(":");
    let ssh = program(folder, "bin/ssh");
    let script = format!("#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {} -F {home}/config \"$@\"\n", ssh.display());
    fs::write(path.join("ssh"), script).unwrap();
    fs::set_permissions(path.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// OpenSSH as the distribution has it: the folder with `bin`, `sbin` and libraries.
fn openssh() -> Result<PathBuf, String> {
    debian::programs("openssh-server").map(|it| it.parent().unwrap().to_owned())
}

fn libraries(folder: &Path) -> [(&'static str, String); 1] {
    let libraries = folder.join("lib").join(format!("{}-linux-gnu", env::consts::ARCH));
    [("LD_LIBRARY_PATH", libraries.display().to_string())]
}

/// Returns a program of the package, or the machine's own where the package is installed.
fn program(folder: &Path, name: &str) -> PathBuf {
    Some(folder.join(name)).filter(|it| it.exists()).unwrap_or_else(|| Path::new("/usr").join(name))
}

/// As a benchmark with 64: `GPUWATCH_SSH_HOSTS=64`, and the time on standard error.
fn count() -> usize {
    env::var("GPUWATCH_SSH_HOSTS").ok().and_then(|it| it.parse().ok()).unwrap_or(4)
}

/// Starts a rank of one job on each machine.
fn ranks(server: &Server, names: &[String]) -> Vec<Rank> {
    let all = names.len().to_string();
    let rank = |(rank, name): (usize, &String)| {
        let flags = ["--rank", &rank.to_string(), "--ranks", &all, "--rate", "1"];
        Rank::start_in(server.sockets(name).to_str().unwrap(), &flags, &[("GPUWATCH_RUN", "of-this-test")])
    };
    names.iter().enumerate().map(rank).collect()
}

#[test]
fn machines_behind_a_real_sshd_are_one_job_and_one_that_refuses_delays_none() {
    crate::probe::containers::needs_unshare!(["-r", "-m"]);
    let folder = test_tiers::needs!(openssh());
    let count = count();
    let names: Vec<String> = (0..count).map(|it| format!("node{it:02}")).collect();
    let server = Server::start(&folder, &names);
    let _ranks = ranks(&server, &names);
    let begun = std::time::Instant::now();
    let json = server.once(&format!("closed,node[00-{:02}]", count - 1), "120s");
    eprintln!("{count} machines answered after {:?}", begun.elapsed());
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!((&nodes[0]["host"], &nodes[0]["link"]), (&"closed".into(), &"refused".into()));
    assert!(nodes[0]["why"].as_str().unwrap().contains("Connection refused"), "{}", nodes[0]["why"]);
    assert!(nodes.iter().skip(1).all(|it| it["link"] == "up" && it["why"].is_null()), "{nodes:#?}");
    let jobs = json["jobs"].as_array().unwrap();
    assert_eq!((jobs.len(), jobs[0]["ranks"].as_array().unwrap().len()), (1, count));
    assert_eq!((&jobs[0]["run"], &jobs[0]["missing"]), (&"of-this-test".into(), &Value::Array(Vec::new())));
}

/// With `GPUWATCH_SSH_HOSTS` it is the benchmark of the viewer: its times, its part of a core, its memory.
#[test]
fn the_screen_shows_every_machine_behind_a_real_sshd() {
    crate::probe::containers::needs_unshare!(["-r", "-m"]);
    let folder = test_tiers::needs!(openssh());
    let count = count();
    let names: Vec<String> = (0..count).map(|it| format!("node{it:02}")).collect();
    let server = Server::start(&folder, &names);
    let _ranks = ranks(&server, &names);
    let begun = std::time::Instant::now();
    let hosts = format!("node[00-{:02}]", count - 1);
    let arguments = ["--remote-program", PROGRAM, "--hosts", &hosts];
    let terminal = Terminal::start_sized((100, 200), &arguments, &[("PATH", &server.path())]);
    let up = || {
        let text = terminal.text();
        let words: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
        words.windows(2).find(|it| it[1] == "up").and_then(|it| it[0].parse::<usize>().ok()).unwrap_or(0)
    };
    assert!(until(PATIENCE, || up() > 0), "{}", terminal.text());
    let first = begun.elapsed();
    assert!(until(PATIENCE, || up() == count), "{}", terminal.text());
    let all = begun.elapsed();
    terminal.shows(&format!("{count} of {count} ranks on {count} machines"));
    if env::var_os("GPUWATCH_SSH_HOSTS").is_some() {
        let pid = terminal.child.process_id().unwrap();
        let spent = || -> f64 {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            // The clock ticks of user and system time, of which Linux has 100 a second.
            [11, 12].map(|it| fields[it].parse::<f64>().unwrap()).iter().sum::<f64>() / 100.0
        };
        let (cpu, at) = (spent(), std::time::Instant::now());
        // Not a condition: the viewer's cost of half a minute.
        std::thread::sleep(std::time::Duration::from_secs(30));
        let part = (spent() - cpu) / at.elapsed().as_secs_f64() * 100.0;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let memory = status.lines().find(|it| it.starts_with("VmHWM")).unwrap();
        eprintln!("{count} machines: first row after {first:?}, all after {all:?}, {part:.1} % of a core, {memory}");
    }
}

/// Each machine's launcher has a run of its own; the address of the master joins them.
#[test]
fn a_torchrun_job_on_two_machines_is_one_job() {
    crate::probe::containers::needs_unshare!(["-r", "-m"]);
    let folder = test_tiers::needs!(openssh());
    let host = gpuwatch::sources::host();
    if (host.as_str(), 0).to_socket_addrs().is_err() {
        test_tiers::skip!("the name of this machine, {host}, has no address");
    }
    let names = ["node00", "node01"].map(str::to_owned);
    let server = Server::start(&folder, &names);
    let port = free_port().to_string();
    let start = |(place, name): (usize, &String)| {
        let gpu = torch::machine();
        let go_on = gpu.dir().join("go-on");
        let (place, rank) = (place.to_string(), script("rank.py"));
        let launcher =
            ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--master-addr", &host];
        let arguments = [&launcher[..], &["--master-port", &port, "--node-rank", &place, &rank]].concat();
        let sockets = server.sockets(name);
        let job = Job::start_with(gpu, &arguments, |it| {
            it.env("GPUWATCH_SOCKET_DIR", sockets);
        });
        (job, go_on)
    };
    let mut jobs: Vec<(Job, PathBuf)> = names.iter().enumerate().map(start).collect();
    jobs[0].0.next();
    let json = server.once("node[00-01]", "120s");
    let trained = json["jobs"].as_array().unwrap().iter().filter(|it| it["world_size"] == 2).collect::<Vec<_>>();
    let [job] = &trained[..] else { panic!("{:#}", json["jobs"]) };
    let ranks = job["ranks"].as_array().unwrap().iter().filter(|it| !it["rank"].is_null());
    let ranks: Vec<(u64, &str)> =
        ranks.map(|it| (it["rank"].as_u64().unwrap(), it["host"].as_str().unwrap())).collect();
    assert_eq!(ranks, [(0, "node00"), (1, "node01")]);
    // A launcher waits minutes for the others, so all ranks end together.
    for (_, go_on) in &jobs {
        fs::write(go_on, "").unwrap();
    }
    for (job, _) in jobs {
        job.ended();
    }
}

//! The files in `fleet/`: alert rules, a dashboard, a unit, Slurm's scripts and a pod, each with the programs that read
//! them.

/// The screen of a fleet.
mod screen;
/// The fleet as a store knows it.
mod store;

use crate::{
    helpers::{
        debian,
        terminal::{PATIENCE, PROGRAM, until},
        venv::Venv,
    },
    probe::{
        containers,
        launch::Home,
        pytorch::{Job, script},
    },
    recordings::other_tools::has,
    serve::{Server, otlp::received, prometheus, promtool},
};
use gpuwatch::commands::serve::families::{Family, Kind, Row};
use rustix::process::{Pid, test_kill_process};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

/// A reader of YAML.
static YAML: Venv = Venv {
    variable: "GPUWATCH_YAML_VENV",
    name: "venv-yaml-1",
    holds: "PyYAML (a download of about 1 MB)",
    packages: &[&["PyYAML==6.0.3"]],
    above: None,
    python: OnceLock::new(),
};

fn fleet(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fleet").join(name)
}

/// The families that a query names, and the labels that it selects, groups or shows.
fn names_of(query: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words = |text| str::split(text, move |c| !is_word(c)).filter(|it| !it.is_empty());
    let families = words(query).filter(|it| it.starts_with("gpuwatch_")).collect();
    let mut labels = BTreeSet::new();
    for part in query.split('{').skip(1).filter_map(|it| it.split('}').next()) {
        labels.extend(part.split(',').filter_map(|it| it.split(['=', '!']).next()).map(str::trim));
    }
    for keyword in ["by (", "on (", "group_left ("] {
        for part in query.split(keyword).skip(1).filter_map(|it| it.split(')').next()) {
            labels.extend(words(part));
        }
    }
    (families, labels)
}

/// The row of a series' name.
fn row(name: &str) -> &'static Row {
    let is_it = |it: &&Row| match it.kind {
        Kind::Counter => name.strip_suffix("_total") == Some(it.name),
        Kind::Gauge => name == it.name,
    };
    Family::TABLE.iter().find(is_it).unwrap_or_else(|| panic!("there is no family {name}"))
}

fn assert_known(query: &str) {
    let (families, labels) = names_of(query);
    assert!(!families.is_empty(), "{query}");
    let known: BTreeSet<&str> = families.iter().flat_map(|it| row(it).labels).copied().collect();
    assert!(labels.is_subset(&known), "{query}: {labels:?} are not all in {known:?}");
}

/// The queries of the dashboard's panels and variables.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(fleet("grafana/gpuwatch.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<u64> = panels.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len());
    let targets = panels.iter().flat_map(|it| it["targets"].as_array().unwrap());
    targets.map(|it| it["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn rules_and_dashboard_name_what_serve_answers() {
    let queries = queries();
    assert!(queries.len() > 8);
    for it in &queries {
        assert_known(it);
    }
    let rules = fs::read_to_string(fleet("prometheus/rules.yml")).unwrap();
    let tests = fs::read_to_string(fleet("prometheus/rules.test.yml")).unwrap();
    let of =
        |name: &str| rules.lines().filter_map(|it| it.trim().strip_prefix(name)).map(str::to_owned).collect::<Vec<_>>();
    let (alerts, exprs) = (of("- alert: "), of("expr: "));
    assert!(alerts.len() == exprs.len() && alerts.len() > 4, "{alerts:?}");
    for it in &exprs {
        assert_known(it);
    }
    for it in alerts {
        assert!(tests.contains(&format!("alertname: {it}\n        exp_alerts:\n")), "{it} has no test");
    }
}

#[test]
fn promtool_checks_and_tests_the_rules() {
    test_tiers::full!("a Prometheus");
    let programs = test_tiers::needs!(prometheus());
    promtool(&programs, &["check", "rules", fleet("prometheus/rules.yml").to_str().unwrap()], "");
    promtool(&programs, &["test", "rules", fleet("prometheus/rules.test.yml").to_str().unwrap()], "");
}

#[test]
fn systemd_takes_the_unit() {
    test_tiers::needs!(has("systemd-analyze"));
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fleet("systemd/gpuwatch@.service")).unwrap();
    // The program and its manual are not installed here.
    let text = text.replace("/usr/bin/gpuwatch", PROGRAM).replace("Documentation=man:gpuwatch-serve(1)\n", "");
    let unit = dir.path().join("gpuwatch@root.service");
    fs::write(&unit, text).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("gpuwatch@root.service"), "{errors}");
}

/// The environment of Slurm's scripts, for a job of this user.
fn slurm(home: &Home, name: &str, job: u32) -> Command {
    let mut command = Command::new(fleet("slurm").join(name));
    let programs = Path::new(PROGRAM).parent().unwrap().display();
    command.envs(home.variables()).env("PATH", format!("{programs}:/usr/bin:/bin:/usr/sbin:/sbin"));
    command.env("SLURM_JOB_ID", job.to_string()).env("SLURM_STEP_ID", "3").env_remove("PYTHONPATH");
    command.env("SLURM_JOB_UID", rustix::process::getuid().as_raw().to_string());
    command.env("SLURM_JOB_GID", rustix::process::getgid().as_raw().to_string());
    command.env("GPUWATCH_STATE", home.0.path().join("jobs")).env("GPUWATCH_TEXTFILES", home.0.path());
    command
}

#[test]
fn a_task_prolog_gives_every_task_of_a_step_the_probe_and_one_run() {
    let home = Home::new();
    let output = slurm(&home, "task_prolog.sh", 4711).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str| {
        let prefix = format!("export {name}=");
        text.lines().find_map(|it| it.strip_prefix(&prefix)).unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
    };
    assert_eq!(value("GPUWATCH_RUN"), "slurm-4711.3");
    assert!(Path::new(&value("PYTHONPATH")).join("gpuwatch_probe/__init__.py").exists());
    assert!(Path::new(&value("GPUWATCH_PROBE_SO")).exists());
    assert!(text.lines().all(|it| it.starts_with("export ")), "{text}");
    // A node without gpuwatch runs its tasks all the same.
    let output = slurm(&home, "task_prolog.sh", 4711).env("PATH", "/nowhere").output();
    assert!(output.is_ok_and(|it| it.status.success() && it.stdout.is_empty()));
}

#[test]
fn a_prolog_serves_until_the_epilog_of_the_last_job() {
    let home = Home::new();
    let user = rustix::process::getuid().as_raw();
    let file = home.0.path().join(format!("gpuwatch-{user}.prom"));
    let run = |name: &str, job: u32| assert!(slurm(&home, name, job).status().unwrap().success(), "{name}");
    run("prolog.sh", 1);
    let number = fs::read_to_string(home.0.path().join(format!("jobs/{user}/pid"))).unwrap();
    let pid = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
    assert!(until(PATIENCE, || file.exists()));
    run("prolog.sh", 2);
    assert_eq!(fs::read_to_string(home.0.path().join(format!("jobs/{user}/pid"))).unwrap(), number);
    run("epilog.sh", 1);
    assert!(test_kill_process(pid).is_ok() && file.exists());
    run("epilog.sh", 2);
    assert!(until(PATIENCE, || !file.exists()));
    assert!(!home.0.path().join(format!("jobs/{user}")).exists());
}

#[test]
fn an_epilog_ends_no_process_that_is_not_the_users() {
    if !rustix::process::geteuid().is_root() {
        test_tiers::skip!("only root can act as another user");
    }
    let home = Home::new();
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let state = home.0.path().join("jobs/64242");
    fs::create_dir_all(state.join("jobs")).unwrap();
    fs::write(state.join("pid"), other.id().to_string()).unwrap();
    let mut epilog = slurm(&home, "epilog.sh", 1);
    epilog.env("SLURM_JOB_UID", "64242").env("SLURM_JOB_GID", "64242");
    assert!(epilog.status().unwrap().success() && !state.exists());
    assert!(other.try_wait().unwrap().is_none(), "the number of the ended process is root's by now");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn the_pod_has_a_sidecar_that_shares_the_sockets() {
    test_tiers::full!("a reader of YAML");
    let python = test_tiers::needs!(YAML.found());
    let read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let output = Command::new(python).args(["-c", read]).arg(fleet("kubernetes/pod.yaml")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let pod: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (sidecar, job) = (&pod["spec"]["initContainers"][0], &pod["spec"]["containers"][0]);
    assert_eq!((&sidecar["restartPolicy"], &pod["spec"]["shareProcessNamespace"]), (&"Always".into(), &true.into()));
    let place = |container: &Value| {
        let entry = |list: &str, name: &str| {
            let mut all = container[list].as_array().unwrap().iter();
            all.find(|it| it["name"] == name).cloned()
        };
        (entry("env", "GPUWATCH_SOCKET_DIR"), entry("volumeMounts", "sockets"))
    };
    assert_eq!(place(sidecar), place(job));
    assert!(place(job).0.is_some() && place(job).1.is_some());
    // The command line is one that this gpuwatch takes.
    let words: Vec<&str> = sidecar["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let output = Command::new(PROGRAM).args(&words[1..]).arg("--help").output().unwrap();
    assert!(words[0] == "gpuwatch" && output.status.success(), "{words:?}");
}

/// Starts the Alertmanager of a package, whose texts it looks for where the package would be installed.
fn manager(package: &Path, arguments: &[String]) -> Daemon {
    let program = package.join("usr/bin/prometheus-alertmanager").display().to_string();
    let bind = "mount --bind \"$0/usr/share\" /usr/share && exec \"$@\"";
    let start = ["--map-root-user", "--mount", "sh", "-c", bind].map(str::to_owned);
    let start = start.into_iter().chain([package.display().to_string(), program]).chain(arguments.iter().cloned());
    daemon(Path::new("unshare"), &start.collect::<Vec<_>>())
}

/// A store or an alert manager, ended with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn daemon(program: &Path, arguments: &[String]) -> Daemon {
    Daemon(Command::new(program).args(arguments).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes what Prometheus and Alertmanager read: which figures to scrape, and where alerts go.
fn configure(folder: &Path, target: &str, alerts: u16, webhook: SocketAddr) {
    // Without the minutes for which an alert has to last.
    let rules = fs::read_to_string(fleet("prometheus/rules.yml")).unwrap();
    let rules: Vec<&str> = rules.lines().filter(|it| !it.trim().starts_with("for: ")).collect();
    fs::write(folder.join("rules.yml"), rules.join("\n")).unwrap();
    let store = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alerts}']}}]}}]}}\n\
         scrape_configs: [{{job_name: gpuwatch, static_configs: [{{targets: ['{target}']}}]}}]\n"
    );
    fs::write(folder.join("prometheus.yml"), store).unwrap();
    let manager = format!(
        "route: {{receiver: it, group_wait: 0s, group_by: [alertname]}}\n\
         receivers: [{{name: it, webhook_configs: [{{url: 'http://{webhook}/'}}]}}]\n"
    );
    fs::write(folder.join("alertmanager.yml"), manager).unwrap();
}

#[test]
fn an_alertmanager_receives_the_growth_of_a_job_and_every_panel_can_be_asked() {
    containers::needs_unshare!(["--map-root-user", "--mount"]);
    let programs = test_tiers::needs!(prometheus());
    let package = test_tiers::needs!(debian::programs("prometheus-alertmanager"));
    let package = package.ancestors().nth(2).unwrap();
    let page = format!("{}/docs/trackers.md", env!("CARGO_MANIFEST_DIR"));
    let mut job = Job::start(&[&script("tracked.py"), &page]);
    job.next();
    let server = Server::start(&job.home, &["--metrics", "127.0.0.1:0"]);
    let webhook = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (alerts, store) = (free_port(), free_port());
    configure(folder.path(), server.host(), alerts, webhook.local_addr().unwrap());
    let flag = |name: &str, value: String| format!("--{name}={value}");
    let _manager = manager(
        package,
        &[
            flag("config.file", at("alertmanager.yml").display().to_string()),
            flag("storage.path", at("alerts").display().to_string()),
            flag("web.listen-address", format!("127.0.0.1:{alerts}")),
            flag("cluster.listen-address", String::new()),
        ],
    );
    let _store = daemon(
        &programs.join("prometheus"),
        &[
            flag("config.file", at("prometheus.yml").display().to_string()),
            flag("storage.tsdb.path", at("data").display().to_string()),
            flag("web.listen-address", format!("127.0.0.1:{store}")),
        ],
    );
    assert!(until(PATIENCE, || {
        job.send("20");
        job.next();
        server.scrape().contains("kind=\"growth\"")
    }));
    let alert = loop {
        let (_, sent) = received(&webhook, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let all = sent["alerts"].as_array().unwrap().clone();
        if let Some(it) = all.into_iter().find(|it| it["labels"]["alertname"] == "GpuMemoryGrows") {
            break it;
        }
    };
    assert_eq!((&alert["status"], &alert["labels"]["kind"]), (&"firing".into(), &"growth".into()), "{alert}");
    assert!(alert["annotations"]["summary"].as_str().is_some_and(|it| it.contains("grows")), "{alert}");
    for query in queries() {
        let query = query.replace("$__range", "1m").replace("$__rate_interval", "1m").replace("$run", ".*");
        let answer = asked(store, &query.replace("$rank", ".*"));
        assert!(answer.contains("\"status\":\"success\""), "{query}: {answer}");
    }
    server.end();
    job.finish();
}

/// The store's answer to a query.
fn asked(port: u16, query: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let encoded: Vec<String> = query.bytes().map(|it| format!("%{it:02X}")).collect();
    let encoded = encoded.concat();
    write!(stream, "GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

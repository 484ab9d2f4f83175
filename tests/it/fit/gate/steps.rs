//! The steps of the GitHub action and of the GitLab template, run as their services run them: in a fresh environment
//! that gets a wheel, with stand-ins for `gh` and `curl`.

use super::{PYTEST, ci};
use crate::{
    fit::{Asked, pytest::fresh},
    helpers::{terminal::PROGRAM, torch},
};
use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A wheel whose `gpuwatch` is the one under test, made without any tool.
const WHEEL: &str = r##"import sys, zipfile
folder, program = sys.argv[1:]
name = "gpuwatch_tui-0.0.1"
with zipfile.ZipFile(folder + "/" + name + "-py3-none-any.whl", "w") as wheel:
    def add(path, text):
        info = zipfile.ZipInfo(path)
        info.external_attr = 0o100755 << 16
        wheel.writestr(info, text)
        return path + ",,\n"
    rows = add(name + ".data/scripts/gpuwatch", "#!/bin/sh\nexec '%s' \"$@\"\n" % program)
    rows += add(name + ".dist-info/METADATA", "Metadata-Version: 2.1\nName: gpuwatch-tui\nVersion: 0.0.1\n")
    rows += add(name + ".dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    rows += add(name + ".dist-info/entry_points.txt", "[pytest11]\ngpuwatch = gpuwatch_probe.pytest_plugin\n")
    add(name + ".dist-info/RECORD", rows + name + ".dist-info/RECORD,,\n")
"##;

/// A stand-in for a program: it logs its arguments and its input, and fails on request.
const STANDIN: &str = r#"#!/bin/sh
printf '%s\n' "$@" >"$CALLS/$(basename "$0")"
cp "$COMMENT_FILE" "$CALLS/comment" || exit 9
exit "${STANDIN_CODE:-0}"
"#;

/// A repository with a job, and an environment that gets gpuwatch from a wheel.
struct Service {
    asked: Asked,
    variables: BTreeMap<String, String>,
}

impl Service {
    fn new() -> Self {
        let asked = Asked::new(include_str!("../against/lm.py"));
        let it = Self { asked, variables: BTreeMap::new() };
        for name in ["calls", "stand-ins", "temp", "ci"] {
            fs::create_dir(it.path(name)).unwrap();
        }
        for name in ["gh", "curl"] {
            let path = it.path("stand-ins").join(name);
            fs::write(&path, STANDIN).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::copy(ci("gpuwatch-gate.sh"), it.path("ci/gpuwatch-gate.sh")).unwrap();
        fs::write(it.path("test_gpu.py"), include_str!("../pytest/test_gpu.py")).unwrap();
        fresh(&it.path("venv"));
        let wheel =
            Command::new(PYTEST.python()).args(["-c", WHEEL]).arg(it.path("temp")).arg(PROGRAM).output().unwrap();
        torch::stdout(&wheel);
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        self.asked.home.0.path().join(name)
    }

    fn wheel(&self) -> String {
        self.path("temp/gpuwatch_tui-0.0.1-py3-none-any.whl").display().to_string()
    }

    /// Runs a step's lines as `shell: bash` does, and GitLab's runner.
    fn bash(&self, lines: &str) -> Output {
        let script = self.path("temp/step.sh");
        fs::write(&script, lines).unwrap();
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc", "-eo", "pipefail"]).arg(script).current_dir(self.asked.home.0.path());
        let all = env::var_os("PATH").unwrap();
        let own = [self.path("stand-ins"), self.path("venv/bin")].into_iter();
        let paths = own.chain(env::split_paths(&all));
        bash.env("PATH", env::join_paths(paths).unwrap()).env("CALLS", self.path("calls"));
        bash.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("probes/python"));
        // The tier of these tests has the name of a variable of the gate.
        bash.env_remove("GPUWATCH_TESTS").env("OMP_NUM_THREADS", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        bash.envs(self.asked.home.variables()).envs(&self.variables).output().unwrap()
    }

    /// What a stand-in was called with, a line a word; and the comment that it was given.
    fn call(&self, name: &str) -> Option<(String, String)> {
        let words = fs::read_to_string(self.path("calls").join(name)).ok()?;
        fs::remove_file(self.path("calls").join(name)).unwrap();
        Some((words, fs::read_to_string(self.path("calls/comment")).unwrap()))
    }

    fn change(&self, from: &str, to: &str) {
        let source = fs::read_to_string(&self.asked.script).unwrap();
        assert!(source.contains(from), "{from}");
        fs::write(&self.asked.script, source.replace(from, to)).unwrap();
    }

    /// Keeps the answer of the last run as the baseline.
    fn keep(&self, answer: &str) {
        fs::create_dir_all(self.path(".gpuwatch")).unwrap();
        fs::copy(self.path(answer), self.path(".gpuwatch/main.json")).unwrap();
    }
}

/// A step of the action.
#[derive(Debug, Default)]
struct Step {
    name: String,
    variables: Vec<(String, String)>,
    lines: String,
}

/// Reads the steps of the action that run a shell; each has `shell: bash`.
fn steps() -> Vec<Step> {
    let text = fs::read_to_string(ci("action.yml")).unwrap();
    let (_, steps) = text.split_once("  steps:\n").unwrap();
    let mut all = Vec::new();
    for step in steps.split("    - name: ").skip(1) {
        let mut it = Step { name: step.lines().next().unwrap().to_owned(), ..Step::default() };
        let mut part = "";
        for line in step.lines().skip(1) {
            match line.strip_prefix("        ") {
                Some(line) if part == "env" => {
                    let (name, value) = line.split_once(": ").unwrap();
                    it.variables.push((name.to_owned(), value.to_owned()));
                }
                Some(line) if part == "run" => it.lines.extend([line, "\n"]),
                _ => {
                    let (key, value) = line.trim().split_once(':').unwrap_or((line.trim(), ""));
                    part = key;
                    if key == "run" && value.trim() != "|" {
                        it.lines = format!("{}\n", value.trim());
                    }
                }
            }
        }
        assert_eq!(step.contains("run: "), step.contains("shell: bash"), "{step}");
        all.extend(Some(it).filter(|it| !it.lines.is_empty()));
    }
    all
}

/// Runs the action on a pull request; returns what it printed, and its exit code.
fn act(service: &mut Service, inputs: &[(&str, &str)]) -> (String, i32) {
    let temp = service.path("temp").display().to_string();
    let [output, summary] = ["temp/output", "temp/summary"].map(|it| service.path(it));
    fs::write(&output, "").unwrap();
    fs::write(&summary, "").unwrap();
    let mut printed = String::new();
    for step in steps() {
        let outputs = fs::read_to_string(&output).unwrap();
        let value = |expression: &str| -> String {
            let input = |name: &str| inputs.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
            match expression {
                "runner.temp" => temp.clone(),
                "github.token" => "token".to_owned(),
                "github.event.pull_request.number" => "7".to_owned(),
                "steps.gate.outputs.code" => outputs.trim().strip_prefix("code=").unwrap().to_owned(),
                it => input(it.strip_prefix("inputs.").unwrap_or_else(|| panic!("{it}"))).unwrap_or_default(),
            }
        };
        let mut variables = vec![
            ("GITHUB_OUTPUT".to_owned(), output.display().to_string()),
            ("GITHUB_STEP_SUMMARY".to_owned(), summary.display().to_string()),
            ("GITHUB_ACTION_PATH".to_owned(), ci("").display().to_string()),
            ("COMMENT_FILE".to_owned(), format!("{temp}/gpuwatch/comment.md")),
        ];
        for (name, text) in &step.variables {
            let mut text = text.clone();
            while let Some((before, rest)) = text.split_once("${{ ") {
                let (expression, after) = rest.split_once(" }}").unwrap();
                text = format!("{before}{}{after}", value(expression));
            }
            variables.push((name.clone(), text));
        }
        service.variables.extend(variables);
        let output = service.bash(&step.lines);
        printed.extend([format!("{output:?}"), "\n".to_owned()]);
        if !output.status.success() {
            return (format!("{}: {printed}", step.name), output.status.code().unwrap());
        }
    }
    (printed, 0)
}

#[test]
fn the_steps_of_the_action_install_a_wheel_comment_and_judge() {
    test_tiers::full!("five runs of fit, and pytest is downloaded");
    let mut service = Service::new();
    let wheel = service.wheel();
    // A word of the command that has a blank.
    let job = [("gpu", "RTX 4090"), ("command", "python train.py 'a name'"), ("install", &wheel), ("budget", "0.5%")];
    let job = [&job[..], &[("baseline", ".gpuwatch/main.json")]].concat();
    service.change("main()\n", "import sys\nassert sys.argv[1:] in (['a name'], []), sys.argv\nmain()\n");

    let (text, code) = act(&mut service, &job);
    let (words, comment) = service.call("gh").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(code, 0, "{text}");
    assert_eq!(
        words.lines().collect::<Vec<_>>(),
        ["pr", "comment", "7", "--edit-last", "--create-if-none", "--body-file", "COMMENT"]
            .map(|it| if it == "COMMENT" { &service.variables["COMMENT"] } else { it })
    );
    assert!(comment.contains("no baseline yet"), "{comment}");
    assert_eq!(fs::read_to_string(service.path("temp/summary")).unwrap(), comment);
    service.keep("temp/gpuwatch/now.json");

    let (text, code) = act(&mut service, &[&job[..], &[("tests", "-k test_of_the_cpu")]].concat());
    let (_, comment) = service.call("gh").unwrap_or_else(|| panic!("{text}"));
    assert!(code == 0 && comment.starts_with("### ✅ GPU memory"), "{text}: {comment}");
    assert!(comment.contains("### ✅ GPU memory tests"), "{comment}");

    // A pull request from a fork may not comment: the summary has it, and the job fails all the same.
    service.change("lr=1e-3)", "lr=1e-3, amsgrad=True)");
    service.variables.insert("STANDIN_CODE".to_owned(), "1".to_owned());
    let (text, code) =
        act(&mut service, &[&job[..], &[("tests", "-k 'is_over_its_limit or nothing at all'")]].concat());
    let (_, comment) = service.call("gh").unwrap_or_else(|| panic!("{text}"));
    assert!(code == 1 && text.starts_with("Judge: ") && text.contains("no comment was written"), "{text}");
    for part in
        ["### ❌ GPU memory: over the budget of ", "| optimizer state |", "amsgrad=True", "### ❌ GPU memory tests"]
    {
        assert!(comment.contains(part), "{part}: {comment}");
    }
    assert_eq!(fs::read_to_string(service.path("temp/summary")).unwrap(), comment);

    // What cannot be judged does not pass.
    service.change("    model = Model().cuda()\n", "    raise SystemExit(3)\n");
    let (text, code) = act(&mut service, &job);
    assert!(code == 2 && text.starts_with("Judge: "), "{text}");
}

/// The commands of the template's job, which a runner joins.
fn gitlab(part: &str) -> String {
    let text = fs::read_to_string(ci("gitlab.yml")).unwrap();
    let (_, lines) = text.split_once(&format!("  {part}:\n")).unwrap();
    let lines = lines.lines().take_while(|it| it.starts_with("    "));
    let lines = lines.map(|it| it.strip_prefix("    - ").or_else(|| it.strip_prefix("      ")).unwrap_or(it));
    lines.filter(|it| *it != "|").flat_map(|it| [it, "\n"]).collect()
}

#[test]
fn the_lines_of_the_template_install_a_wheel_comment_and_judge() {
    test_tiers::full!("three runs of fit, and pytest is downloaded");
    let mut service = Service::new();
    let lines = gitlab("before_script") + &gitlab("script");
    let variables = [
        ("GPUWATCH_GPU", "RTX 4090"),
        ("GPUWATCH_COMMAND", "python train.py"),
        ("GPUWATCH_OUT", "gpuwatch-results"),
        ("GITLAB_COMMENT_TOKEN", "secret"),
        ("CI_MERGE_REQUEST_IID", "7"),
        ("CI_PROJECT_ID", "5"),
        ("CI_API_V4_URL", "https://gitlab.example/api/v4"),
        ("COMMENT_FILE", "gpuwatch-results/comment.md"),
    ];
    service.variables.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let wheel = service.wheel();
    service.variables.insert("GPUWATCH_INSTALL".to_owned(), wheel);
    let output = service.bash(&lines);
    let (words, comment) = service.call("curl").unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        words.contains("PRIVATE-TOKEN: secret\n") && words.contains("body@gpuwatch-results/comment.md\n"),
        "{words}"
    );
    assert!(words.ends_with("https://gitlab.example/api/v4/projects/5/merge_requests/7/notes\n"), "{words}");
    assert!(comment.contains("no baseline yet"), "{comment}");
    service.keep("gpuwatch-results/now.json");
    service.change("lr=1e-3)", "lr=1e-3, amsgrad=True)");
    // GitLab cannot be reached: the job fails for the memory alone.
    service.variables.insert("STANDIN_CODE".to_owned(), "22".to_owned());
    let output = service.bash(&lines);
    let (_, comment) = service.call("curl").unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(comment.contains("### ❌ GPU memory: over the budget of "), "{comment}");
    // A branch without a merge request gets no comment.
    service.variables.remove("CI_MERGE_REQUEST_IID");
    let output = service.bash(&lines);
    assert!(output.status.code() == Some(1) && service.call("curl").is_none(), "{output:?}");
}

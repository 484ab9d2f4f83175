//! The tutorial: its commands print what it shows, its pictures are what the program draws.

use crate::{helpers::terminal::PROGRAM, house::tidy::root};
use std::{env, fmt::Write as _, fs, path::Path, process::Command};

/// A command of a page, and the lines below it; `…` stands for any lines.
struct Shown {
    command: String,
    lines: Vec<String>,
}

fn shown(page: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match line.strip_prefix("$ ") {
                Some(command) => all.push(Shown { command: command.to_owned(), lines: Vec::new() }),
                None => all.last_mut().unwrap().lines.push(line.to_owned()),
            }
        }
    }
    all
}

impl Shown {
    /// Whether this is what was printed.
    fn is(&self, printed: &str) -> bool {
        let mut rest: Vec<&str> = printed.lines().filter(|it| !it.is_empty()).collect();
        let mut may_skip = false;
        for line in &self.lines {
            if line == "…" {
                may_skip = true;
                continue;
            }
            let Some(at) = rest.iter().position(|it| it == line).filter(|at| may_skip || *at == 0) else {
                return false;
            };
            rest.drain(..=at);
            may_skip = false;
        }
        may_skip || rest.is_empty()
    }
}

/// Copies the tutorial's files, as a reader would.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for it in fs::read_dir(root().join("docs/tutorial")).unwrap().flatten() {
        fs::copy(it.path(), dir.path().join(it.file_name())).unwrap();
    }
    dir
}

#[test]
fn every_command_of_the_tutorial_prints_what_is_shown() {
    let dir = folder();
    let page = fs::read_to_string(root().join("docs/tutorial.md")).unwrap();
    let all = shown(&page);
    assert!(all.len() > 5, "the page has commands");
    for it in all {
        let arguments: Vec<&str> = it.command.split(' ').collect();
        assert_eq!(arguments[0], "gpuwatch");
        let mut command = Command::new(PROGRAM);
        command.args(&arguments[1..]).current_dir(dir.path()).env("XDG_CONFIG_HOME", dir.path()).env("LANG", "C.UTF-8");
        let done = command.output().unwrap();
        let printed = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(it.is(&printed), "$ {}\n{printed}", it.command);
    }
}

/// The line that the findings name is in the script, and the shown correction takes its place.
#[test]
fn the_tutorial_is_about_its_script() {
    let script = fs::read_to_string(root().join("docs/tutorial/train.py")).unwrap();
    let page = fs::read_to_string(root().join("docs/tutorial.md")).unwrap();
    let kept = script.lines().nth(31).unwrap().trim();
    assert!(page.contains(&format!("train.py:32 `{kept}`")), "{kept}");
    assert!(page.contains("\n    outputs.append((logits.argmax(-1).cpu(), tokens.cpu()))\n"));
}

const SCREENS: [&str; 4] = ["overview", "process", "timeline", "alerts"];

/// How long the animation shows a screen, in s.
const SHOWN: usize = 4;

/// Returns the screens of the recording one after the other, as one picture that changes.
fn session(dir: &Path) -> String {
    let shoot = |screen: &&str| {
        let mut command = Command::new(PROGRAM);
        for name in ["GPUWATCH_THEME", "GPUWATCH_COLOR", "GPUWATCH_GRAPH", "NO_COLOR", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        command.env("LANG", "C.UTF-8").env("XDG_CONFIG_HOME", dir).current_dir(dir);
        command.args(["replay", "oom.jsonl.zst", "--size", "96x28", "--screenshot", "-", "--screen", screen]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let pictures: Vec<String> = SCREENS.iter().map(shoot).collect();
    let view = pictures[0].split("viewBox=\"").nth(1).unwrap().split('"').next().unwrap();
    let (whole, part) = (SHOWN * SCREENS.len(), 100 / SCREENS.len());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{view}\" role=\"img\" aria-label=\"gpuwatch replays a job that ran \
         out of memory\">\n<style>@keyframes turn{{0%,{part}%{{opacity:1}}{}%,100%{{opacity:0}}}}.s{{opacity:0;animation:turn {whole}s \
         step-end infinite}}</style>\n",
        part + 1
    );
    for (at, picture) in pictures.iter().enumerate() {
        let delay = at * SHOWN;
        let picture = picture.trim_end_matches('\n');
        let _ = writeln!(svg, "<g class=\"s\" style=\"animation-delay:{delay}s\">\n{picture}\n</g>");
    }
    svg + "</svg>\n"
}

/// `GPUWATCH_PICTURES=write cargo test --test it tutorial::` writes it again.
#[test]
fn the_animation_is_made_of_what_the_program_draws() {
    let dir = folder();
    let (now, path) = (session(dir.path()), root().join("docs/tutorial/session.svg"));
    assert_eq!(now.matches("<svg ").count(), 1 + SCREENS.len());
    if env::var_os("GPUWATCH_PICTURES").is_some_and(|it| it == "write") {
        fs::write(&path, &now).unwrap();
    }
    let before = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        before == now,
        "docs/tutorial/session.svg differs: GPUWATCH_PICTURES=write cargo test --test it tutorial::"
    );
}

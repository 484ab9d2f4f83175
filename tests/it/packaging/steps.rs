//! The steps of a release: `packaging/release` has them, and the workflow runs them all.

use super::done;
use crate::house::tidy::root;
use std::{fs, process::Command};

fn text(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// The steps of the script, as it lists them.
fn steps() -> Vec<String> {
    let script = text("packaging/release");
    let (_, list) = script.split_once("\nsteps=(").unwrap();
    list.split(')').next().unwrap().split(' ').map(str::to_owned).collect()
}

#[test]
fn the_workflow_runs_the_steps_of_the_script_in_their_order() {
    let workflow = text(".github/workflows/release.yml");
    let run =
        workflow.lines().filter_map(|it| it.trim().strip_prefix("- run: packaging/release ")?.strip_suffix(" OUT"));
    assert_eq!(run.collect::<Vec<_>>(), steps());
    // Everything else comes from actions of known releases, or from the machine's own tools.
    for action in workflow.lines().filter_map(|it| it.trim().strip_prefix("- uses: ")) {
        let version = action.strip_prefix("actions/").and_then(|it| it.split_once("@v")).map(|it| it.1.parse::<u32>());
        assert!(matches!(version, Some(Ok(_))), "{action}");
    }
    assert!(workflow.contains("subject-checksums: OUT/SHA256SUMS"), "what the last step lists is attested");
}

#[test]
fn the_script_describes_each_step_and_knows_no_other() {
    let script = text("packaging/release");
    for step in steps() {
        assert!(script.contains(&format!("\n# {step:<7} ")) && script.contains(&format!("\n{step}() {{\n")), "{step}");
    }
    let dir = tempfile::tempdir().unwrap();
    let refused = Command::new(root().join("packaging/release")).args(["publish"]).arg(dir.path()).output().unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("no step publish"));
    // A step that needs no tools.
    fs::write(dir.path().join("gpuwatch.tar.gz"), "packed").unwrap();
    done(Command::new(root().join("packaging/release")).arg("sums").arg(dir.path()));
    let sums = fs::read_to_string(dir.path().join("SHA256SUMS")).unwrap();
    assert!(sums.ends_with("  gpuwatch.tar.gz\n"), "{sums}");
}

/// What `cargo binstall` downloads is what `packaging/package tarball` makes.
#[test]
fn binstall_finds_the_tarball_and_the_program_in_it() {
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let of = |name: &str| manifest["package"]["metadata"]["binstall"][name].as_str().unwrap().to_owned();
    let filled = |template: &str| {
        let values =
            [("{ name }", "gpuwatch"), ("{ bin }", "gpuwatch"), ("{ version }", "$version"), ("{ target }", "$target")];
        values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    let script = text("packaging/package");
    let file = filled(of("pkg-url").rsplit('/').next().unwrap());
    let folder = file.strip_suffix(".tar.gz").unwrap();
    assert!(script.contains(&format!("name={folder}\n")) && script.contains("\"$out/$name.tar.gz\""), "{file}");
    assert_eq!(filled(&of("bin-dir")), format!("{folder}/bin/gpuwatch"));
    assert_eq!(of("pkg-fmt"), "tgz");
}

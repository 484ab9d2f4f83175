//! Uses the generated files: bash completes with them, groff sets the manual, gpuwatch reads the config file.

use crate::helpers::terminal::PROGRAM;
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

fn generated(arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM).arg("generate").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Some programs are not everywhere.
fn run(command: &mut Command) -> Result<Output, String> {
    command.stdin(Stdio::null()).output().map_err(|why| format!("{}: {why}", command.get_program().display()))
}

#[test]
fn the_config_that_is_printed_is_read_and_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.toml");
    let text = generated(&["config"]);
    assert!(text.contains("#interval = \"500ms\"\n") && text.contains("#allow = []\n"), "{text}");
    let spelled: String = text
        .lines()
        .map(|it| {
            it.strip_prefix('#').filter(|line| line.contains(" = ") && !line.starts_with(' ')).unwrap_or(it).to_owned()
                + "\n"
        })
        .collect();
    for text in [text, spelled] {
        fs::write(&file, text).unwrap();
        let mut once = Command::new(PROGRAM);
        once.args(["once", "--no-nvml", "--config"]).arg(&file).env("GPUWATCH_SOCKET_DIR", home.path());
        let output = once.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // A flag overrides what the file sets; gpuwatch refuses a line that sets something no flag accepts.
    fs::write(&file, "[driver]\nno-nvml = true\n").unwrap();
    let driver = |more: &[&str]| {
        let mut once = Command::new(PROGRAM);
        once.args(["once", "--json", "--config"]).arg(&file).args(more);
        once.env("GPUWATCH_SOCKET_DIR", home.path()).env("GPUWATCH_NVML_PATH", "/nonexistent/libnvidia-ml.so.1");
        let reported: serde_json::Value = serde_json::from_slice(&once.output().unwrap().stdout).unwrap();
        reported["driver"]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!((driver(&[]).as_str(), driver(&["--no-nvml=false"]).as_str()), ("off", "absent"));
    fs::write(&file, "[driver]\ninterval = 'often'\n").unwrap();
    let output = Command::new(PROGRAM).args(["once", "--config"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(reported.contains("config.toml:2: driver.interval = \"often\""), "{reported}");
}

#[test]
fn bash_completes_a_command_and_a_flag() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("gpuwatch.bash");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(generated(&["completions", shell]).contains("recordings"), "{shell}");
    }
    fs::write(&file, generated(&["completions", "bash"])).unwrap();
    let complete = |words: &str, at: usize| {
        let script = format!(
            "set -e; source '{}'; COMP_WORDS=({words}); COMP_CWORD={at}; \
             _gpuwatch gpuwatch \"${{COMP_WORDS[{at}]}}\" gpuwatch; echo \"${{COMPREPLY[@]}}\"",
            file.display()
        );
        let output = run(Command::new("bash").args(["--norc", "--noprofile", "-c", &script]))?;
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok::<_, String>(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let reported = test_tiers::needs!(complete("gpuwatch recor", 1));
    assert_eq!(reported, "record recordings");
    assert_eq!(complete("gpuwatch replay --them", 2).unwrap(), "--theme");
    assert!(!complete("gpuwatch ''", 1).unwrap().contains("demo-job"));
}

#[test]
fn the_manual_is_set_without_a_warning_and_has_every_key() {
    let home = tempfile::tempdir().unwrap();
    let pages = home.path().join("man1");
    generated(&["man", pages.to_str().unwrap()]);
    let all: Vec<_> = fs::read_dir(&pages).unwrap().flatten().map(|it| it.path()).collect();
    assert!(all.len() > 10 && all.iter().all(|it| !it.to_string_lossy().contains("demo-job")), "{all:?}");
    assert_eq!(fs::read_to_string(pages.join("gpuwatch.1")).unwrap(), generated(&["man"]));
    let set = |page: &Path| {
        let output = run(Command::new("groff").args(["-man", "-Tutf8", "-ww", "-P-bcou"]).arg(page))?;
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
        Ok::<_, String>(String::from_utf8(output.stdout).unwrap().replace(['\u{2212}', '\u{2010}'], "-"))
    };
    for page in &all {
        let text = test_tiers::needs!(set(page));
        assert!(text.len() > 500, "{}: {text}", page.display());
    }
    let text = set(&pages.join("gpuwatch.1")).unwrap();
    for binding in gpuwatch::screen::keys::BINDINGS {
        // The formatter breaks lines and pads words.
        let words: Vec<&str> = binding.help.split_whitespace().collect();
        assert!(text.contains(words[0]) && text.contains(binding.keys), "{binding:?}");
    }
}

//! Pictures of the screen: those of the documents are what the program writes, and any picture is a whole SVG file.

use crate::{
    helpers::{
        story::{hostile, picture, usual},
        terminal::PROGRAM,
    },
    recordings::replay,
};
use gpuwatch::screen::{picture::svg, theme::Theme, ui::Ui};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The documents' pictures: name, screen, theme.
const KEPT: [(&str, &str, &str); 8] = [
    ("overview-dark.svg", "overview", "dusk"),
    ("overview-light.svg", "overview", "paper"),
    ("timeline-dark.svg", "timeline", "dusk"),
    ("timeline-light.svg", "timeline", "paper"),
    ("process-dark.svg", "process", "dusk"),
    ("process-light.svg", "process", "paper"),
    ("alerts-dark.svg", "alerts", "dusk"),
    ("alerts-light.svg", "alerts", "paper"),
];

fn shoot(file: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    for name in ["GPUWATCH_THEME", "GPUWATCH_COLOR", "GPUWATCH_GRAPH", "NO_COLOR", "LC_ALL", "LC_CTYPE"] {
        command.env_remove(name);
    }
    command.env("LANG", "C.UTF-8").args(["demo", "--screenshot"]).arg(file).args(arguments).output().unwrap()
}

/// `GPUWATCH_PICTURES=write cargo test --test it screenshot::` writes them again.
#[test]
fn the_pictures_of_the_documents_are_what_the_program_writes() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let kept = root.join("themes/pictures");
    let documents: String = crate::house::docs::documents().into_iter().map(|it| it.1).collect();
    let home = tempfile::tempdir().unwrap();
    for (name, screen, theme) in KEPT {
        let file = home.path().join(name);
        let output = shoot(&file, &["--size", "100x30", "--screen", screen, "--theme", theme]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let now = fs::read_to_string(&file).unwrap();
        assert!(now.len() < 100_000, "{name}: {} bytes", now.len());
        if std::env::var_os("GPUWATCH_PICTURES").is_some_and(|it| it == "write") {
            fs::create_dir_all(&kept).unwrap();
            fs::write(kept.join(name), &now).unwrap();
        }
        let before = fs::read_to_string(kept.join(name)).unwrap_or_default();
        assert!(
            before == now,
            "themes/pictures/{name} differs from what gpuwatch draws: check it, then write it with GPUWATCH_PICTURES=write"
        );
        assert!(documents.contains(&format!("themes/pictures/{name}")), "{name} is in a document");
    }
}

#[test]
fn a_picture_is_of_the_size_and_the_screen_that_were_asked_for_and_replaces_nothing() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("small.svg");
    let output = shoot(&file, &["--size", "40x12", "--screen", "alerts", "--theme", "plain"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("viewBox=\"0 0 384 240\""), "{text}");
    assert!(text.contains(">alerts</text>"), "{text}");
    for (name, arguments, fault) in [
        ("small.svg", &[][..], "is not written over"),
        ("x.png", &[], "a picture is written as SVG"),
        ("x.svg", &["--size", "0x9"], "1 to 500 columns"),
        ("x.svg", &["--size", "big"], "as in 120x40"),
    ] {
        let output = shoot(&home.path().join(name), arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && printed.contains(fault), "{name}: {printed}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let alone = Command::new(PROGRAM).args(["demo", "--size", "80x24"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "a size is of a picture");
}

#[test]
fn a_live_picture_needs_no_terminal() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("now.svg");
    let mut command = Command::new(PROGRAM);
    command.env("GPUWATCH_SOCKET_DIR", home.path()).args(["--no-nvml", "--screenshot"]).arg(&file);
    assert!(command.output().unwrap().status.success());
    assert!(fs::read_to_string(&file).unwrap().contains("gpuwatch run"));
}

/// A replay's picture is of its end, with where it stands below.
#[test]
fn a_recording_has_pictures_too() {
    let home = tempfile::tempdir().unwrap();
    let recording = replay::file(home.path(), "run", &replay::lines(&usual().events), 4096, false);
    let file = home.path().join("end.svg");
    let mut command = Command::new(PROGRAM);
    command.env("XDG_CONFIG_HOME", home.path()).arg("replay").arg(recording);
    let output = command.args(["--screen", "ranks", "--screenshot"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&file).unwrap();
    for phrase in ["processes on all devices", "4243", "step 700"] {
        assert!(text.contains(phrase), "no {phrase:?} in {text}");
    }
}

/// Names that want to break out are text, and what is drawn is in the frame, at every size.
#[test]
fn hostile_names_cannot_inject_markup_into_a_picture() {
    let session = hostile().session();
    for name in ["dusk", "mono"] {
        let theme = Theme::builtin(name).unwrap();
        for (width, height) in [(0, 0), (1, 1), (40, 12), (200, 60)] {
            let drawn = picture(&session, &Ui::default(), &theme, width, height);
            let text = svg(&drawn, &theme, "a \"b\" <c> & \x1b");
            assert_eq!((text.matches('<').count(), text.matches("<svg ").count()), (text.matches('>').count(), 1));
            assert!(!text.contains("<c>") && text.contains("a &quot;b&quot; &lt;c&gt; &amp; "), "{text}");
            assert!(text.chars().all(|it| it == '\n' || !it.is_control()));
        }
    }
}

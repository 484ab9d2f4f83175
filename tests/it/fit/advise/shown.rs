//! `--for`: recordings and running jobs show what was measured.

use super::{super::Asked, JOB};
use crate::{
    helpers::{
        story::{Story, picture, text},
        torch,
    },
    house::schemas,
    whatif::{
        findings::{check, fragmenting, recorded},
        running_job::Windowed,
    },
};
use gpuwatch::{
    facts::event::{Advised, Fact, ProbeId, advised::AdvisedRow},
    screen::{
        theme::Theme,
        ui::{Screen, Ui},
    },
};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt};

const FLAGS: [&str; 3] = ["--advise=sgd,set-to-none", "--gpu", "RTX 4090"];

#[test]
fn a_recording_shows_what_was_measured_for_its_job() {
    test_tiers::change!("several starts of PyTorch");
    let asked = Asked::new(JOB);
    let recording = asked.home.0.path().join("run.jsonl.zst");
    recorded(&fragmenting(), &recording);
    let named = recording.to_str().unwrap();
    assert!(!check(&recording).0.contains("measured: "));
    let output = asked.fit(&[&FLAGS[..], &["--for", named]].concat(), &["gpt"]);
    let table = torch::stdout(&output);
    let peak = table.lines().find_map(|it| it.strip_prefix("none ")).unwrap().trim();
    let (words, json) = check(&recording);
    for expected in
        [&format!("measured: the job takes {peak} as it is"), " with sgd (other training), fits on RTX 4090"]
    {
        assert!(words.contains(expected), "{expected}: {words}\n{table}");
    }
    schemas::check("check", &json);
    // One that is unpacked has no frames; one that is still written has another writer.
    fs::write(&recording, "").unwrap();
    recorded(&fragmenting(), &recording);
    let whole = zstd::decode_all(&*fs::read(&recording).unwrap()).unwrap();
    let open = String::from_utf8(whole).unwrap();
    let open: Vec<&str> = open.lines().filter(|it| !it.contains("\"type\":\"closed\"")).collect();
    fs::write(&recording, open.join("\n") + "\n").unwrap();
    let why = || {
        let refused = asked.fit(&[&FLAGS[..], &["--for", named]].concat(), &["gpt"]);
        let why = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(2) && !why.contains("running on"), "{why}");
        why
    };
    assert!(why().contains("is unpacked"), "{}", why());
    fs::write(&recording, zstd::encode_all(&*fs::read(&recording).unwrap(), 1).unwrap()).unwrap();
    assert!(why().contains("is still written"), "{}", why());
    // What others may write to may be another file by the time of the answer.
    fs::set_permissions(&recording, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(why().contains("not a file of this user's alone"), "{}", why());
}

#[test]
fn viewers_of_a_running_job_get_what_was_measured() {
    test_tiers::change!("several starts of PyTorch");
    let mut job = Windowed::start();
    job.wait(|state| state["enabled"] == false);
    let asked = Asked::new(JOB);
    let mut command = asked.command(&torch::python(), &[], &[&FLAGS[..], &["--for", &job.pid]].concat(), &["gpt"]);
    command.envs(job.job.home.variables());
    assert!(torch::stdout(&command.output().unwrap()).contains("\nsgd "));
    let folder = job.job.home.variables().into_iter().find(|it| it.0 == "GPUWATCH_SOCKET_DIR").unwrap().1;
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let answers = files.filter(|it| it.extension() == Some("replays".as_ref()));
    let answers: Vec<String> = answers.map(|it| fs::read_to_string(it).unwrap()).collect();
    let answer: Value = serde_json::from_str(&answers.concat()).unwrap();
    assert_eq!(answer["rows"][0]["techniques"], "sgd", "{answer:#}");
}

#[test]
fn the_screen_of_a_process_shows_what_was_measured() {
    let mut story: Story = fragmenting();
    let row = AdvisedRow {
        techniques: "checkpoint".into(),
        peak: 5 << 30,
        price: "same result".into(),
        verdict: Some("fits on L4".into()),
        edit: vec!["train.py:9: \u{1b}[2J".into()],
    };
    let answer = Advised { probe: ProbeId(0), peak: 9 << 30, measured: 4, rows: vec![row] };
    story.add(Fact::Advised(Box::new(answer)));
    let ui = Ui { screen: Screen::Process, ..Ui::default() };
    let shown = text(&picture(&story.session(), &ui, &Theme::builtin("dusk").unwrap(), 120, 70));
    for expected in ["the job takes 9.00 GiB as it is", "5.00 GiB with checkpoint", "train.py:9: \\u{1b}[2J"] {
        assert!(shown.contains(expected), "{expected}\n{shown}");
    }
}

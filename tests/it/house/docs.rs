//! The documents: generated pages match the program, links lead somewhere, commands exist.
//!
//! `GPUWATCH_DOCS=write cargo test --test it docs::` rewrites the reference, and the counters of the C header.

use crate::{helpers::terminal::PROGRAM, house::schemas};
use gpuwatch::{
    commands::serve::families::{Family, Kind},
    facts::{
        event::{
            replayed::{WINDOW_SAVES_PERCENT, WINDOW_STEPS},
            wire::{Counter, Counters, Label, Torch, Unit},
        },
        figures::{Figure, Of, RECORDED_EVERY, TREE_EVERY, WATCHED_EVERY},
        metrics::{Every, Metric, Shown},
    },
    model::{
        analysis::{host::HostRung, ladder::Gap},
        cluster::overview::figure::{RankFigure, Worse},
        fit,
    },
    screen::{keys, ui::preset::Preset},
    sources::{drm, nvml},
};
use std::{
    env,
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the program's standard output for a user without any setting.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(arguments).env_clear().output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Names of all commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = printed(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let named =
        |it: &str| it.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?.split(' ').next().map(str::to_owned);
    list.lines().filter_map(named).filter(|it| it != "help").collect()
}

fn block(kind: &str, text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
    format!("```{kind}\n{}\n```\n", lines.join("\n"))
}

/// The files of the reference, by name.
fn reference() -> Vec<(&'static str, String)> {
    let mut of_commands = format!("# Commands\n\n## gpuwatch\n\n{}", block("text", &printed(&["--help"])));
    for it in commands() {
        let _ = write!(of_commands, "\n## gpuwatch {it}\n\n{}", block("text", &printed(&[&it, "--help"])));
    }
    let mut of_causes = "# Causes\n".to_owned();
    let list = printed(&["explain"]);
    for id in list.lines().take_while(|it| !it.is_empty()).filter_map(|it| it.split(' ').next()) {
        let _ = write!(of_causes, "\n## {id}\n\n{}", block("text", &printed(&["explain", id])));
    }
    let mut pages = vec![
        ("docs/reference/commands.md", of_commands),
        (
            "docs/reference/config.md",
            format!("# Configuration file\n\n{}", block("toml", &printed(&["generate", "config"]))),
        ),
        ("docs/reference/keys.md", format!("# Keys\n\n{}", keys::markdown())),
        ("docs/reference/causes.md", of_causes),
        ("docs/reference/reports.md", crate::analysis::public_reports::page()),
        ("docs/reference/counters.md", of_counters()),
        ("docs/reference/metrics.md", of_metrics()),
        ("docs/reference/figures.md", of_figures()),
        ("docs/reference/prometheus.md", of_prometheus()),
        ("docs/reference/devices.md", fit::markdown()),
        ("docs/reference/techniques.md", fit::technique::markdown()),
        (HEADER, header()),
    ];
    pages.extend(schemas::of_tables());
    pages
}

fn of_metrics() -> String {
    let mut text = "# Metrics of devices\n\nWhat the driver reports of a device beside its memory, in `metrics` of \
                    `gpuwatch once --json` and of recordings. A metric that the driver does not report is left out there, and \
                    `–` on the device screen. Metrics that gpuwatch reads at least every 5 seconds are also columns of \
                    `gpuwatch export`.\n\nA call that a device or driver lacks is made once a minute. Calls with *watched* \
                    are slow: gpuwatch makes them every 2 seconds for the device that the device screen shows, and `gpuwatch \
                    once` makes them.\n\n\
                    Files are those of [AMD's and Intel's devices](../amd-and-intel.md); a file of a sensor is in the device's \
                    `hwmon`. None of them is slow: those with *watched* are read every 2 seconds.\n\n\
                    | name | unit | meaning | on the device screen | every | call of NVML | file of amdgpu | of xe | of i915 |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for it in Metric::TABLE {
        let shown = match it.shown {
            Shown::As(label) | Shown::Line(label) => label.to_owned(),
            Shown::Behind(front) => format!("behind `{}`", front.row().name),
            Shown::No => String::new(),
        };
        let every = if it.every == Every::Watched { "watched".to_owned() } else { format!("{} s", it.every.seconds()) };
        let (name, unit) = (it.name, it.unit.name());
        let sources = ["amdgpu", "xe", "i915"].map(|module| drm::file(module, it.metric));
        let sources = [nvml::call(it.metric)].into_iter().chain(sources);
        let sources: Vec<String> =
            sources.map(|source| source.map_or_else(String::new, |it| format!("`{it}`"))).collect();
        let sources = sources.join(" | ");
        let _ = writeln!(text, "| `{name}` | {unit} | {} | {shown} | {every} | {sources} |", it.meaning);
    }
    text
}

fn of_figures() -> String {
    let mut text = format!(
        "# Figures of processes\n\nWhat a process uses beside device memory, in `figures` of `gpuwatch once --json` and of \
         recordings, and under *use* on the process screen. A figure that the driver or the kernel does not report is left \
         out there, and `–` on the screen.\n\ngpuwatch reads only what is needed: every {WATCHED_EVERY} seconds for the \
         process on the process screen (those of its tree every {TREE_EVERY}) and for all processes while their list is sorted \
         by a figure, every {RECORDED_EVERY} seconds for a \
         recording (none of trees), and for `gpuwatch once`. Those of probed processes are always \
         read every {RECORDED_EVERY} seconds, because CPU time shows that a job works while it makes no step. Where several \
         processes share a device, their parts of its time are \
         read every {RECORDED_EVERY} seconds, because they show which of them is idle. Rates are of the time between two readings.\n\n\
         | name | unit | meaning | on the process screen | of | source |\n|---|---|---|---|---|---|\n"
    );
    for it in Figure::TABLE {
        let of = match it.of {
            Of::Device => "device",
            Of::Host => "host",
            Of::Tree => "tree",
        };
        let (name, unit, source, label) = (it.name, it.unit.name(), it.source, it.label);
        let _ = writeln!(text, "| `{name}` | {unit} | {} | {label} | {of} | `{source}` |", it.meaning);
    }
    text
}

fn of_prometheus() -> String {
    let mut text = "# Figures for Prometheus\n\nWhat `gpuwatch serve` answers. A counter's figures have `_total` behind its name. \
                    What is unknown has no figure, and a label without a value is left out.\n\nWhere several processes of a \
                    device have the same rank and run, all but the first have the label `process` with a number.\n\n\
                    | name | kind | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for it in Family::TABLE {
        let labels: Vec<String> = it.labels.iter().map(|it| format!("`{it}`")).collect();
        let kind = if it.kind == Kind::Counter { "counter" } else { "gauge" };
        let _ = writeln!(text, "| `{}` | {kind} | {} | {} |", it.name, labels.join(" "), it.meaning);
    }
    text
}

fn of_counters() -> String {
    let mut text =
        "# Counters\n\nThe fields of the wire's `sample`, of `counters` in `gpuwatch once --json`, and the columns of \
                    `gpuwatch export`. One that is unknown is left out or empty.\n\n\
                    | name | unit | meaning | on the process screen | in PyTorch |\n|---|---|---|---|---|\n"
            .to_owned();
    for it in Counters::TABLE {
        let unit = match it.unit {
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        };
        let label = match it.label {
            Label::Always(label) | Label::IfKnown(label) => label,
            Label::None => "",
        };
        let torch = match it.torch {
            Torch::Stats(name) => format!("`{name}`"),
            Torch::Pools(name) => format!("sum of `{name}`"),
            Torch::Host => "`host_memory_stats`".to_owned(),
            Torch::None => String::new(),
        };
        let _ = writeln!(text, "| `{}` | {unit} | {} | {label} | {torch} |", it.name, it.meaning);
    }
    text
}

const HEADER: &str = "probes/gpuwatch-probe/gpuwatch_probe.h";

/// The C header as it is, with the places of the counters.
fn header() -> String {
    const BEGIN: &str = "In bytes by default; current or cumulative, never differences. */\nenum {\n";
    const END: &str = "    GPUWATCH_SLOTS = ";
    let text = fs::read_to_string(root().join(HEADER)).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let place =
        |it: &Counter| format!("    GPUWATCH_{} = {}, /* {} */\n", it.name.to_uppercase(), it.place, it.meaning);
    let places: String = Counters::TABLE.iter().map(place).collect();
    format!("{before}{BEGIN}{places}{END}{after}")
}

#[test]
fn the_reference_matches_the_program() {
    for (name, now) in reference() {
        let path = root().join(name);
        if env::var_os("GPUWATCH_DOCS").is_some_and(|it| it == "write") {
            fs::write(&path, &now).unwrap();
        }
        let before = fs::read_to_string(&path).unwrap_or_default();
        assert!(before == now, "{name} differs: GPUWATCH_DOCS=write cargo test --test it docs::");
    }
}

/// The hand-written tables of the rungs call every gap as the screens do.
#[test]
fn the_tables_of_the_rungs_have_the_names_of_the_screens() {
    let names = Gap::ALL.map(|it| it.row().name);
    for file in ["README.md", "docs/ladder.md"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let rows = text.lines().skip_while(|it| !it.starts_with("| rung | gap above it |")).skip(2);
        let cells = rows.take_while(|it| it.starts_with('|')).filter_map(|it| it.split(" | ").nth(1));
        let words: Vec<&str> = cells.map(|it| it.split([':', '|']).next().unwrap_or_default().trim()).collect();
        assert!(words.len() == 7 && words.iter().all(|it| names.contains(it)), "{file}: {words:?}");
    }
}

/// The table of gaps in the page of the ladder.
#[test]
fn the_page_of_the_ladder_has_every_gap() {
    let path = root().join("docs/ladder.md");
    let before = fs::read_to_string(&path).unwrap();
    let (above, rest) = before.split_once("<!-- gaps -->\n").unwrap();
    let (_, below) = rest.split_once("<!-- end of gaps -->\n").unwrap();
    let mut table =
        "| gap | in JSON | in themes | what it is | what makes it smaller |\n|---|---|---|---|---|\n".to_owned();
    for row in Gap::ALL.map(Gap::row) {
        let remedy = if row.remedy.is_empty() { "–".to_owned() } else { row.remedy.to_owned() };
        let _ = writeln!(table, "| {} | `{}` | `{}` | {} | {remedy} |", row.name, row.id, row.role, row.cause);
    }
    let now = format!("{above}<!-- gaps -->\n{table}<!-- end of gaps -->\n{below}");
    if env::var_os("GPUWATCH_DOCS").is_some_and(|it| it == "write") {
        fs::write(&path, &now).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(written == now, "docs/ladder.md differs: GPUWATCH_DOCS=write cargo test --test it docs::");
}

/// The table of rungs in the page of host memory.
#[test]
fn the_page_of_host_memory_has_every_rung() {
    let path = root().join("docs/host-memory.md");
    let before = fs::read_to_string(&path).unwrap();
    let (above, rest) = before.split_once("<!-- host rungs -->\n").unwrap();
    let (_, below) = rest.split_once("<!-- end of host rungs -->\n").unwrap();
    let mut table = "| rung | in JSON | what it is | what makes it smaller |\n|---|---|---|---|\n".to_owned();
    for row in HostRung::TABLE {
        let remedy = if row.remedy.is_empty() { "–" } else { row.remedy };
        let _ = writeln!(table, "| {} | `{}` | {} | {remedy} |", row.name, row.id, row.cause);
    }
    let now = format!("{above}<!-- host rungs -->\n{table}<!-- end of host rungs -->\n{below}");
    if env::var_os("GPUWATCH_DOCS").is_some_and(|it| it == "write") {
        fs::write(&path, &now).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(written == now, "docs/host-memory.md differs: GPUWATCH_DOCS=write cargo test --test it docs::");
}

/// The table of presets in the page of screens.
#[test]
fn the_page_of_screens_has_every_preset() {
    let mut table = "| preset | what it shows | boxes, the most important first |\n|---|---|---|\n".to_owned();
    for row in Preset::TABLE {
        let boxes: Vec<_> = row.boxes.iter().map(|it| it.name()).collect();
        let _ = writeln!(table, "| `{}` | {} | {} |", row.name, row.shows, boxes.join(", "));
    }
    has_table("docs/screens.md", "presets", &table);
}

/// The table of figures in the page of many machines.
#[test]
fn the_page_of_many_machines_has_every_figure_that_ranks_are_compared_by() {
    let mut table = "| figure | what it is | worse |\n|---|---|---|\n".to_owned();
    for row in RankFigure::TABLE {
        let worse = if row.worse == Worse::High { "higher" } else { "lower" };
        let _ = writeln!(table, "| {} | {} | {worse} |", row.label, row.meaning);
    }
    has_table("docs/many-machines.md", "rank figures", &table);
}

/// Checks the table between two marks of a page, or writes it.
fn has_table(page: &str, mark: &str, table: &str) {
    let path = root().join(page);
    let before = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- end of {mark} -->\n"));
    let (above, rest) = before.split_once(&begin).unwrap();
    let (_, below) = rest.split_once(&end).unwrap();
    let now = format!("{above}{begin}{table}{end}{below}");
    if env::var_os("GPUWATCH_DOCS").is_some_and(|it| it == "write") {
        fs::write(&path, &now).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(written == now, "{page} differs: GPUWATCH_DOCS=write cargo test --test it docs::");
}

/// Every document that a person writes.
pub(crate) fn documents() -> Vec<(PathBuf, String)> {
    let of = |folder: &Path| fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect::<Vec<_>>();
    let folders = [root(), root().join("docs"), root().join("docs/howto")];
    let all = folders.iter().flat_map(|it| of(it));
    let documents: Vec<_> = all
        .filter(|it| it.extension().is_some_and(|extension| extension == "md"))
        .map(|it| (it.clone(), fs::read_to_string(it).unwrap()))
        .collect();
    assert!(documents.len() > 10, "{}", documents.len());
    documents
}

/// Returns all texts between two markers.
fn between<'a>(text: &'a str, before: &'a str, after: char) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(move |it| it.split(after).next())
}

#[test]
fn every_link_of_the_documents_leads_to_a_file() {
    for (path, text) in documents() {
        let links =
            between(&text, "](", ')').chain(between(&text, "src=\"", '"')).chain(between(&text, "srcset=\"", '"'));
        for link in links.filter(|it| !it.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            let target = path.parent().unwrap().join(target);
            assert!(target.exists(), "{}: {link}", path.display());
            if !anchor.is_empty() {
                let heading = |it: &str| it.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
                let linked = fs::read_to_string(&target).unwrap();
                assert!(
                    linked.lines().any(|it| it.starts_with('#') && heading(it) == anchor),
                    "{}: {link}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn every_page_of_the_book_is_in_its_table_of_contents() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    for folder in [docs.clone(), docs.join("howto"), docs.join("reference")] {
        for page in fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()) {
            let name = page.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned();
            let is_page = page.extension().is_some_and(|it| it == "md") && name != "SUMMARY.md";
            assert!(!is_page || summary.contains(&format!("]({name})")), "docs/SUMMARY.md lacks {name}");
        }
    }
}

/// The flags and commands that the documents show exist: the test runs each line with `--help`.
#[test]
fn every_command_in_the_documents_exists() {
    let (mut seen, programs) = (0, tempfile::tempdir().unwrap());
    let notify = programs.path().join("notify-send");
    fs::write(&notify, "").unwrap();
    fs::set_permissions(&notify, fs::Permissions::from_mode(0o700)).unwrap();
    for (path, text) in documents() {
        let lines = text.lines().filter_map(|it| it.strip_prefix("$ ")).flat_map(|it| it.split([';', '|']));
        for line in lines.filter_map(|it| it.trim().strip_prefix("gpuwatch")) {
            let (own, _) = line.split_once(" -- ").unwrap_or((line, ""));
            let own = own.split('#').next().unwrap_or_default();
            let arguments = shlex(own);
            let mut command = Command::new(PROGRAM);
            let output =
                command.args(&arguments).arg("--help").env_clear().env("PATH", programs.path()).output().unwrap();
            assert!(output.status.success(), "{}: gpuwatch{line}: {output:?}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen}");
}

/// Words of a line, those in quotes as one.
fn shlex(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 150, "{lines} lines: what is longer belongs into docs");
}

#[test]
fn the_limits_of_windows_are_documented() {
    let text = fs::read_to_string(root().join("docs/whatif.md")).unwrap();
    for words in [
        format!("only if it saves {WINDOW_SAVES_PERCENT} % or more"),
        format!("the probe to trace {WINDOW_STEPS} steps"),
    ] {
        assert!(text.contains(&words), "{words}");
    }
}

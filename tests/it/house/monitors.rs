//! The figures of nvtop and nvitop, and where gpuwatch shows each: a table for users, checked against the program.
//!
//! `GPUWATCH_DOCS=write cargo test --test it monitors::` writes the page.

use crate::{
    analysis::step_time::recorded,
    helpers::story::{GIB, device, picture, text},
    recordings::export::exported,
    screens::presets::working,
};
use gpuwatch::{
    facts::{
        event::{DeviceId, DeviceInfo, DeviceMemory, Fact},
        figures::Figure,
        maker::Maker,
        metrics::{Metric, Shown},
        units::Bytes,
    },
    model::session::Session,
    screen::{
        keys,
        theme::Theme,
        ui::{Screen, Ui, preset::Preset, tree::Listing},
    },
};
use std::{env, fmt::Write as _, fs, path::Path};

/// The versions that the table was made from.
const VERSIONS: [&str; 2] = ["nvtop 3.3.2", "nvitop 1.7.0"];

/// A figure, who has it, and where gpuwatch shows it.
type Row = (&'static str, Has, Place);

/// Which of the programs has a figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    Nvtop,
    Nvitop,
    Both,
}

/// Where gpuwatch shows it.
enum Place {
    /// A metric of the device screen.
    Device(Metric),
    /// A figure of the process screen.
    Process(Figure),
    /// These words, on this screen.
    On(&'static str, fn() -> Ui, &'static str),
    /// These words name a command, a file or keys; the proof is checked.
    Prints(&'static str, Proof),
    /// Nowhere, and why; no screen and no figure of gpuwatch has one of these words.
    Not(&'static str, &'static [&'static str]),
}

/// What shows that something is printed, or that keys do it.
enum Proof {
    /// A process in `once --json` has this field.
    Field(&'static str),
    /// `export` has these columns.
    Columns(&'static [&'static str]),
    /// The help has these keys, with these words.
    Keys(&'static [(&'static str, &'static str)]),
}

use Has::{Both, Nvitop, Nvtop};
use Place::{Device, Not, On, Prints, Process};

fn overview() -> Ui {
    Ui::default()
}

fn preset(preset: Preset) -> Ui {
    let mut ui = Ui::default();
    ui.show_preset(preset);
    ui
}

fn hardware() -> Ui {
    preset(Preset::Hardware)
}

fn compact() -> Ui {
    preset(Preset::Compact)
}

fn tree() -> Ui {
    Ui { listing: Listing::Tree, ..compact() }
}

fn of(screen: Screen) -> Ui {
    Ui { screen, ..Ui::default() }
}

fn device_screen() -> Ui {
    of(Screen::Device)
}

fn process_screen() -> Ui {
    of(Screen::Process)
}

const OVERVIEW: &str = "overview";
const HARDWARE: &str = "preset `hardware`";
const COMPACT: &str = "preset `compact`";
const DEVICE: &str = "device screen";
const PROCESS: &str = "process screen";

const OF_DEVICES: &[Row] = &[
    ("index and name", Both, On(OVERVIEW, overview, "NVIDIA H200")),
    ("driver version", Nvitop, On(DEVICE, device_screen, "driver 570.86.15")),
    (
        "highest CUDA version of the driver",
        Nvitop,
        Not("it concerns the installation, not the load; `nvidia-smi` prints it", &["cuda version", "cuda 1"]),
    ),
    ("PCI bus id", Nvitop, Not("gpuwatch names devices by index and UUID, as CUDA and MIG do", &["bus id", "0000:"])),
    ("display active", Nvitop, Not("a device that trains drives no display", &["display"])),
    ("utilisation", Both, Device(Metric::GpuPercent)),
    (
        "effective load: utilisation times the power's part of its limit",
        Nvtop,
        Not("utilisation, the power and its limit are shown instead of their product", &["effective"]),
    ),
    ("memory used, total, percent", Both, On(OVERVIEW, overview, "140.00 GiB")),
    ("memory bandwidth utilisation", Nvitop, Device(Metric::MemoryPercent)),
    ("encoder and decoder utilisation", Both, Device(Metric::EncoderPercent)),
    ("SM clock, current and maximum", Both, Device(Metric::SmMhz)),
    ("memory clock, current and maximum", Both, Device(Metric::MemoryMhz)),
    ("performance state", Nvitop, Device(Metric::PerformanceState)),
    ("power and its limit", Both, Device(Metric::PowerMw)),
    ("temperature, with the slowdown threshold", Both, Device(Metric::CelsiusNow)),
    ("fan speed in percent", Both, Device(Metric::FanPercent)),
    (
        "fan speed in revolutions",
        Nvtop,
        Not(
            "NVML has no revolutions on the devices that jobs train on; nvtop shows them for other vendors",
            &["rpm", "revolutions"],
        ),
    ),
    ("PCIe generation and width", Nvtop, Device(Metric::PcieGeneration)),
    ("PCIe throughput", Both, Device(Metric::PcieSent)),
    ("ECC errors", Nvitop, Device(Metric::EccErrors)),
    ("persistence mode", Nvitop, Device(Metric::Persistence)),
    ("compute mode", Nvitop, Device(Metric::ComputeMode)),
    ("MIG mode", Nvitop, Device(Metric::Mig)),
    ("MIG devices with their memory", Nvitop, On(OVERVIEW, overview, "MIG 1g.18gb")),
    (
        "MIG instance ids",
        Nvitop,
        Not("a MIG device has its UUID and its parent, which CUDA_VISIBLE_DEVICES takes", &["instance"]),
    ),
    ("BAR1", Nvitop, Device(Metric::Bar1Used)),
    (
        "number of shader cores, size of the L2 cache",
        Nvtop,
        Not("constants of a model; nvtop shows them for other vendors", &["shader", "l2 cache"]),
    ),
    ("history of utilisation", Both, On(HARDWARE, hardware, "─ course of GPU 0")),
    ("history of memory", Both, On(OVERVIEW, overview, "─ allocated · rank 0")),
    ("history of clock, power and temperature", Nvtop, On(HARDWARE, hardware, "temperature")),
    (
        "history of encoder, decoder and fan",
        Nvtop,
        Not(
            "they do not explain the pace of training; the current values are on the device screen",
            &["course of enc", "encoder over time", "fan over time"],
        ),
    ),
];

const OF_PROCESSES: &[Row] = &[
    ("pid", Both, On(COMPACT, compact, "4242")),
    ("user", Both, On(COMPACT, compact, "ada")),
    ("device", Both, On(COMPACT, compact, "gpu")),
    ("kind (graphics or compute)", Both, Not("gpuwatch lists the processes that compute", &["graphics"])),
    ("device memory", Both, On(COMPACT, compact, "41.00 GiB")),
    ("device memory in percent", Both, On(DEVICE, device_screen, "29 %")),
    ("part of the device's time", Both, Process(Figure::SmPercent)),
    ("part of the memory's time", Nvitop, Process(Figure::MemoryPercent)),
    ("encoder", Both, Process(Figure::EncoderPercent)),
    ("decoder", Both, Process(Figure::DecoderPercent)),
    ("CPU time in percent", Both, Process(Figure::CpuPercent)),
    ("host memory", Both, Process(Figure::Rss)),
    (
        "virtual memory",
        Nvtop,
        Not("address space says nothing of memory in use: CUDA reserves terabytes of it", &["virtual"]),
    ),
    ("running time", Nvitop, Prints("`started_us` in `gpuwatch once --json`", Proof::Field("started_us"))),
    ("command line", Both, On(COMPACT, compact, "python train.py")),
    ("environment", Nvitop, On(PROCESS, process_screen, "set by env")),
    ("tree with parents", Nvitop, On("key `V`", tree, "torchrun (pid 4000)")),
    (
        "history of one process",
        Nvitop,
        Prints(
            "columns `process_…` of `gpuwatch export`; the timeline has its memory",
            Proof::Columns(&["process_sm_percent", "process_memory_percent", "process_cpu_percent", "process_rss"]),
        ),
    ),
    (
        "sort and filter",
        Both,
        Prints("keys `s`, `i`, `/`", Proof::Keys(&[("s", "sort"), ("i", "reverse"), ("/", "filter")])),
    ),
    ("signals", Both, Prints("key `K`", Proof::Keys(&[("K", "signal")]))),
];

const OF_HOSTS: &[Row] = &[
    (
        "CPU, load, memory and swap of the host",
        Nvitop,
        Not("gpuwatch shows what the job uses of them; `htop` shows the host", &["swap", "load average"]),
    ),
    (
        "history of host CPU and memory",
        Nvitop,
        Not("growth of a job's host memory is a finding, with its curve", &["host cpu", "cpu of the host"]),
    ),
];

const TABLES: [(&str, &[Row]); 3] = [("Devices", OF_DEVICES), ("Processes", OF_PROCESSES), ("Host", OF_HOSTS)];

fn page() -> String {
    let [one, other] = VERSIONS;
    let mut text = format!(
        "# Figures of other monitors\n\nEvery figure that {one} and {other} show of NVIDIA devices and their processes, and \
         where gpuwatch shows it. What gpuwatch has beyond them is in [Metrics of devices](metrics.md), [Figures of \
         processes](figures.md) and [Counters](counters.md).\n"
    );
    for (title, rows) in TABLES {
        let _ = write!(text, "\n## {title}\n\n| figure | nvtop | nvitop | gpuwatch |\n|---|---|---|---|\n");
        for (figure, has, place) in rows {
            let mark = |is: bool| if is { "yes" } else { "" };
            let (one, other) = (mark(*has != Nvitop), mark(*has != Nvtop));
            let _ = writeln!(text, "| {figure} | {one} | {other} | {} |", words(place));
        }
    }
    text
}

fn words(place: &Place) -> String {
    match place {
        Device(metric) => format!("device screen: {} (`{}`)", label(*metric), metric.row().name),
        Process(figure) => {
            format!("process screen: {} (`{}`)", figure.row().label, gpuwatch::facts::values::Key::name(*figure))
        }
        On(screen, ..) => (*screen).to_owned(),
        Prints(what, _) => (*what).to_owned(),
        Not(why, _) => format!("not: {why}"),
    }
}

fn label(metric: Metric) -> &'static str {
    let Shown::As(label) = metric.row().shown else { panic!("{metric:?} has no label on the device screen") };
    label
}

#[test]
fn the_page_of_other_monitors_matches_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/monitors.md");
    let now = page();
    if env::var_os("GPUWATCH_DOCS").is_some_and(|it| it == "write") {
        fs::write(&path, &now).unwrap();
    }
    let before = fs::read_to_string(&path).unwrap_or_default();
    assert!(before == now, "docs/reference/monitors.md differs: GPUWATCH_DOCS=write cargo test --test it monitors::");
}

/// Two ranks at work, with everything known that the table names, and a MIG device of another board.
fn session() -> Session {
    let mut story = working();
    let mig = DeviceId("MIG-1".to_owned());
    let name = "NVIDIA H200 MIG 1g.18gb".into();
    story.add(Fact::Device(DeviceInfo {
        id: mig.clone(),
        index: 7,
        name,
        parent: Some(device(7)),
        maker: Maker::Nvidia,
    }));
    let [total, used, reserved] = [18, 5, 1].map(|it| Bytes(it * GIB));
    let memory = DeviceMemory { total, used, free: Bytes(12 * GIB), reserved: Some(reserved), unified: None };
    story.add(Fact::Memory { device: mig, reading: Ok(memory) });
    story.add(Fact::Driver(gpuwatch::facts::event::DriverState::Up { version: Some("570.86.15".into()) }));
    let figures = [(Figure::EncoderPercent, 7), (Figure::DecoderPercent, 8), (Figure::MemoryPercent, 9)];
    let changes = figures.into_iter().collect();
    story.add(Fact::Figures { pid: 4242, device: Some(device(0)), changes });
    let mut session = story.session();
    if let Some(info) = session.process_info.get_mut(&4242) {
        info.environment = vec!["NCCL_DEBUG=INFO".into()];
    }
    session
}

/// Each figure is on the screen that the table names.
#[test]
fn every_figure_of_other_monitors_is_where_the_table_has_it() {
    let session = session();
    let shown = |ui: &Ui| text(&picture(&session, ui, &Theme::builtin("dusk").unwrap(), 200, 90));
    for (figure, _, place) in TABLES.iter().flat_map(|it| it.1) {
        let (shown, words) = match place {
            Device(metric) => (shown(&device_screen()), label(*metric)),
            Process(figure) => (shown(&process_screen()), figure.row().label),
            On(_, ui, words) => (shown(&ui()), *words),
            Prints(..) | Not(..) => continue,
        };
        assert!(shown.contains(words), "{figure}: no {words}\n{shown}");
        if words.starts_with("MIG ") {
            // Its memory is beside its name.
            let line = shown.lines().find(|it| it.contains(words)).unwrap_or_default();
            assert!(line.contains("18.00 GiB"), "{line}\n{shown}");
        }
    }
}

#[test]
fn every_command_and_key_of_the_table_exists() {
    let schema = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/schemas/once.json"));
    let schema: serde_json::Value = serde_json::from_str(&schema.unwrap()).unwrap();
    let process = &schema["properties"]["devices"]["items"]["properties"]["processes"]["items"];
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.jsonl.zst");
    recorded(&working(), &file);
    let csv = exported(&file, "csv");
    let header: Vec<&str> = csv.lines().next().unwrap_or_default().split(',').collect();
    for (figure, _, place) in TABLES.iter().flat_map(|it| it.1) {
        let Prints(_, proof) = place else { continue };
        match proof {
            // The schema's test holds real output to it.
            Proof::Field(name) => {
                assert!(process["required"].as_array().unwrap().contains(&(*name).into()), "{figure}: {process}");
            }
            Proof::Columns(names) => {
                assert!(names.iter().all(|name| header.contains(name)), "{figure}: {header:?}");
            }
            Proof::Keys(all) => {
                for (key, help) in *all {
                    let has = |it: &&keys::Binding| it.keys.split(' ').any(|own| own == *key) && it.help.contains(help);
                    assert!(keys::BINDINGS.iter().any(|it| has(&it)), "{figure}: {key}");
                }
            }
        }
    }
}

/// What gpuwatch shows nowhere is on no screen, and none of its figures has the name.
#[test]
fn no_screen_has_a_figure_that_the_table_leaves_out() {
    let session = session();
    let all = [overview(), hardware(), compact(), tree(), device_screen(), process_screen(), of(Screen::Timeline)];
    let theme = Theme::builtin("dusk").unwrap();
    let screens = all.iter().map(|ui| text(&picture(&session, ui, &theme, 200, 90)));
    let metrics = Metric::TABLE.iter().map(|it| format!("{} {}", it.name, it.meaning));
    let figures = Figure::TABLE.iter().map(|it| format!("{} {} {}", it.name, it.meaning, it.label));
    let texts: Vec<String> = screens.chain(metrics).chain(figures).map(|it| it.to_lowercase()).collect();
    for (figure, _, place) in TABLES.iter().flat_map(|it| it.1) {
        let Not(_, words) = place else { continue };
        assert!(!words.is_empty(), "{figure}");
        for text in &texts {
            assert!(words.iter().all(|it| !text.contains(it)), "{figure}: {words:?} in\n{text}");
        }
    }
}

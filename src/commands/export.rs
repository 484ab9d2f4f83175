//! `gpuwatch export`: a recording as a table with a row for each sample, or a memory snapshot as a table, as stacks or
//! as a trace, for other tools.

/// Tables as Parquet.
mod parquet;
/// What is exported of a snapshot.
mod snapshot_formats;

use super::{Invocation, Subcommand};
use crate::{
    cli::{inputs, write},
    facts::{
        event::{
            ProbeId,
            wire::{Counters, Edge, Parts, Sample},
        },
        figures::Figure,
        metrics::{self, Metric},
        text::{Foreign, escape_json},
        units::Stamp,
    },
    model::{
        session::{Session, process::Process},
        trace::Trace,
    },
    storage::{
        output,
        pickle::{self, Reading},
        replay::{
            self,
            recording_set::{Ending, RecordingSet},
        },
    },
};
use anyhow::Result;
use serde_json::{Map, Value};
pub use snapshot_formats::{SnapshotTable, StackMoment};
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The arguments of `gpuwatch export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuwatch export night.jsonl.zst -o night.csv\n  gpuwatch export --format jsonl \
                            night.jsonl.zst | jq -c 'select(.rank == 0) | [.step, .allocated]'")]
pub(super) struct ExportArgs {
    /// Recordings of one run, by path or short name, or one directory of recordings; without any, the newest run's.
    /// Or a memory snapshot of PyTorch.
    #[arg(value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// What to write [default: by the ending of the file to make (`.csv`, `.jsonl`, `.parquet`, `.folded`,
    /// `.speedscope.json`, `.pftrace`), else csv].
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// What the rows of a snapshot's table are.
    #[arg(long, value_enum, default_value_t)]
    table: SnapshotTable,
    /// Which blocks of a snapshot folded stacks are of.
    #[arg(long, value_enum, default_value_t)]
    at: StackMoment,
    /// The file to make; it must not be there yet (- is standard output) [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Subcommand for ExportArgs {
    fn answers(&self) -> bool {
        self.output.as_deref().is_none_or(output::is_stdout)
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        let file_to_make = self.output.as_deref();
        let format = self.format.or_else(|| Format::of(file_to_make?)).unwrap_or_default();
        if let [file] = &self.files[..]
            && (!format.is_of_recordings() || pickle::is_one(file))
        {
            let Reading { trace, ended, .. } = inputs::snapshot(file)?;
            write(file_to_make, |mut out| export_snapshot(&trace, format, self.table, self.at, &mut out))?;
            return Ok(u8::from(ended.is_some()));
        }
        let (sets, notes) = match inputs::recordings_of_hosts(&self.files)? {
            Some(recorded) => (recorded.nodes.into_iter().flatten().collect(), recorded.notes),
            None => inputs::recordings(&self.files).map(|found| (vec![found.recordings], found.notes))?,
        };
        let problems = write(file_to_make, |mut out| export(&sets, format, &mut out))?;
        notes.iter().chain(&problems).for_each(|it| output::message(format_args!("{it}")));
        Ok(0)
    }
}

/// The export formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values with a header; unknown values are empty.
    #[default]
    Csv,
    /// One JSON object per line; unknown values are left out.
    Jsonl,
    /// A recording as Parquet for `DuckDB`, pandas or Spark: typed, compressed, with units in its metadata.
    Parquet,
    /// A snapshot's call stacks, the outermost function first, with their bytes: for flame graphs.
    Folded,
    /// A snapshot's call stacks for <https://www.speedscope.app>.
    Speedscope,
    /// What was live and reserved while a snapshot's trace went by, for <https://ui.perfetto.dev>.
    Perfetto,
}

impl Format {
    /// Returns the format that the ending of a file's name stands for; `None` for any other one.
    fn of(file: &Path) -> Option<Self> {
        let name = file.file_name()?.to_str()?.to_lowercase();
        let endings = [
            (".csv", Self::Csv),
            (".jsonl", Self::Jsonl),
            (".ndjson", Self::Jsonl),
            (".parquet", Self::Parquet),
            (".folded", Self::Folded),
            (".speedscope.json", Self::Speedscope),
            (".pftrace", Self::Perfetto),
            (".perfetto-trace", Self::Perfetto),
        ];
        endings.iter().find(|it| name.ends_with(it.0)).map(|it| it.1)
    }

    /// Returns whether a recording has this format; a snapshot has all.
    pub fn is_of_recordings(self) -> bool {
        matches!(self, Self::Csv | Self::Jsonl | Self::Parquet)
    }
}

/// A row's columns before its counters. `unix_us` is the wall clock if the recording has it, `at_us` the monotonic one;
/// `run` is what all processes of a job have in common, `job` the scheduler's number; `device` is the process's
/// ordinal, `device_id` the driver's UUID.
const COLUMNS: [&str; 11] =
    ["unix_us", "at_us", "host", "rank", "run", "job", "pid", "device", "device_id", "edge", "step"];

/// The last column: µs of host time since the boundary of the previous step, without synchronisation; only in the row
/// of a step's end. If steps between the two have no sample, it is their mean.
const STEP_TIME: &str = "step_us";

/// The parts of the allocated bytes, in the samples at whose instant they were counted.
fn parts(of: Option<&Parts>) -> impl Iterator<Item = (&'static str, Option<Value>)> {
    let values = of.map_or([None; 4], |it| it.values().map(Some));
    Parts::TABLE.into_iter().zip(values).map(|((name, _), value)| (name, value.map(Value::from)))
}

/// The device's metrics beside a sample: those that move from second to second, as the driver last reported them.
fn metrics() -> impl Iterator<Item = &'static metrics::MetricRow> {
    Metric::TABLE.iter().filter(|it| it.every.is_fast())
}

/// The figures of the process beside a sample, as last recorded. Some have the name of a metric of the device, so all
/// begin with `process_`.
const FIGURES: [(&str, Figure); 11] = [
    ("process_sm_percent", Figure::SmPercent),
    ("process_memory_percent", Figure::MemoryPercent),
    ("process_encoder_percent", Figure::EncoderPercent),
    ("process_decoder_percent", Figure::DecoderPercent),
    ("process_cpu_percent", Figure::CpuPercent),
    ("process_io_wait_percent", Figure::IoWaitPercent),
    ("process_rss", Figure::Rss),
    ("process_threads", Figure::Threads),
    ("process_asleep", Figure::Asleep),
    ("process_gtt", Figure::Gtt),
    ("process_kfd_memory", Figure::KfdMemory),
];

/// Writes every sample of the recordings, set by set in order of time; counters are bytes and counts as on the wire.
/// Returns what recordings lack and problems with the files' ends, for the user: missing rows are otherwise invisible.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn export(recordings: &[RecordingSet], format: Format, out: &mut impl Write) -> io::Result<Vec<String>> {
    let metrics = metrics().map(|it| it.name);
    let figures = FIGURES.iter().map(|it| it.0);
    let parts = Parts::TABLE.iter().map(|it| it.0);
    let columns =
        COLUMNS.iter().chain(Counters::NAMES).copied().chain(parts).chain(metrics).chain(figures).chain([STEP_TIME]);
    let columns: Vec<_> = columns.collect();
    table(&columns, format, out, |write| {
        let mut troubles = Vec::new();
        for set in recordings {
            let (endings, missing) = each_row(set, write)?;
            troubles.extend(missing);
            troubles.extend(replay::troubles(set, &endings));
            // Analyses of many files at once do not show a note about one of them.
            if format == Format::Parquet && endings.iter().any(Ending::is_damaged) {
                let troubles = troubles.join("; ");
                return Err(io::Error::other(format!("{troubles}; `--format csv` exports what can be read")));
            }
        }
        Ok(troubles)
    })
}

/// Writes a snapshot: a table of its blocks or events, the stacks of its live blocks at one moment, or its trace.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn export_snapshot(
    trace: &Trace,
    format: Format,
    of: SnapshotTable,
    at: StackMoment,
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        Format::Parquet => Err(io::Error::other("Parquet is for recordings; tables of a snapshot are csv or jsonl")),
        Format::Csv | Format::Jsonl => table(of.columns(), format, out, |write| of.rows(trace, write)),
        Format::Folded => snapshot_formats::folded(trace, at, out),
        Format::Speedscope => snapshot_formats::speedscope(trace, out),
        Format::Perfetto => snapshot_formats::perfetto(trace, out),
    }
}

/// Writes the rows from `rows`: as CSV, as Parquet, or as an object per line.
fn table<T>(
    columns: &[&'static str],
    format: Format,
    out: &mut impl Write,
    rows: impl FnOnce(&mut dyn FnMut(ExportRow) -> io::Result<()>) -> io::Result<T>,
) -> io::Result<T> {
    if format == Format::Parquet {
        let mut file = parquet::File::begin(columns, out)?;
        let done = rows(&mut |row| file.row(row))?;
        file.end()?;
        return Ok(done);
    }
    if format != Format::Csv {
        return rows(&mut |row| {
            let known = row.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            let object = Value::Object(known.collect::<Map<_, _>>());
            writeln!(out, "{}", escape_json(&object.to_string()))
        });
    }
    let mut table = csv::Writer::from_writer(out);
    table.write_record(columns).map_err(unwritten)?;
    let done = rows(&mut |row| {
        let cells = row.iter().map(|(_, value)| value.as_ref().map_or_else(String::new, cell));
        table.write_record(cells).map_err(unwritten)
    })?;
    table.flush()?;
    Ok(done)
}

/// Returns the I/O error of a CSV error.
fn unwritten(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

type ExportRow = Vec<(&'static str, Option<Value>)>;

/// Passes on the row of every sample, in order of time; returns how the files end, and what they lack.
fn each_row(
    recordings: &RecordingSet,
    write: &mut dyn FnMut(ExportRow) -> io::Result<()>,
) -> io::Result<(Vec<Ending>, Option<String>)> {
    let mut session = Session::default();
    let mut cursor = recordings.play();
    while let Some((at, event)) = cursor.next_by(Stamp(u64::MAX)) {
        session.apply(&event);
        if let Some((probe, sample)) = event.sample() {
            write(row(recordings, &session, probe, sample, at))?;
        }
    }
    Ok((cursor.endings(), session.losses.missing()))
}

fn row(recordings: &RecordingSet, session: &Session, probe: ProbeId, sample: &Sample, at: Stamp) -> ExportRow {
    let process = session.process(probe);
    let on = process.and_then(|it| it.devices.iter().find(|on| on.ordinal == sample.device));
    let hello = process.and_then(|it| it.hello.as_deref());
    let host = hello.map(|it| it.host.as_str()).filter(|it| !it.is_empty());
    let values = [
        recordings.unix_us(at).map(Value::from),
        Some(sample.at_us.into()),
        host.map(Value::from),
        process.and_then(Process::rank).map(Value::from),
        hello.and_then(|it| it.run.as_deref()).map(Value::from),
        hello.and_then(|it| it.job.as_ref()).map(|it| it.id.as_str().into()),
        process.and_then(Process::any_pid).map(Value::from),
        Some(sample.device.into()),
        on.map(|it| it.device.0.as_str().into()),
        Some(sample.edge.name().into()),
        sample.step.map(Value::from),
    ];
    let counters = sample.counters.values().map(|it| it.map(Value::from));
    let device = on.and_then(|it| session.device(&it.device));
    let metrics = metrics().map(|it| (it.name, device.and_then(|device| device.metric(it.metric)).map(Value::from)));
    let known = process.and_then(|it| session.figures.get(&it.pid?)).zip(on);
    let figures = FIGURES.map(|(name, it)| (name, known.and_then(|(of, on)| of.get(it, &on.device)).map(Value::from)));
    let ended = sample.step.filter(|_| sample.edge != Edge::Tick);
    let step_us = ended.zip(on).and_then(|(step, on)| on.pace.of_latest(step)).map(Value::from);
    let counters = Counters::NAMES.iter().copied().zip(counters);
    COLUMNS
        .into_iter()
        .zip(values)
        .chain(counters)
        .chain(parts(sample.parts.as_ref()))
        .chain(metrics)
        .chain(figures)
        .chain([(STEP_TIME, step_us)])
        .collect()
}

/// First characters of a formula in a spreadsheet, also in the full-width and small forms that some accept.
const FORMULA: [char; 13] = ['=', '+', '-', '@', '＝', '＋', '－', '＠', '﹦', '﹢', '﹣', '﹫', '−'];

/// Formats one cell. Text from outside cannot begin like a formula; leading blanks are removed there.
fn cell(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let guard = if text.trim_start().starts_with(FORMULA) { "'" } else { "" };
    format!("{guard}{}", Foreign::new(text.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{figures::Of, values::Key};

    #[test]
    fn the_ending_of_the_file_to_make_is_the_format() {
        let of = |name: &str| Format::of(Path::new(name));
        assert_eq!(
            [of("a/run.parquet"), of("RUN.CSV"), of("run.jsonl")],
            [Format::Parquet, Format::Csv, Format::Jsonl].map(Some)
        );
        assert_eq!(
            [of("s.speedscope.json"), of("s.json"), of("-"), of("parquet")],
            [Some(Format::Speedscope), None, None, None]
        );
    }

    #[test]
    fn every_recorded_figure_of_a_process_has_a_column() {
        let recorded = Figure::TABLE.iter().filter(|it| it.of != Of::Tree);
        let expected: Vec<_> = recorded.map(|it| (format!("process_{}", it.figure.name()), it.figure)).collect();
        assert_eq!(FIGURES.map(|(name, it)| (name.to_owned(), it)).to_vec(), expected);
    }

    #[test]
    fn a_cell_is_a_cell_whatever_it_holds() {
        let cases = [
            ("node-7.local", "node-7.local"),
            ("a,b", "a,b"),
            ("=1+1", "'=1+1"),
            ("-7", "'-7"),
            (" =1+1", "' =1+1"),
            ("\u{a0}\u{3000}@x", "'\u{a0}\u{3000}@x"),
            ("＝1＋1", "'＝1＋1"),
            ("＋7", "'＋7"),
            ("－7", "'－7"),
            ("＠x", "'＠x"),
            ("\t=1+1", "'\\u{9}=1+1"),
            ("\r=1+1", "'\\u{d}=1+1"),
        ];
        for (text, expected) in cases {
            assert_eq!(cell(&Value::from(text)), expected);
        }
        let broken = cell(&Value::from("one\ntwo\u{1b}"));
        assert!(!broken.contains(char::is_control), "{broken}");
        assert_eq!(cell(&Value::from(u64::MAX)), "18446744073709551615");
    }
}

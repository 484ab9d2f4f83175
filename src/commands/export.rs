//! `gpuwatch export`: a recording as a table, for tools that know nothing of us: a row for each sample.

use crate::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId,
            wire::{Counters, Sample},
        },
        text::{Foreign, escape_json},
        units::Stamp,
    },
    model::session::{Session, process::Process},
    storage::replay::{self, recording_set::RecordingSet},
};
use serde_json::{Map, Value};
use std::io::{self, Write};

/// The tables that can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Values between commas, with a head; what is not known is empty.
    #[default]
    Csv,
    /// A JSON object a line; what is not known is left out.
    Jsonl,
}

/// What a row has before its counters. `unix_us` is the wall clock where the recording knows it, `at_us` the
/// monotonic one; `device` is the process's own number, `device_id` the driver's UUID.
const COLUMNS: [&str; 9] = ["unix_us", "at_us", "host", "rank", "pid", "device", "device_id", "edge", "step"];

/// Writes every sample of the recordings, in the order of time; counters are bytes and counts as on the wire. Gives what a user
/// must know of how the files end, in words: rows that are not there because of it look like no rows.
///
/// # Errors
/// When it cannot be written.
pub fn export(recordings: &RecordingSet, format: Format, out: &mut impl Write) -> io::Result<Vec<String>> {
    match format {
        Format::Csv => {
            let mut table = csv::Writer::from_writer(out);
            table.write_record(COLUMNS.iter().chain(Counters::NAMES)).map_err(unwritten)?;
            let troubles = each_row(recordings, |row| {
                let cells = row.iter().map(|(_, value)| value.as_ref().map_or_else(String::new, cell));
                table.write_record(cells).map_err(unwritten)
            })?;
            table.flush()?;
            Ok(troubles)
        }
        Format::Jsonl => each_row(recordings, |row| {
            let known = row.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            let object = Value::Object(known.collect::<Map<_, _>>());
            writeln!(out, "{}", escape_json(&object.to_string()))
        }),
    }
}

/// What kept a record from being written.
fn unwritten(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

type Row = Vec<(&'static str, Option<Value>)>;

/// Hands over the row of every sample, in the order of time; gives how the files end, in words.
fn each_row(recordings: &RecordingSet, mut write: impl FnMut(Row) -> io::Result<()>) -> io::Result<Vec<String>> {
    let mut session = Session::default();
    let mut cursor = recordings.play();
    while let Some((at, event)) = cursor.next_by(Stamp(u64::MAX)) {
        session.apply(&event);
        if let Some((probe, sample)) = sample(&event) {
            write(row(recordings, &session, probe, sample, at))?;
        }
    }
    Ok(replay::troubles(recordings, &cursor.endings()))
}

fn sample(event: &Event) -> Option<(ProbeId, &Sample)> {
    match &event.fact {
        Fact::Probe { probe, line } => match &**line {
            Line::Sample(it) => Some((*probe, it)),
            _ => None,
        },
        _ => None,
    }
}

fn row(recordings: &RecordingSet, session: &Session, probe: ProbeId, sample: &Sample, at: Stamp) -> Row {
    let process = session.process(probe);
    let on = process.and_then(|it| it.devices.iter().find(|on| on.ordinal == sample.device));
    let host = process.and_then(|it| it.hello.as_ref()).map(|it| it.host.as_str()).filter(|it| !it.is_empty());
    let values = [
        recordings.unix_us(at).map(Value::from),
        Some(sample.at_us.into()),
        host.map(Value::from),
        process.and_then(Process::rank).map(Value::from),
        process.and_then(Process::any_pid).map(Value::from),
        Some(sample.device.into()),
        on.map(|it| it.device.0.as_str().into()),
        Some(sample.edge.name().into()),
        sample.step.map(Value::from),
    ];
    let counters = sample.counters.values().map(|it| it.map(Value::from));
    COLUMNS.into_iter().zip(values).chain(Counters::NAMES.iter().copied().zip(counters)).collect()
}

/// What a formula begins with in a spreadsheet, also in the full-width and small forms that some take for the same.
const FORMULA: [char; 13] = ['=', '+', '-', '@', '＝', '＋', '－', '＠', '﹦', '﹢', '﹣', '﹫', '−'];

/// One cell. Text from outside cannot begin as what a spreadsheet would take for a formula; blanks before it are left out
/// there.
fn cell(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let guard = if text.trim_start().starts_with(FORMULA) { "'" } else { "" };
    format!("{guard}{}", Foreign::new(text.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

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

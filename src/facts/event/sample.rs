//! Reads a sample's line in one pass, to where it stays: nearly every line is a sample, and the general parser makes
//! three passes.
//!
//! It reads what the probes and [`crate::storage::recording`] write: one object without spaces, of unsigned numbers and
//! the sample's edge. Everything else is left to the general parser.

use super::{
    Line, ProbeId,
    wire::{Counters, Edge, Sample},
};
use crate::facts::units::Stamp;

/// How the line begins.
const BEGINNING: &str = "{\"type\":\"sample\"";

/// The edges of samples.
const EDGES: [Edge; 3] = [Edge::Step, Edge::Tick, Edge::Call];

/// A sample with what a recording adds.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRow {
    /// The sample.
    pub line: Box<Line>,
    /// The probe's number in the recording.
    pub from: Option<ProbeId>,
    /// When the viewer saw it.
    pub seen_us: Option<Stamp>,
}

/// Reads a line, with or without its newline; `None` if the general parser has to read it.
pub fn read(line: &str) -> Option<SampleRow> {
    let mut rest = Rest(line.strip_suffix('\n').unwrap_or(line).strip_prefix(BEGINNING)?.as_bytes());
    let mut line = Box::new(Line::Sample(Sample::default()));
    let Line::Sample(sample) = &mut *line else { return None };
    let (mut at_us, mut device, mut edge, mut from, mut seen_us) = (None, None, None, None, None);
    // The counters are written in their order.
    let mut next = 0;
    while !rest.ends()? {
        let name = rest.name()?;
        if name == b"edge" {
            once(&mut edge, rest.edge()?)?;
            continue;
        }
        let value = rest.number()?;
        let field = match name {
            b"seq" => &mut sample.seq,
            b"step" => &mut sample.step,
            b"at_us" => &mut at_us,
            b"device" => &mut device,
            b"from" => &mut from,
            b"seen_us" => &mut seen_us,
            _ => {
                let place = place_of(name, next)?;
                next = place + 1;
                sample.counters.at_mut(place)?
            }
        };
        once(field, value)?;
    }
    let number = |it: u64| u32::try_from(it).ok();
    sample.at_us = at_us.unwrap_or_default();
    sample.device = number(device.unwrap_or_default())?;
    sample.edge = edge.unwrap_or_default();
    let from = from.map(number).map(|it| it.map(ProbeId)).map_or(Some(None), |it| it.map(Some))?;
    Some(SampleRow { line, from, seen_us: seen_us.map(Stamp) })
}

/// Returns the place of a counter's name; it is probably this one or soon after.
fn place_of(name: &[u8], next: usize) -> Option<usize> {
    let is_name = |own: &&str| own.as_bytes() == name;
    let (before, after) = Counters::NAMES.split_at_checked(next)?;
    after.iter().position(is_name).map(|it| next + it).or_else(|| before.iter().position(is_name))
}

/// Sets a field; `None` if it is set already.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// The part of a line that is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Takes the comma before a field, or the end of the object, which is the end of the line.
    fn ends(&mut self) -> Option<bool> {
        match self.0 {
            [b',', rest @ ..] => {
                self.0 = rest;
                Some(false)
            }
            [b'}'] => Some(true),
            _ => None,
        }
    }

    /// Takes a text without escapes.
    fn text(&mut self) -> Option<&'a [u8]> {
        let [b'"', rest @ ..] = self.0 else { return None };
        let mut length = 0;
        while *rest.get(length)? != b'"' {
            if rest.get(length) == Some(&b'\\') {
                return None;
            }
            length += 1;
        }
        self.0 = rest.get(length + 1..)?;
        rest.get(..length)
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        let name = self.text()?;
        let [b':', rest @ ..] = self.0 else { return None };
        self.0 = rest;
        Some(name)
    }

    fn edge(&mut self) -> Option<Edge> {
        let name = self.text()?;
        EDGES.into_iter().find(|it| it.name().as_bytes() == name)
    }

    /// Takes a number as JSON has it: without a sign, and without zeros before it.
    fn number(&mut self) -> Option<u64> {
        let digits = self.0;
        let (mut number, mut length) = (0_u64, 0);
        while let Some(digit @ b'0'..=b'9') = digits.get(length) {
            number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            length += 1;
        }
        self.0 = digits.get(length..)?;
        let has_zeros = length > 1 && digits.first() == Some(&b'0');
        (length > 0 && !has_zeros).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{Line, wire::Parts, wire::encode};
    use proptest::{collection::vec, option, prelude::*};

    /// What the general parser reads.
    fn general(line: &str) -> Option<Sample> {
        match serde_json::from_str(line) {
            Ok(Line::Sample(it)) => Some(it),
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn a_written_sample_comes_back(
            numbers in vec(option::of(any::<u64>()), Counters::NAMES.len()),
            (seq, step, at_us, device, edge) in
                (option::of(any::<u64>()), option::of(any::<u64>()), any::<u64>(), any::<u32>(), 0..EDGES.len()),
        ) {
            let counters = Counters::from_values(numbers.as_slice().try_into().unwrap());
            let sample = Sample { seq, at_us, device, edge: EDGES[edge], step, counters, parts: None };
            let mut line = String::new();
            encode(&Line::Sample(sample.clone()), &mut line);
            prop_assert_eq!(general(&line), Some(sample.clone()));
            let line_of = Box::new(Line::Sample(sample));
            prop_assert_eq!(read(&line), Some(SampleRow { line: line_of, from: None, seen_us: None }));
        }

        #[test]
        fn both_parsers_read_the_same(
            place in 0_usize..200,
            other in "[\\PC]{0,3}|[0-9]{1,22}|[,:\"{}\\\\ e.-]|null|\"step\":1,",
        ) {
            let mut line = r#"{"type":"sample","seq":7,"at_us":123456,"device":0,"edge":"step","step":12,"#.to_owned();
            line.push_str("\"requested\":100,\"allocated\":512,\"reserved\":2048}");
            let place = place % line.len();
            for end in [place, (place + 1).min(line.len())] {
                let mut changed = line.clone();
                changed.replace_range(place..end, &other);
                if let Some(row) = read(&changed) {
                    prop_assert_eq!(general(&changed).map(Line::Sample), Some(*row.line), "{}", changed);
                }
            }
        }
    }

    #[test]
    fn parts_are_read_by_the_general_parser() {
        let parts = Some(Parts { weights: 1, gradients: 2, optimizer: 3, retained: 4 });
        let sample = Sample { at_us: 5, step: Some(2), parts, ..Sample::default() };
        let mut line = String::new();
        encode(&Line::Sample(sample.clone()), &mut line);
        assert!(line.contains(r#""parts":{"weights":1,"gradients":2,"optimizer":3,"retained":4}"#), "{line}");
        assert_eq!((read(&line), general(&line)), (None, Some(sample)));
    }

    #[test]
    fn unusual_lines_are_left_to_the_general_parser() {
        for line in [
            r#"{"type":"sample","step":1,"step":2}"#,
            r#"{"type":"sample","step":null}"#,
            r#"{"type":"sample","unknown":1}"#,
            r#"{"type":"sample", "step":1}"#,
            r#"{"type":"sample","device":4294967296}"#,
            r#"{"type":"sample","step":18446744073709551616}"#,
            r#"{"type":"sample","step":01}"#,
            r#"{"type":"sample","step":1}}"#,
            r#"{"type":"sample","step":1"#,
            r#"{"type":"mark","name":"epoch"}"#,
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        let line = r#"{"type":"sample","at_us":5,"allocated":3,"from":2,"seen_us":9}"#;
        let row = read(line).unwrap();
        assert_eq!((row.from, row.seen_us), (Some(ProbeId(2)), Some(Stamp(9))));
        assert!(matches!(*row.line, Line::Sample(it) if it.counters.allocated == Some(3) && it.at_us == 5));
    }
}

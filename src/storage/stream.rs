//! A stream: what one machine sends to a gpuwatch on another. Lines of a recording as they happen, thinned, and a beat
//! each second.
//!
//! The first line is a recording's header with the requests that the sender answers, so a stream that is written to a
//! file is a recording. A beat has the
//! machine's clocks: a reader learns from it that the machine is alive, and how far the clocks are apart.

use super::recording::{self, tagged};
use crate::facts::{
    event::{Event, Fact},
    redact::redact,
    remote::{Answer, Kind, Outcome},
    units::Stamp,
};
use serde::{Deserialize, Serialize};

/// How a beat begins, and an answer.
const BEAT: &str = "{\"type\":\"beat\",";
const ANSWER: &str = "{\"type\":\"answer\",";

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The machine, its gpuwatch and its clocks.
    #[serde(flatten)]
    pub recording: recording::Header,
    /// The types of requests that the sender answers: none if it is read-only, `None` if it is older than requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<Kind>>,
}

/// The machine's clocks, sent each second, also if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Its `CLOCK_MONOTONIC`.
    pub at_us: Stamp,
    /// Its wall clock at the same instant, µs of Unix time.
    pub unix_us: u64,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The first line.
    Header(Header),
    /// An event.
    Event(Event),
    /// The machine's clocks.
    Beat(Beat),
    /// The answer to a request.
    Answer(Answer),
    /// A line that does not matter to a reader of a stream, or of an unknown type.
    Other,
}

/// Returns the first line, with its newline.
pub fn encode_header(header: &Header) -> String {
    tagged("recording", header)
}

/// Returns an answer as a line, with its newline, and hides the secrets in a command line.
pub fn encode_answer(answer: Answer) -> String {
    tagged("answer", &without_secrets(answer))
}

/// Returns a beat as a line, with its newline.
pub fn encode_beat(beat: &Beat) -> String {
    tagged("beat", beat)
}

/// Parses one line, without its newline, and hides its secrets.
///
/// # Errors
/// Fails if it is not a line of a stream.
pub fn decode(line: &str) -> Result<Entry, serde_json::Error> {
    if line.starts_with(BEAT) {
        return serde_json::from_str(line).map(Entry::Beat);
    }
    if line.starts_with(ANSWER) {
        // A later release may have other answers.
        let answer = serde_json::from_str(line).map(|it| Entry::Answer(without_secrets(it)));
        return Ok(answer.unwrap_or(Entry::Other));
    }
    Ok(match recording::decode(line)? {
        recording::Entry::Header(_) => Entry::Header(serde_json::from_str(line)?),
        recording::Entry::Event(it) => Entry::Event(it),
        recording::Entry::Closed(_) | recording::Entry::Unknown => Entry::Other,
    })
}

fn without_secrets(answer: Answer) -> Answer {
    let Answer { id, outcome: Outcome::Held(info) } = answer else { return answer };
    let mut fact = Fact::Process(*info);
    redact(&mut fact);
    match fact {
        Fact::Process(info) => Answer { id, outcome: Outcome::Held(Box::new(info)) },
        _ => Answer { id, outcome: Outcome::Done },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::Fact;

    #[test]
    fn a_beat_comes_back_and_a_reader_of_recordings_skips_it() {
        let beat = Beat { at_us: Stamp(7), unix_us: 1_800_000_000_000_000 };
        let line = encode_beat(&beat);
        assert_eq!(decode(line.trim_end()).unwrap(), Entry::Beat(beat));
        assert_eq!(recording::decode(line.trim_end()).unwrap(), recording::Entry::Unknown);
    }

    #[test]
    fn an_event_comes_back_and_garbage_does_not() {
        let event = Event { at: Stamp(5), fact: Fact::Notice("hello".into()) };
        let mut line = String::new();
        recording::encode(&event, &mut line);
        assert_eq!(decode(line.trim_end()).unwrap(), Entry::Event(event));
        for garbage in ["", "Welcome to node01", "{\"type\":\"beat\",\"at_us\":-1}", "[1]"] {
            assert!(decode(garbage).is_err(), "{garbage}");
        }
    }
}

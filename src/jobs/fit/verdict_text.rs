//! The answer in words.

use super::{Answer, judge::Judged, peak::Peak};
use crate::{
    facts::{
        text::Foreign,
        units::{Bytes, counted},
    },
    model::fit::{Fits, PeakPart},
};
use std::fmt::Write as _;

/// The note on a failure of a job that had read values.
pub(super) const AFTER_READS: &str =
    "the simulation may have caused this: the job had read values, which are not computed";

// Writing into a String cannot fail.
pub(super) fn answer(it: &Answer) -> String {
    let mut out = String::new();
    if let Some(why) = &it.why {
        let _ = writeln!(out, "cannot tell: {}", Foreign::new(why.as_str()).to_string().replace("\\u{a}", "\n  "));
        if it.is_after_reads {
            let _ = writeln!(out, "{AFTER_READS}:");
        }
        for it in &it.unknown {
            let _ = writeln!(out, "  {}", Foreign::new(it.as_str()));
        }
        return out;
    }
    varied(&mut out, it);
    for judged in &it.devices {
        device(&mut out, judged);
    }
    match &it.smallest {
        Some(card) => {
            let _ = writeln!(out, "smallest known card that is enough: {} ({})", card.name, Bytes(card.total));
        }
        None if it.peak.is_some() => out.push_str("no known card is certainly enough\n"),
        None => {}
    }
    if let Some(found) = &it.peak {
        // What lies outside the allocator differs between cards.
        let whose = it.devices.first().filter(|_| it.devices.len() > 1).map(|it| it.device.name.as_str());
        peak(&mut out, found, whose);
    }
    if !it.unknown.is_empty() {
        out.push_str("\nnot known:\n");
        for it in &it.unknown {
            let _ = writeln!(out, "  {}", Foreign::new(it.as_str()));
        }
    }
    out
}

fn varied(out: &mut String, it: &Answer) {
    let Some(varied) = &it.varied else { return };
    let name = Foreign::new(varied.name.as_str());
    let shown = |value: &str| Foreign::new(value.to_owned()).to_string();
    match varied.largest.and_then(|at| varied.values.get(at)) {
        Some(value) => {
            let next = varied.next().map(|it| format!("; {} does not run there", shown(it)));
            let _ = writeln!(out, "largest {name} that fits: {}{}", shown(value), next.unwrap_or_default());
        }
        None => {
            let _ = writeln!(out, "no {name} fits; what follows is of the first, {}", shown(&varied.shown().1));
        }
    }
    for it in varied.ran().iter().chain(&varied.why) {
        let _ = writeln!(out, "  {}", Foreign::new(it.as_str()));
    }
}

/// `RTX 4090: 14.1 GiB (13.9 GiB–14.6 GiB): fits with 1.4 GiB to spare`.
fn device(out: &mut String, it: &Judged) {
    let several = if it.device.count > 1 { format!("{} × ", it.device.count) } else { String::new() };
    let _ = write!(out, "{several}{}: ", Foreign::new(it.device.name.as_str()));
    let capacity = it.device.capacity();
    let (Some(need), Some(peak)) = (&it.need, it.peak()) else {
        out.push_str("cannot tell\n");
        return;
    };
    let _ = write!(
        out,
        "{} ({}–{}) of {}: ",
        Bytes(peak.usual()),
        Bytes(it.low().unwrap_or_default()),
        Bytes(peak.high()),
        Bytes(capacity)
    );
    match it.fits {
        Fits::Yes => {
            let spare = capacity.checked_sub(need.must());
            let spare = spare.map_or_else(|| ", tightly".to_owned(), |it| format!(" with {} to spare", Bytes(it)));
            let _ = write!(out, "fits{spare}");
        }
        Fits::No => out.push_str("does not fit"),
        Fits::Unknown => match &it.doubt {
            Some(doubt) => {
                let _ = write!(out, "{}", Foreign::new(doubt.as_str()));
            }
            None => out.push_str("too close to call"),
        },
    }
    if let Some(note) = &it.note {
        let _ = write!(out, "; {}", Foreign::new(note.as_str()));
    }
    out.push('\n');
}

fn peak(out: &mut String, it: &Peak, whose: Option<&str>) {
    let step = it.step.map_or_else(String::new, |step| format!(", in step {step} of {} that ran", it.steps));
    let line = it.line.as_ref().map_or_else(String::new, |line| format!(", at {}", Foreign::new(line.as_str())));
    let version = Foreign::new(it.torch.as_str());
    let whose = whose.map_or_else(String::new, |it| format!(", outside the allocator as on {}", Foreign::new(it)));
    let _ = writeln!(out, "\npeak under PyTorch {version}{step}{line}{whose}:");
    let row = |out: &mut String, name: &str, bytes: u64| {
        let _ = writeln!(out, "  {name:34}{:>12}", Bytes(bytes).to_string());
    };
    if it.wanted > it.need.reserved {
        row(out, "wanted by the allocator", it.wanted);
    }
    row(out, "reserved by the allocator", it.need.reserved);
    row(out, "allocated", it.need.allocated);
    for (kind, words) in PeakPart::WORDS {
        if let Some(bytes) = it.kinds.get(&kind).filter(|it| **it > 0) {
            row(out, &format!("  {words}"), *bytes);
        }
    }
    let cache = it.need.reserved.saturating_sub(it.need.allocated);
    row(out, "cache and rounding", cache);
    for part in &it.need.outside {
        row(out, part.name, part.usual);
    }
    if it.steps == 0 {
        out.push_str("  no optimizer step ran\n");
    } else if it.step.is_some() {
        let _ = writeln!(out, "  what comes after {} did not run (evaluation, checkpoints)", counted(it.steps, "step"));
    }
}

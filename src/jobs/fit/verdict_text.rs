//! The answer in words.

use super::{
    Answer,
    comparison_text::wrapped,
    job_report::TRAINING,
    judge::Judged,
    peak::Peak,
    phases::{PhaseRow, Phases},
    ranks,
};
use crate::{
    facts::{
        event::anatomy::AnatomyPart,
        text::Foreign,
        units::{Bytes, counted, on_ranks, per_step},
    },
    model::fit::{
        Fits,
        baseline::{Growth, SavedCulprit},
    },
};
use std::fmt::Write as _;

/// Culprits that are shown.
const CULPRITS: usize = 4;

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
    if let Some(enough) = it.plan.as_ref().and_then(|it| it.enough.as_ref()) {
        out += &ranks::enough_text(enough);
    }
    varied(&mut out, it);
    let width = it.devices.iter().map(|it| name(it).chars().count()).max().unwrap_or(0);
    for judged in &it.devices {
        let _ = write!(out, "{:width$} ", name(judged));
        device(&mut out, judged);
    }
    match &it.smallest {
        Some(card) => {
            let size = card.capacity();
            // A size that the user gave is enough without room to spare, and no card has just that size.
            let is_tight = |it: &Judged| it.fits == Fits::Yes && it.device.capacity() < size;
            let enough = match it.devices.iter().any(is_tight) {
                _ if it.is_doubted => "is enough for what was seen".to_owned(),
                // A card that such growth fills sooner is none.
                _ if it.growth.is_some() && it.devices.iter().any(|on| on.fits == Fits::Unknown) => match it.lasts {
                    0 => "is enough for 10,000 steps".to_owned(),
                    steps => format!("is enough for all {}", counted(steps, "step")),
                },
                true => "has room to spare".to_owned(),
                false => "is enough".to_owned(),
            };
            let _ = writeln!(out, "smallest known card that {enough}: {} ({})", card.name, Bytes(size));
        }
        None if it.peak.is_some() => out.push_str("no known card is enough\n"),
        None => {}
    }
    if let Some(growth) = it.growth.as_ref().filter(|it| !it.culprits.is_empty()) {
        let _ = writeln!(out, "\nwhat grows, {}{}:", per_step(growth.bytes as f64), on_ranks(&growth.ranks));
        out += &culprits(growth, 2);
    }
    if let Some(found) = &it.peak {
        // What lies outside the allocator differs between cards.
        let whose = it.devices.first().filter(|_| it.devices.len() > 1).map(|it| it.device.name.as_str());
        peak(&mut out, found, it.phases.highest(), whose);
        phases(&mut out, &it.phases, found.wanted > found.need.reserved);
    }
    if let Some(plan) = &it.plan {
        out += &ranks::text(plan);
    }
    if !it.unknown.is_empty() {
        out.push_str("\nnot known:\n");
        for it in &it.unknown {
            let _ = writeln!(out, "  {}", Foreign::new(it.as_str()));
        }
    }
    out
}

/// Returns what keeps the memory that grows, each with its remedy below, after so many spaces.
pub(super) fn culprits(growth: &Growth, indent: usize) -> String {
    let both = |it: &SavedCulprit| {
        let line = |text: &str, indent| wrapped(&Foreign::new(text).to_string(), indent);
        line(&growth.sentence(it), indent) + &line(&format!("remedy: {}", it.advice), indent + 2)
    };
    growth.culprits.iter().take(CULPRITS).map(both).collect()
}

fn varied(out: &mut String, it: &Answer) {
    let Some(varied) = &it.varied else { return };
    let name = Foreign::new(varied.name.as_str());
    let shown = |value: &str| Foreign::new(value.to_owned()).to_string();
    match varied.largest.and_then(|at| varied.values.get(at)) {
        Some(value) => {
            let next = varied.next().map(|it| format!("; {} does not run there", shown(it)));
            let end = (varied.values.len() > 1).then(|| ", the last of those asked for".to_owned());
            let _ = writeln!(out, "largest {name} that fits: {}{}", shown(value), next.or(end).unwrap_or_default());
        }
        None => {
            let _ = writeln!(out, "no {name} fits; what follows is of the first, {}", shown(&varied.shown().1));
        }
    }
    for it in varied.ran().iter().chain(&varied.why) {
        let _ = writeln!(out, "  {}", Foreign::new(it.as_str()));
    }
}

/// `2 × RTX 4090:`.
fn name(it: &Judged) -> String {
    let several = if it.device.count > 1 { format!("{} × ", it.device.count) } else { String::new() };
    format!("{several}{}:", Foreign::new(it.device.name.as_str()))
}

/// `14.1 GiB (13.9 GiB–14.6 GiB) of 23.65 GiB: fits with 1.4 GiB to spare`.
fn device(out: &mut String, it: &Judged) {
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

fn peak(out: &mut String, it: &Peak, phase: Option<&PhaseRow>, whose: Option<&str>) {
    let step = it.step.map_or_else(String::new, |step| format!(", in step {step} of {} that ran", it.steps));
    let is_training = |it: &&PhaseRow| it.name == TRAINING;
    let when = phase.filter(|it| !is_training(it)).map(|it| format!(", in {}", it.name));
    let after = phase.and_then(PhaseRow::when).map_or_else(String::new, |it| format!(" {it}"));
    let step = when.map_or(step, |it| format!("{it}{after}"));
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
    for (kind, words) in AnatomyPart::WORDS {
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
    }
}

/// Writes a row for each phase. `is_short` is whether the allocator wants more than it reserves on the device.
fn phases(out: &mut String, it: &Phases, is_short: bool) {
    if it.rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{:34}{:>12}{:>12}", "phases:", "allocated", if is_short { "wanted" } else { "reserved" });
    for row in &it.rows {
        let when = match row.when() {
            _ if row.name == TRAINING => Some(counted(it.steps, "step")),
            when => when,
        };
        let name = when.map_or_else(|| row.name.clone(), |when| format!("{}, {when}", row.name));
        let (allocated, reserved) =
            (Bytes(row.allocated).to_string(), row.reserved.map_or_else(|| "–".to_owned(), |it| Bytes(it).to_string()));
        let _ = write!(out, "  {:32}{allocated:>12}{reserved:>12}", Foreign::new(name).to_string());
        if let Some(line) = &row.line {
            let _ = write!(out, "  {}", Foreign::new(line.as_str()));
        }
        match row.fits {
            Some(Fits::No) => out.push_str("  does not fit"),
            Some(Fits::Unknown) => out.push_str("  too close to call"),
            _ => {}
        }
        out.push('\n');
    }
    for (phase, line) in &it.not_run {
        let _ = writeln!(out, "  did not run: {} at {}", Foreign::new(phase.as_str()), Foreign::new(line.as_str()));
    }
    if it.is_by_itself {
        out.push_str("  the job came to its end by itself\n");
    } else if it.is_whole {
        out.push_str("  led out of its loops, the job came to its end\n");
    } else if it.not_run.is_empty() {
        let _ = writeln!(out, "  ended by gpuwatch after {}", counted(it.steps, "step"));
    }
}

//! The answer as text.

use crate::{
    facts::{event::wire::Sites, text::Foreign},
    model::analysis::culprit::{self, Account, Culprit, Spot},
};
use std::{collections::BTreeSet, fmt::Write as _};

/// Returns the answer: for each culprit what happens, the remedy and the lines around it; then the notes.
pub(super) fn answer(it: &Sites) -> String {
    let mut devices: BTreeSet<u32> = it.sites.iter().map(|it| it.device).collect();
    if devices.is_empty() {
        // Without growth, any device will do.
        devices.insert(0);
    }
    let mut out = String::new();
    let several = devices.len() > 1;
    for device in devices {
        let Account { culprits, notes } = culprit::account(it, device);
        if several {
            // Writing into a String cannot fail.
            let _ = writeln!(out, "device {device}");
        }
        for it in &culprits {
            write(&mut out, it);
        }
        for note in notes {
            let _ = writeln!(out, "{note}");
        }
    }
    out
}

fn write(out: &mut String, it: &Culprit) {
    let _ = writeln!(out, "{}\n  {}", it.sentence, it.advice);
    let leading = it.leading();
    let line = |line: &Spot| {
        let mark = match (line.is_at(leading), line.is_at(&it.allocated)) {
            (true, _) => '>',
            (false, true) => '-',
            (false, false) => ' ',
        };
        let text = Foreign::new(line.text.raw()).to_string();
        format!("  {mark} {:>4}  {text}", line.line)
    };
    for (label, lines) in it.excerpts() {
        let shown = label.map(|it| format!("    {it}")).into_iter().chain(lines.iter().map(line));
        for it in shown {
            let _ = writeln!(out, "{}", it.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::wire::{Place, Site};

    #[test]
    fn each_device_has_its_culprits_and_nothing_of_a_job_moves_a_cursor() {
        let source = vec![Place { line: 40, text: "  x = y\u{1b}[2J".into(), ..Place::default() }];
        let site = Site { file: "/a/train.py".into(), line: 40, bytes: 4096, blocks: 8, source, ..Site::default() };
        let sites = |all: &[u32]| {
            let sites = all.iter().map(|device| Site { device: *device, ..site.clone() }).collect();
            Sites { step: Some(9), steps: 8, sites, older_blocks: Some(2), ..Sites::default() }
        };
        let text = answer(&sites(&[0]));
        let lines: Vec<_> = text.lines().collect();
        let [sentence, advice, line, older] = lines[..] else { panic!("{text}") };
        assert!(sentence.starts_with("train.py:40 `x = y\\u{1b}[2J` allocates 1 block a step (512 B)"), "{text}");
        assert!(advice.starts_with("  ") && line == "  >   40    x = y\\u{1b}[2J", "{text}");
        assert!(older.starts_with("2 blocks predate the capture"), "{text}");
        assert!(!text.contains('\u{1b}'));
        let both = answer(&sites(&[1, 0]));
        assert!(both.starts_with("device 0\n") && both.contains("\ndevice 1\n"), "{both}");
        assert!(answer(&sites(&[])).starts_with("in 8 steps no line allocated more than was freed again"));
    }
}

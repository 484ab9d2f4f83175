//! `gpuwatch check`: prints the verdict and returns its exit code.

use crate::{
    commands::check::{self, nodes},
    model::alerts::Policy,
    storage::output,
};
use std::{
    io::{self, Write},
    path::PathBuf,
};

pub(super) fn judge(files: &[PathBuf], json: bool, limits: &check::Limits, policy: &Policy) -> u8 {
    let (text, outcome) = match super::of_nodes(files) {
        Ok(Some(recorded)) => {
            let verdicts = nodes::judge(&recorded, limits, policy);
            (if json { verdicts.json() } else { verdicts.text() }, verdicts.outcome())
        }
        other => {
            let verdict = match other.and_then(|_| super::named(files)) {
                Ok(found) => {
                    found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
                    check::check(&found.recordings, limits, policy)
                }
                Err(e) => check::unreadable(format!("{e:#}")),
            };
            (if json { verdict.json() } else { verdict.text() }, verdict.outcome())
        }
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that is gone gets the result from the exit code.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            output::message(format_args!("cannot write the verdict: {e}"));
            check::Outcome::Unjudged.code()
        }
        _ => outcome.code(),
    }
}

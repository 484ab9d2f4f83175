//! Gives the processes of a job what their recorder knows of them: each second, if they have asked.
//!
//! A process asks by a file beside its probe's socket (`gpuwatch_latest` in `gpuwatch_probe.h`), which is replaced
//! here. The probe removes it at its end.

use crate::{
    model::{findings::Findings, session::Session, tracker},
    storage::output,
};
use gpuwatch_probe::{error_file, socket};
use std::path::Path;

/// Writes the figures of every running process that has asked for them.
pub fn write(session: &Session, findings: &Findings) {
    for process in session.processes.iter().filter(|it| it.is_alive()) {
        let path = Path::new(process.socket.raw()).with_extension(socket::FIGURES);
        // The file and its folder are this user's alone.
        let is_asked = error_file::open(&path).is_ok() && path.parent().is_some_and(|it| socket::check(it).is_ok());
        if is_asked {
            let text = tracker::figures(session, findings, process).to_string();
            // Without it the process has its own counters.
            let _ = output::replace(&path, 0o600, &text);
        }
    }
}

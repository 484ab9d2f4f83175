//! Requests captures from jobs.

use super::{NO_QUESTIONS, Request, Ui};
use crate::{
    facts::{event::wire::Hello, remote::Capture},
    model::{
        alerts::{question, words},
        session::{Session, process::Process},
    },
};

/// A hello has this if the job accepts requests.
const READY: &str = "ready";

impl Ui {
    /// Sends a request to the visibly selected job, or shows why it cannot.
    pub(super) fn ask_sites(&mut self, session: &Session) {
        if self.no_signals.is_some() {
            self.show_message(NO_QUESTIONS);
            return;
        }
        let meant = self.meant(session).map(|it| it.probed());
        let asked = match meant {
            None => Err("select the process first, in the list of the overview".to_owned()),
            Some(None) => Err("no probe is in this process: P starts one".to_owned()),
            Some(Some((process, on))) => can_be_asked(process).map(|pid| (pid, question(process.probe, on))),
        };
        match asked {
            Err(why) => self.show_message(why),
            Ok((pid, ask)) => {
                self.show_message(format!("asked: {}", words(&ask)));
                self.request = Some(Request::Ask(Capture { pid, ask }));
            }
        }
    }
}

/// Returns the pid that the probe reports.
fn can_be_asked(process: &Process) -> Result<u32, String> {
    if !process.is_alive() {
        return Err("the process has ended".to_owned());
    }
    match process.hello.as_deref() {
        Some(Hello { sites: Some(it), pid, .. }) if it == READY => Ok(*pid),
        Some(Hello { sites: Some(why), .. }) => Err(crate::facts::text::Foreign::new(why.as_str()).to_string()),
        _ => Err("this probe does not know which lines allocate".to_owned()),
    }
}

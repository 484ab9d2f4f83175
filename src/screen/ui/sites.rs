//! Requests captures from jobs.

use super::{NO_QUESTIONS, Request, Ui};
use crate::{
    facts::event::wire::Hello,
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
            Some(Some((process, _))) => can_be_asked(process),
        };
        match asked.and_then(|()| meant.flatten().ok_or_else(String::new)) {
            Err(why) => self.show_message(why),
            Ok((process, on)) => {
                let ask = question(process.probe, on);
                self.show_message(format!("asked: {}", words(&ask)));
                self.request = Some(Request::Ask(ask));
            }
        }
    }
}

fn can_be_asked(process: &Process) -> Result<(), String> {
    if !process.is_alive() {
        return Err("the process has ended".to_owned());
    }
    match process.hello.as_deref() {
        Some(Hello { sites: Some(it), .. }) if it == READY => Ok(()),
        Some(Hello { sites: Some(why), .. }) => Err(crate::facts::text::Foreign::new(why.as_str()).to_string()),
        _ => Err("this probe does not know which lines allocate".to_owned()),
    }
}

//! Alerts on their way out, each once: to a program, into a recording, to people, and as questions to jobs.

use super::hook::Hook;
use crate::{
    facts::event::Ask,
    model::{
        alerts::{Captures, Edges, Message, News},
        findings::{Finding, Findings},
        session::Session,
    },
};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Receivers of alerts besides the screen.
#[derive(Default)]
pub struct Delivery {
    hook: Option<Hook>,
    asks: Option<(Captures, Sender<Ask>)>,
    news: News,
    edges: Edges,
}

impl Delivery {
    /// Tells a program, and asks jobs in which growth is found for the lines that allocate it.
    pub fn new(hook: Option<Hook>, asks: Option<Sender<Ask>>) -> Self {
        let mut delivery = Self { hook, ..Self::default() };
        if let Some(asks) = asks {
            delivery.ask(asks);
        }
        delivery
    }

    /// Asks jobs from now on.
    pub fn ask(&mut self, asks: Sender<Ask>) {
        self.asks = Some((Captures::default(), asks));
    }

    /// Returns whether no program receives alerts and no probe is asked for a capture.
    pub fn is_idle(&self) -> bool {
        self.hook.is_none() && self.asks.is_none()
    }

    /// Delivers what is new, and returns it for people; `keep` takes what was raised and what was resolved. To be called on
    /// the grid of events, at each [`Fact::Second`](crate::facts::event::Fact::Second), whatever is drawn.
    pub fn deliver(
        &mut self,
        session: &Session,
        findings: &Findings,
        mut keep: impl FnMut(&'static str, &Finding),
    ) -> Vec<Message> {
        for (edge, it) in self.edges.at(findings) {
            keep(edge, it);
        }
        if let Some((captures, asks)) = &mut self.asks {
            for ask in captures.at(session, findings) {
                // A queue that is full holds the same question.
                let _ = asks.try_send(ask);
            }
        }
        let news = self.news.at(session, findings);
        if let Some(hook) = &self.hook {
            for message in &news {
                hook.offer(message.clone());
            }
        }
        news
    }

    /// What a user should know of the program, if anything.
    pub fn complaint(&self) -> Option<String> {
        self.hook.as_ref()?.outcome().complaint()
    }

    /// The same when it is over; what waits may still take so long.
    pub fn finish(self, patience: Duration) -> Option<String> {
        self.hook?.finish(patience).complaint()
    }
}

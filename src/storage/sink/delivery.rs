//! Delivers each alert once: to a program, a recording, the screen, and as requests to jobs.

use super::hook::Hook;
use crate::{
    facts::event::{Event, Fact, Request},
    model::{
        alerts::{Captures, Edges, Message, News, Policy},
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
    asks: Option<(Captures, Sender<Request>)>,
    news: News,
    edges: Edges,
}

impl Delivery {
    /// Delivers to a program, and requests captures from jobs in which growth is found.
    pub fn new(hook: Option<Hook>, asks: Option<Sender<Request>>) -> Self {
        let mut delivery = Self { hook, ..Self::default() };
        if let Some(asks) = asks {
            delivery.ask(asks);
        }
        delivery
    }

    /// Requests captures from now on.
    pub fn ask(&mut self, asks: Sender<Request>) {
        self.asks = Some((Captures::default(), asks));
    }

    /// Returns whether no program receives alerts and no probe receives requests.
    pub fn is_idle(&self) -> bool {
        self.hook.is_none() && self.asks.is_none()
    }

    /// Folds an event, and delivers what is new on the grid of events: at each [`Fact::Second`]. Returns and keeps the
    /// same as [`Self::deliver`].
    pub fn fold(
        &mut self,
        session: &mut Session,
        policy: &Policy,
        event: &Event,
        keep: impl FnMut(&'static str, &Finding),
    ) -> Vec<Message> {
        session.apply(event);
        if event.fact != Fact::Second {
            return Vec::new();
        }
        self.deliver(session, &policy.findings(session), keep)
    }

    /// Delivers what is new, and returns it for the screen; `keep` gets each alert with `raised` or `resolved`.
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
                // A full queue has the same request already.
                let _ = asks.try_send(ask.into());
            }
        }
        let news = self.news.at(session, findings);
        self.offer(&news);
        news
    }

    /// Delivers alerts of several machines.
    pub fn offer(&self, news: &[Message]) {
        for message in news {
            self.hook.iter().for_each(|it| it.offer(message.clone()));
        }
    }

    /// Describes problems with the program, if any.
    pub fn complaint(&self) -> Option<String> {
        self.hook.as_ref()?.outcome().complaint()
    }

    /// Stops and describes problems; queued alerts may take until `patience`.
    pub fn finish(self, patience: Duration) -> Option<String> {
        self.hook?.finish(patience).complaint()
    }
}

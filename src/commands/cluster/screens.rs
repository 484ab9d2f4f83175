//! The screen of many machines and those of an opened one, from links or from recordings.

use crate::{
    facts::text::Foreign,
    model::{
        cluster::{Cluster, Link, Node, overview::Overview},
        findings::Findings,
        session::Session,
    },
    screen::{
        effects::Effects,
        term::Screen,
        ui::{
            Machine, Request, Source, Ui,
            cluster_ui::{ClusterUi, Opening},
            preset::Preset,
            rows::RowId,
        },
        view::{self, Drawn},
    },
    storage::replay::Progress,
};
use crossterm::event::Event as Input;
use std::{collections::BTreeMap, io};

/// What is shown of many machines.
pub struct Screens {
    /// The state of the screen of all machines.
    pub ui: ClusterUi,
    /// What that screen shows.
    pub overview: Overview,
    preset: Preset,
    opened: Option<Opened>,
    /// The user interface of each machine that was open before.
    closed: BTreeMap<usize, Ui>,
}

/// The machine whose screens are shown.
struct Opened {
    node: usize,
    ui: Ui,
    /// The moment that stands still while `ui.frozen`.
    frozen: Option<Box<Session>>,
}

impl Screens {
    /// Creates the screen of all machines, without an opened one.
    pub fn new(ui: ClusterUi, overview: Overview, preset: Preset) -> Self {
        Self { ui, overview, preset, opened: None, closed: BTreeMap::new() }
    }

    /// Returns the state of the user interface that has the keys.
    pub fn current(&mut self) -> &mut Ui {
        self.opened.as_mut().map_or(&mut self.ui.base, |it| &mut it.ui)
    }

    /// Returns the place of the opened machine.
    pub fn opened(&self) -> Option<usize> {
        self.opened.as_ref().map(|it| it.node)
    }

    /// Takes a key or a move of the mouse.
    pub fn input(&mut self, input: &Input, cluster: &Cluster, effects: &mut Effects) {
        if let Some(opened) = &mut self.opened {
            let Some(node) = cluster.nodes.get(opened.node) else { return };
            opened.input(input, &node.session, effects);
            if opened.ui.request.take_if(|it| *it == Request::Leave).is_some() {
                self.close();
            }
        } else {
            effects.apply_cluster_input(input, &mut self.ui, &self.overview);
            if let Some(opening) = self.ui.opening.take() {
                self.open(opening, cluster);
            }
        }
    }

    /// Draws the opened machine, or all of them.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn draw(
        &mut self,
        screen: &mut Screen,
        cluster: &Cluster,
        progress: Option<&Progress>,
        effects: &mut Effects,
    ) -> io::Result<()> {
        if let Some(opened) = &mut self.opened {
            let Some(node) = cluster.nodes.get(opened.node) else { return Ok(()) };
            return opened.draw(screen, node, progress, effects);
        }
        let mut drawn = Drawn::default();
        screen.draw(|it| drawn = view::cluster::paint(it, &self.overview, &self.ui, &effects.theme, progress))?;
        self.ui.columns = drawn.columns;
        effects.drawn(drawn, &mut self.ui.base);
        Ok(())
    }

    /// Opens a machine as it was left, or as at its first sight.
    fn open(&mut self, opening: Opening, cluster: &Cluster) {
        let Some(node) = cluster.nodes.get(opening.node) else { return };
        if node.greeting.is_none() {
            let why = match &node.link {
                Link::Up | Link::Connecting => "it has not answered yet".to_owned(),
                Link::Copying => "gpuwatch is being copied to it".to_owned(),
                link => link.why().map_or_else(String::new, ToString::to_string),
            };
            return self.ui.base.show_message(format!("{} cannot be opened: {why}", node.host));
        }
        let mut ui = self.closed.remove(&opening.node).unwrap_or_else(|| self.first_sight());
        ui.policy.clone_from(&self.ui.base.policy);
        let rank = opening.rank.and_then(|it| self.overview.ranks.get(it));
        if let Some((probe, ordinal)) = rank.and_then(|it| it.probe) {
            let id = RowId::Probed(probe, ordinal);
            ui.select_process(&id, &node.session);
        }
        ui.machine = Some(Machine { node: opening.node, host: node.host.clone(), trouble: None });
        self.opened = Some(Opened { node: opening.node, ui, frozen: None });
    }

    fn first_sight(&self) -> Ui {
        let base = &self.ui.base;
        let source = if base.is_replay() { Source::Replay } else { Source::Live };
        let mut ui = Ui { source, no_signals: base.no_signals, no_allow: base.no_allow, ..Ui::default() };
        ui.show_preset(self.preset);
        ui
    }

    /// Returns to the machines.
    fn close(&mut self) {
        let Some(Opened { node, mut ui, .. }) = self.opened.take() else { return };
        (ui.frozen, ui.status) = (false, None);
        self.ui.base.policy.clone_from(&ui.policy);
        self.ui.node = Some(node);
        self.closed.insert(node, ui);
    }
}

impl Opened {
    fn input(&mut self, input: &Input, now: &Session, effects: &mut Effects) {
        let shown = self.frozen.as_deref().unwrap_or(now);
        effects.apply_input(input, &mut self.ui, shown);
        if !self.ui.frozen {
            self.frozen = None;
        } else if self.frozen.is_none() {
            self.frozen = Some(Box::new(now.clone()));
        }
    }

    fn draw(
        &mut self,
        screen: &mut Screen,
        node: &Node,
        progress: Option<&Progress>,
        effects: &mut Effects,
    ) -> io::Result<()> {
        let trouble = node.link.why().map(|why| format!("{}: {why}", node.link.name()));
        let (host, trouble) = (node.host.clone(), trouble.map(Foreign::new));
        self.ui.machine = Some(Machine { node: self.node, host, trouble });
        let session = self.frozen.as_deref().unwrap_or(&node.session);
        let findings: Findings = self.ui.policy.findings(session);
        if self.frozen.is_none() {
            self.ui.attend(session, &findings);
        }
        let (ui, theme) = (&self.ui, &effects.theme);
        let mut drawn = Drawn::default();
        screen.draw(|it| {
            drawn = match progress {
                Some(progress) => view::draw_replay(it, session, &findings, ui, theme, progress),
                None => view::draw(it, session, &findings, ui, theme),
            }
        })?;
        effects.drawn(drawn, &mut self.ui);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::units::Stamp,
        model::cluster::{HostUpdate, What},
    };

    #[test]
    fn a_machine_that_has_not_answered_stays_closed_and_says_why() {
        let mut cluster = Cluster::new(["a".to_owned()], Stamp(0));
        let mut screens = Screens::new(ClusterUi::default(), Overview::default(), Preset::default());
        let steps = [
            (None, "a cannot be opened: it has not answered yet"),
            (Some(Link::Copying), "a cannot be opened: gpuwatch is being copied to it"),
            (Some(Link::refused("no route".to_owned())), "a cannot be opened: no route"),
        ];
        for (at, (link, message)) in (1..).zip(steps) {
            if let Some(link) = link {
                cluster.apply(HostUpdate { node: 0, at: Stamp(at), what: What::Link(link) });
            }
            screens.open(Opening { node: 0, rank: None }, &cluster);
            assert_eq!(screens.current().status.as_deref(), Some(message));
            assert_eq!(screens.opened(), None);
        }
    }
}

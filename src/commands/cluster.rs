//! `gpuwatch --hosts`: the screen of many machines, and the screens of one machine for each of them.

use crate::{
    facts::text::Foreign,
    hosts::link::Links,
    model::{
        alerts::Policy,
        cluster::{Cluster, Link, News as OfNode, What, overview::Overview},
        findings::Findings,
        session::Session,
    },
    screen::{
        effects::{Effects, Options},
        event_loop::{self, End, FRAME_AT_LEAST, View},
        term::Screen,
        ui::{
            Machine, Request, Ui,
            cluster::{ClusterUi, Opening},
            preset::Preset,
            rows::RowId,
        },
        view::{self, Drawn},
    },
    sources,
};
use crossterm::event::Event as Input;
use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    io,
    time::Duration,
};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// News folded before anything else gets its turn.
const BATCH: usize = 1024;

/// After a batch, the queue is left alone for this long: waking up costs more than folding.
const REST: Duration = Duration::from_millis(50);

/// Time between two pictures while machines answer for the first time, and of an opened machine; later, and of many
/// machines, [`FRAME_AT_LEAST`].
const SOON: Duration = Duration::from_millis(250);

/// How long the machines' first answers are expected.
const BEGINNING: Duration = Duration::from_secs(10);

/// The effect of a key is visible within this time.
const ANSWER: Duration = Duration::from_millis(30);

/// Shows machines until the user, a signal or the terminal ends it. Needs a tokio runtime around it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn watch(links: &mut Links, hosts: &[String], options: Options, policy: Policy) -> io::Result<End> {
    let (mouse, preset) = (options.mouse, options.preset);
    let mut ui = ClusterUi::new(Ui { policy, ..Ui::default() });
    let effects = Effects::new(options, &mut ui.base);
    let cluster = Cluster::new(hosts.iter().cloned(), sources::now());
    let now = Instant::now();
    let mut view = ClusterView {
        found: vec![Findings::default(); cluster.nodes.len()],
        overview: Overview::of(&cluster, &[]),
        cluster,
        changed: BTreeSet::new(),
        links,
        is_open: true,
        batch: Vec::new(),
        rest: None,
        ui,
        preset,
        opened: None,
        closed: BTreeMap::new(),
        begun: now,
        judged: now,
        drawn: now,
        due: now,
    };
    event_loop::run(&mut view, effects, mouse).await
}

/// The machine whose screens are shown.
struct Opened {
    node: usize,
    ui: Ui,
    /// The moment that stands still while `ui.frozen`.
    frozen: Option<Box<Session>>,
}

/// The machines, and the state of the user interface.
struct ClusterView<'a> {
    cluster: Cluster,
    /// The findings of each machine, as of the overview.
    found: Vec<Findings>,
    overview: Overview,
    /// The machines with news since.
    changed: BTreeSet<usize>,
    links: &'a mut Links,
    is_open: bool,
    batch: Vec<OfNode>,
    /// Until when the queue is left alone.
    rest: Option<Instant>,
    ui: ClusterUi,
    preset: Preset,
    opened: Option<Opened>,
    /// The user interface of each machine that was open before.
    closed: BTreeMap<usize, Ui>,
    begun: Instant,
    judged: Instant,
    drawn: Instant,
    due: Instant,
}

/// What ends a wait.
enum News {
    /// So many news are in the batch; none when the links have ended.
    Arrived(usize),
    /// The queue was left alone for long enough.
    Rested,
}

impl View for ClusterView<'_> {
    type News = News;

    fn ui(&mut self) -> &mut Ui {
        self.opened.as_mut().map_or(&mut self.ui.base, |it| &mut it.ui)
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        if let Some(opened) = &mut self.opened {
            let Some(node) = self.cluster.nodes.get(opened.node) else { return };
            opened.input(input, &node.session, effects);
            if opened.ui.request.take_if(|it| *it == Request::Leave).is_some() {
                self.close();
            }
        } else {
            effects.obey_many(input, &mut self.ui, &self.overview);
            if let Some(opening) = self.ui.opening.take() {
                self.open(opening);
            }
        }
        self.due = self.due.min(self.drawn + ANSWER);
    }

    fn due(&self) -> Instant {
        self.due
    }

    async fn wait(&mut self) -> News {
        let rest = self.rest;
        if !self.is_open && rest.is_none() {
            return pending().await;
        }
        select! {
            biased;
            count = self.links.news.recv_many(&mut self.batch, BATCH), if self.is_open && rest.is_none() => News::Arrived(count),
            () = sleep_until(rest.unwrap_or(self.due)), if rest.is_some() => News::Rested,
        }
    }

    fn fold(&mut self, news: News, _: &mut Screen) -> io::Result<()> {
        match news {
            News::Rested => self.rest = None,
            News::Arrived(count) => {
                let now = Instant::now();
                self.is_open = count > 0;
                self.rest = (count < BATCH).then_some(now + REST);
                self.fold_batch();
                self.due = self.due.min(self.drawn + self.pace(now));
            }
        }
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()> {
        let now = Instant::now();
        (self.drawn, self.due) = (now, now + FRAME_AT_LEAST);
        let mut drawn = Drawn::default();
        if let Some(opened) = &mut self.opened {
            let Some(node) = self.cluster.nodes.get(opened.node) else { return Ok(()) };
            let trouble = node.link.why().map(|why| format!("{}: {why}", node.link.name()));
            opened.ui.machine = Some(Machine { host: node.host.clone(), trouble: trouble.map(Foreign::new) });
            let session = opened.frozen.as_deref().unwrap_or(&node.session);
            let findings = opened.ui.policy.findings(session);
            if opened.frozen.is_none() {
                opened.ui.attend(session, &findings);
            }
            screen.draw(|it| drawn = view::draw(it, session, &findings, &opened.ui, &effects.theme))?;
            effects.drawn(drawn, &mut opened.ui);
            return Ok(());
        }
        if !self.ui.base.frozen && now >= self.judged + self.pace(now) {
            self.judge(now);
        }
        screen.draw(|it| drawn = view::cluster::draw(it, &self.overview, &self.ui, &effects.theme))?;
        self.ui.columns = drawn.columns;
        effects.drawn(drawn, &mut self.ui.base);
        Ok(())
    }
}

impl ClusterView<'_> {
    /// Returns the time between two pictures.
    fn pace(&self, now: Instant) -> Duration {
        let is_beginning = now.duration_since(self.begun) < BEGINNING;
        if is_beginning || self.opened.is_some() { SOON } else { FRAME_AT_LEAST }
    }

    fn fold_batch(&mut self) {
        for news in self.batch.drain(..) {
            if !matches!(news.what, What::Second | What::Link(_)) {
                self.changed.insert(news.node);
            }
            self.cluster.apply(news);
        }
    }

    /// Analyses the machines with news, and makes the overview again.
    fn judge(&mut self, now: Instant) {
        self.judged = now;
        for node in std::mem::take(&mut self.changed) {
            if let Some((it, found)) = self.cluster.nodes.get(node).zip(self.found.get_mut(node)) {
                *found = self.ui.base.policy.findings(&it.session);
            }
        }
        self.overview = Overview::of(&self.cluster, &self.found);
    }

    /// Opens a machine as it was left, or as at its first sight.
    fn open(&mut self, opening: Opening) {
        let Some(node) = self.cluster.nodes.get(opening.node) else { return };
        if node.greeting.is_none() {
            let why = match &node.link {
                Link::Up | Link::Connecting => "it has not answered yet".to_owned(),
                link => link.why().map_or_else(String::new, ToString::to_string),
            };
            return self.ui.base.show_message(format!("{} cannot be opened: {why}", node.host));
        }
        let mut ui = self.closed.remove(&opening.node).unwrap_or_else(|| self.first_sight());
        ui.policy.clone_from(&self.ui.base.policy);
        if let Some((probe, ordinal)) = opening.process {
            let id = RowId::Probed(probe, ordinal);
            ui.select_process(&id, &node.session);
        }
        self.opened = Some(Opened { node: opening.node, ui, frozen: None });
    }

    fn first_sight(&self) -> Ui {
        let base = &self.ui.base;
        let mut ui = Ui { no_signals: base.no_signals, no_allow: base.no_allow, ..Ui::default() };
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
    fn input(&mut self, input: &Input, live: &Session, effects: &mut Effects) {
        let shown = self.frozen.as_deref().unwrap_or(live);
        effects.obey(input, &mut self.ui, shown);
        if !self.ui.frozen {
            self.frozen = None;
        } else if self.frozen.is_none() {
            self.frozen = Some(Box::new(live.clone()));
        }
    }
}

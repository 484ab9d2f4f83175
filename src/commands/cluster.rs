//! `gpuwatch --hosts`: the screen of several hosts, and the screens of one host for each of them.

/// `gpuwatch --prometheus`: the same screen, fed from a store of figures.
pub mod prometheus_view;
/// The screens, which links or recordings feed.
pub mod screens;

use crate::{
    cli::alert_outputs::AlertOutputs,
    facts::text::Foreign,
    hosts::link::Links,
    model::{
        alerts::{NewClusterAlerts, Policy},
        cluster::{Cluster, HostUpdate as OfNode, What, findings::ClusterFindings, overview::Overview},
    },
    screen::{
        effects::{Effects, Options},
        event_loop::{self, End, FRAME_AT_LEAST, View},
        term::Screen,
        ui::{Ui, cluster_ui::ClusterUi},
    },
    sources,
};
use crossterm::event::Event as Input;
use screens::Screens;
use std::{collections::BTreeSet, future::pending, io, time::Duration};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// Changes folded before anything else gets its turn.
const BATCH: usize = 1024;

/// After a batch, the queue is left alone for this long: waking up costs more than folding.
const REST: Duration = Duration::from_millis(50);

/// Time between two pictures while hosts answer for the first time, and of an opened host; later, and of several
/// hosts, [`FRAME_AT_LEAST`].
const SOON: Duration = Duration::from_millis(250);

/// How long the hosts' first answers are expected.
const BEGINNING: Duration = Duration::from_secs(10);

/// The effect of a key is visible within this time.
const ANSWER: Duration = Duration::from_millis(30);

/// Shows hosts until the user, a signal or the terminal ends it. Needs a tokio runtime around it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn watch(
    links: &mut Links,
    hosts: &[String],
    options: Options,
    policy: Policy,
    outputs: &mut AlertOutputs,
) -> io::Result<End> {
    let (mouse, preset) = (options.mouse, options.preset);
    let mut ui = ClusterUi::new(Ui { policy, ..Ui::default() });
    let effects = Effects::new(options, &mut ui.base);
    let cluster = Cluster::new(hosts.iter().cloned(), sources::now());
    let found = ui.base.policy.found(&cluster);
    let now = Instant::now();
    let mut view = ClusterView {
        screens: Screens::new(ui, Overview::of(&cluster, &found), preset),
        found,
        cluster,
        changed: BTreeSet::new(),
        news: NewClusterAlerts::default(),
        outputs,
        links,
        is_open: true,
        batch: Vec::new(),
        rest: None,
        begun: now,
        judged: now,
        overviewed: now,
        drawn: now,
        due: now,
    };
    event_loop::run(&mut view, effects, mouse).await
}

/// The hosts, and the state of the user interface.
struct ClusterView<'a> {
    cluster: Cluster,
    /// The findings of each host, as of the overview.
    found: ClusterFindings,
    screens: Screens,
    /// The hosts that have changed since.
    changed: BTreeSet<usize>,
    news: NewClusterAlerts,
    outputs: &'a mut AlertOutputs,
    links: &'a mut Links,
    is_open: bool,
    batch: Vec<OfNode>,
    /// Until when the queue is left alone.
    rest: Option<Instant>,
    begun: Instant,
    judged: Instant,
    /// The judgement that the overview shows.
    overviewed: Instant,
    drawn: Instant,
    due: Instant,
}

/// What ends a wait.
enum ClusterUpdate {
    /// So many changes are in the batch; none when the links have ended.
    Arrived(usize),
    /// The queue was left alone for long enough.
    Rested,
}

impl View for ClusterView<'_> {
    type Update = ClusterUpdate;

    fn ui(&mut self) -> &mut Ui {
        self.screens.current()
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        self.screens.input(input, &self.cluster, effects);
        self.due = self.due.min(self.drawn + ANSWER);
    }

    fn due(&self) -> Instant {
        self.due
    }

    async fn wait(&mut self) -> ClusterUpdate {
        let rest = self.rest;
        if !self.is_open && rest.is_none() {
            return pending().await;
        }
        select! {
            biased;
            count = self.links.news.recv_many(&mut self.batch, BATCH), if self.is_open && rest.is_none() => ClusterUpdate::Arrived(count),
            () = sleep_until(rest.unwrap_or(self.due)), if rest.is_some() => ClusterUpdate::Rested,
        }
    }

    fn fold(&mut self, update: ClusterUpdate, _: &mut Screen) -> io::Result<()> {
        match update {
            ClusterUpdate::Rested => self.rest = None,
            ClusterUpdate::Arrived(count) => {
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
        let is_still = self.screens.opened().is_some() || self.screens.ui.base.frozen;
        let pace = if self.is_beginning(now) { SOON } else { FRAME_AT_LEAST };
        if (self.outputs.is_wanted() || !is_still) && now >= self.judged + pace {
            self.judge(now);
            self.alert(screen)?;
        }
        if !is_still && self.overviewed < self.judged {
            self.screens.overview = Overview::of(&self.cluster, &self.found);
            self.overviewed = self.judged;
        }
        self.screens.draw(screen, &self.cluster, None, effects)
    }
}

impl ClusterView<'_> {
    /// Returns the time between two pictures.
    fn pace(&self, now: Instant) -> Duration {
        if self.is_beginning(now) || self.screens.opened().is_some() { SOON } else { FRAME_AT_LEAST }
    }

    fn is_beginning(&self, now: Instant) -> bool {
        now.duration_since(self.begun) < BEGINNING
    }

    fn fold_batch(&mut self) {
        for change in self.batch.drain(..) {
            if !matches!(change.what, What::Second | What::Link(_)) {
                self.changed.insert(change.node);
            }
            self.cluster.apply(change);
        }
    }

    /// Analyses the hosts that have changed.
    fn judge(&mut self, now: Instant) {
        self.judged = now;
        let policy = &self.screens.current().policy;
        for host in std::mem::take(&mut self.changed) {
            if let Some((it, found)) = self.cluster.nodes.get(host).zip(self.found.machines.get_mut(host)) {
                *found = policy.findings(&it.session);
            }
        }
    }

    /// Delivers new alerts.
    fn alert(&mut self, screen: &mut Screen) -> io::Result<()> {
        if !self.outputs.is_wanted() {
            return Ok(());
        }
        let alerts = self.news.at(&self.cluster, &self.found);
        self.outputs.delivery.offer(&alerts);
        self.outputs.show(&alerts, screen)?;
        self.screens.current().complaint = self.outputs.delivery.complaint().map(Foreign::new);
        Ok(())
    }
}

//! `gpuwatch --prometheus`: the screen of many machines with the figures of a store, and the past of one rank.
//!
//! Two tasks ask the store, one for the rows and one for the past that is open, so that no key waits for an answer.

use super::{ANSWER, View};
use crate::{
    facts::text::Foreign,
    hosts::prometheus::{self, Fleet, Question, Series, Store, query::Matcher},
    model::cluster::{Answers, History, Past, overview::Overview},
    screen::{
        effects::{Effects, Options},
        event_loop::{self, End, FRAME_AT_LEAST},
        term::Screen,
        ui::{Ui, cluster_ui::ClusterUi},
        view::{self, Drawn},
    },
    sources,
};
use anyhow::Result;
use crossterm::event::Event as Input;
use std::{future::pending, io, time::Duration};
use tokio::{
    select,
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

/// An answer of the store.
pub enum PrometheusUpdate {
    /// The latest figures of all ranks, or why the store gave none.
    Rows(Result<Fleet>),
    /// A past, with its end in seconds of Unix time.
    Past(Question, u64, Result<History>),
}

/// Shows what a store has, asked every `every`, until the user, a signal or the terminal ends it. Needs a tokio runtime
/// around it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn watch(store: Store, matchers: Vec<Matcher>, every: Duration, options: Options) -> io::Result<End> {
    let mouse = options.mouse;
    let mut ui = ClusterUi::of_store(Ui::default());
    let effects = Effects::new(options, &mut ui.base);
    let answers = Answers { store: Foreign::new(store.to_string()), ..Answers::default() };
    let (sender, news) = mpsc::channel(1);
    let (question, questions) = watch::channel(None);
    tokio::spawn(ask_rows(store.clone(), matchers, every, sender.clone()));
    tokio::spawn(ask_past(store, every, questions, sender));
    let now = Instant::now();
    let (overview, series) = (Overview::default(), Vec::new());
    let mut view = PrometheusView {
        ui,
        overview,
        series,
        answers,
        newest: None,
        chosen: None,
        question,
        news,
        arrived: None,
        drawn: now,
        due: now,
    };
    event_loop::run(&mut view, effects, mouse).await
}

/// Asks for the rows again and again.
async fn ask_rows(store: Store, matchers: Vec<Matcher>, every: Duration, news: mpsc::Sender<PrometheusUpdate>) {
    loop {
        let rows = prometheus::fleet(&store, &matchers).await;
        if news.send(PrometheusUpdate::Rows(rows)).await.is_err() {
            return;
        }
        sleep(every).await;
    }
}

/// Asks for the past of the current question again and again; another question ends the wait for an answer.
async fn ask_past(
    store: Store,
    every: Duration,
    mut questions: watch::Receiver<Option<Question>>,
    news: mpsc::Sender<PrometheusUpdate>,
) {
    loop {
        let current = questions.borrow_and_update().clone();
        let ask = async {
            let Some(it) = current else { return pending().await };
            loop {
                let end = sources::unix_us() / 1_000_000;
                let past = prometheus::history(&store, &it, end).await;
                if news.send(PrometheusUpdate::Past(it.clone(), end, past)).await.is_err() {
                    return;
                }
                sleep(every).await;
            }
        };
        select! {
            () = ask => return,
            changed = questions.changed() => if changed.is_err() { return },
        }
    }
}

/// What the store has, and the state of the user interface.
struct PrometheusView {
    ui: ClusterUi,
    overview: Overview,
    /// The series of each rank of the overview.
    series: Vec<Series>,
    answers: Answers,
    /// The latest rows, and when they arrived, until they are drawn.
    newest: Option<(Fleet, Instant)>,
    /// The selected rank. While its past is open, the series stay those of one device.
    chosen: Option<Series>,
    question: watch::Sender<Option<Question>>,
    news: mpsc::Receiver<PrometheusUpdate>,
    /// When the rows of the overview arrived.
    arrived: Option<Instant>,
    drawn: Instant,
    due: Instant,
}

impl View for PrometheusView {
    type Update = PrometheusUpdate;

    fn ui(&mut self) -> &mut Ui {
        &mut self.ui.base
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        let was_past = self.ui.is_past();
        effects.apply_cluster_input(input, &mut self.ui, &self.overview);
        if let Some(opening) = self.ui.opening.take() {
            self.ui.open_past(opening, &self.overview);
        }
        self.choose(was_past);
        self.ask();
        self.due = self.due.min(self.drawn + ANSWER);
    }

    fn due(&self) -> Instant {
        self.due
    }

    async fn wait(&mut self) -> PrometheusUpdate {
        match self.news.recv().await {
            Some(it) => it,
            // The tasks end after this view.
            None => pending().await,
        }
    }

    fn fold(&mut self, update: PrometheusUpdate, _: &mut Screen) -> io::Result<()> {
        match update {
            PrometheusUpdate::Rows(Ok(fleet)) => {
                (self.newest, self.answers.trouble) = (Some((fleet, Instant::now())), None);
            }
            PrometheusUpdate::Rows(Err(why)) => self.answers.trouble = Some(Foreign::new(format!("{why:#}"))),
            PrometheusUpdate::Past(question, end, past) => {
                let is_open = self.question.borrow().as_ref() == Some(&question);
                if let Some(shown) = self.answers.past.as_mut().filter(|_| is_open) {
                    match past {
                        Ok(points) => {
                            (shown.points, shown.end_us, shown.trouble) = (points, Some(end * 1_000_000), None);
                        }
                        Err(why) => shown.trouble = Some(Foreign::new(format!("{why:#}"))),
                    }
                }
            }
        }
        self.due = self.due.min(self.drawn + ANSWER);
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()> {
        let now = Instant::now();
        (self.drawn, self.due) = (now, now + FRAME_AT_LEAST);
        if let Some((fleet, arrived)) = self.newest.take_if(|_| !self.ui.base.frozen) {
            self.adopt(fleet);
            self.arrived = Some(arrived);
        }
        let age = self.arrived.map(|it| now.duration_since(it).as_micros());
        self.answers.age_us = age.map(|it| u64::try_from(it).unwrap_or(u64::MAX));
        let (ui, theme) = (&self.ui, &effects.theme);
        let mut drawn = Drawn::default();
        screen.draw(|it| {
            drawn = view::cluster::paint_store(it, &self.overview, ui, theme, &self.answers);
        })?;
        self.ui.columns = drawn.columns;
        effects.drawn(drawn, &mut self.ui.base);
        Ok(())
    }
}

impl PrometheusView {
    /// Shows other rows, with the same machine and rank selected.
    fn adopt(&mut self, Fleet { overview, series }: Fleet) {
        let place = self.chosen.as_ref().and_then(|chosen| series.iter().position(|it| it.id == chosen.id));
        self.ui.follow(&self.overview, &overview, place);
        (self.overview, self.series) = (overview, series);
    }

    /// Takes the selected rank. The series of a past that is open stay while the rank is the same.
    fn choose(&mut self, was_past: bool) {
        let selected = self.ui.chosen(&self.overview).and_then(|it| self.series.get(it));
        let is_same = |it: &&Series| self.chosen.as_ref().is_some_and(|chosen| chosen.id == it.id);
        if let Some(it) = selected.filter(|it| !(was_past && is_same(it))) {
            self.chosen = Some(it.clone());
        }
    }

    /// Asks for the past that is open, if it is another one than before.
    fn ask(&mut self) {
        let (figure, seconds) = (self.ui.figure, self.ui.span.seconds());
        let rank = self.chosen.clone().filter(|_| self.ui.is_past());
        let question = rank.map(|rank| Question { rank: rank.key, figure, seconds, points: Past::POINTS });
        let is_new = self.question.send_if_modified(|asked| {
            let is_new = *asked != question;
            asked.clone_from(&question);
            is_new
        });
        if is_new {
            self.answers.past = question.map(|it| Past::awaited(it.figure, it.seconds));
        }
    }
}

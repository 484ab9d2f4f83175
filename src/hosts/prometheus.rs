//! A fleet as a store of figures has it: what the machines' `gpuwatch serve` export, asked of Prometheus or of anything
//! with its API, as the rows of a screen of many machines.

mod answer;
mod http;
/// Which ranks to ask for.
pub mod query;
mod rows;

use crate::model::cluster::{
    History, Past,
    overview::{Overview, figure::RankFigure},
};
use answer::Figure;
use anyhow::{Result, bail};
pub use http::Store;
use http::{ANSWER_MAX, PAST_MAX};
use query::Matcher;
pub use rows::{Key, Series};
use std::time::Duration;
use tokio::{task::spawn_blocking, time::timeout, try_join};

/// How long a question and its answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What a store has at one moment.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The rows.
    pub overview: Overview,
    /// The series of each rank, in the order of the rows.
    pub series: Vec<Series>,
}

/// Asks for the current figures of all ranks that have these labels.
///
/// # Errors
/// Fails if the store does not answer in time, refuses, or answers with something else.
pub async fn fleet(store: &Store, matchers: &[Matcher]) -> Result<Fleet> {
    let ask = async {
        let (ranks, devices) = (query::ranks(matchers), query::devices(matchers));
        try_join!(now(store, &ranks), now(store, &devices))
    };
    let (ranks, devices) = in_time(store, ask).await?;
    let has_all = query::has_all_devices(matchers);
    // Thousands of ranks take some time, in which a screen answers keys.
    Ok(spawn_blocking(move || rows::fleet(&ranks, &devices, has_all)).await?)
}

/// A question for the past of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The rank whose history is wanted.
    pub rank: Key,
    /// The figure.
    pub figure: RankFigure,
    /// How many seconds.
    pub seconds: u64,
    /// In how many points at most.
    pub points: u64,
}

/// Asks for the past of a rank until `unix_s`. A point has the worst value of the step that it ends.
///
/// # Errors
/// As [`fleet`].
pub async fn history(store: &Store, of: &Question, unix_s: u64) -> Result<History> {
    let step = Past::step(of.seconds, of.points);
    let parameters = [
        ("query", query::past(of, step)),
        ("start", unix_s.saturating_sub(of.seconds.saturating_sub(step)).to_string()),
        ("end", unix_s.to_string()),
        ("step", step.to_string()),
    ];
    let ask = async {
        let answer = store.ask("/api/v1/query_range", &parameters, PAST_MAX).await?;
        spawn_blocking(move || answer::range(&answer)).await?
    };
    in_time(store, ask).await
}

async fn now(store: &Store, query: &str) -> Result<Vec<Figure>> {
    let answer = store.ask("/api/v1/query", &[("query", query.to_owned())], ANSWER_MAX).await?;
    spawn_blocking(move || answer::instant(&answer)).await?
}

async fn in_time<T>(store: &Store, asked: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(LIMIT, asked).await {
        Ok(it) => it,
        Err(_) => bail!("{store} does not answer within {} s", LIMIT.as_secs()),
    }
}

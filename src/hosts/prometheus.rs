//! A fleet as a store of figures has it: what the machines' `gpuwatch serve` export, asked of Prometheus or of anything
//! with its API, as the rows of a screen of many machines.

mod answer;
/// Which ranks to ask for.
pub mod query;
mod rows;

use crate::{
    facts::text::Foreign,
    model::cluster::{
        History, Past,
        overview::{Overview, figure::RankFigure},
    },
    net::{
        client::{Origin, PostError, form},
        token::Token,
    },
};
use answer::Figure;
use anyhow::{Result, anyhow, bail};
use http_body_util::{BodyExt, Limited};
use hyper::{
    StatusCode,
    body::Bytes,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION},
};
use query::Matcher;
pub use rows::{Key, Series};
use std::{fmt, str::FromStr, time::Duration};
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

/// The port without one in the address.
const PORT: u16 = 9090;

/// Most bytes of an answer: 4,096 ranks take about 16 MiB.
const ANSWER_MAX: usize = 64 << 20;

/// Most bytes of the past of one rank, of which a point takes about 30, and of a refusal.
const PAST_MAX: usize = 4 << 20;

/// The address of a store, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    origin: Origin,
    path: String,
    token: Option<Token>,
}

impl FromStr for Store {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (origin, path) = Origin::parse(text, PORT)?;
        Ok(Self { origin, path, token: None })
    }
}

impl Store {
    /// Adds a token.
    ///
    /// # Errors
    /// Fails if other machines could read it on its way.
    pub fn with_token(self, token: Token) -> Result<Self> {
        if !self.origin.is_private() {
            bail!(
                "a token to {self} would be sent without encryption: use https, or ask through a tunnel to 127.0.0.1"
            );
        }
        Ok(Self { token: Some(token), ..self })
    }

    /// Posts a question and returns the answer.
    ///
    /// # Errors
    /// Fails if the store cannot be reached, refuses, or answers more than `most` bytes.
    async fn ask(&self, path: &str, parameters: &[(&str, String)], most: usize) -> Result<Bytes> {
        let mut headers = vec![
            (ACCEPT, HeaderValue::from_static("application/json")),
            (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
        ];
        headers.extend(self.token.iter().map(|it| (AUTHORIZATION, it.header())));
        let posted = self.origin.post(&format!("{}{path}", self.path), &headers, form(parameters).into()).await;
        let response = posted.map_err(|error| match error {
            PostError::Unreachable(why) | PostError::Untrusted(why) => why.context(format!("cannot reach {self}")),
            PostError::Unanswered(why) => why.context(format!("{self} does not answer")),
            PostError::Invalid(why) => why.context("cannot ask"),
        })?;
        let (head, body) = response.into_parts();
        let most = if head.status.is_success() { most } else { PAST_MAX };
        let body = Limited::new(body, most).collect().await.map(http_body_util::Collected::to_bytes);
        if head.status.is_success() {
            return body.map_err(|why| match why.downcast_ref::<http_body_util::LengthLimitError>() {
                Some(_) => {
                    let advice = if most == ANSWER_MAX { ": select fewer ranks with --match" } else { "" };
                    anyhow!("{self} answers more than {} MiB{advice}", most >> 20)
                }
                None => anyhow!("{self} breaks off: {}", Foreign::new(why.to_string())),
            });
        }
        let words = body.ok().and_then(|it| answer::refusal(&it)).map_or_else(String::new, |it| format!(": {it}"));
        let hint = match head.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ": it wants a token, see --prometheus-token".to_owned(),
            StatusCode::NOT_FOUND => ": it has no API of Prometheus there".to_owned(),
            it if it.is_redirection() => {
                let to = head.headers.get(LOCATION).and_then(|it| it.to_str().ok()).unwrap_or_default();
                format!(": it refers to {}", Foreign::new(to))
            }
            _ => words,
        };
        bail!("{self} answers {}{hint}", head.status);
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, Foreign::new(self.path.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_an_address_with_or_without_a_path() {
        for (text, shown) in [
            ("http://127.0.0.1", "http://127.0.0.1:9090"),
            ("http://mimir:80/prometheus/", "http://mimir:80/prometheus"),
            ("https://[::1]:9/", "https://[::1]:9"),
        ] {
            assert_eq!(text.parse::<Store>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_token_leaves_this_machine_only_encrypted_and_is_never_shown() {
        let store = |text: &str| text.parse::<Store>().unwrap().with_token(Token::new("hush\n").unwrap());
        assert!(!format!("{:?}", store("http://[::1]").unwrap()).contains("hush"));
        assert!(store("http://localhost").is_ok() && store("https://mimir").is_ok());
        let why = store("http://mimir").unwrap_err().to_string();
        assert!(why.contains("without encryption") && !why.contains("hush"), "{why}");
    }
}

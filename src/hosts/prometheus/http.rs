//! Questions over HTTP.

use super::answer;
use crate::{
    facts::text::Foreign,
    hosts::{
        tls::{self, Origin},
        token_file,
    },
};
use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use std::{fmt, path::Path, str::FromStr};

/// The port without one in the address.
const PORT: u16 = 9090;

/// Most bytes of an answer: 4,096 ranks take about 16 MiB.
pub(super) const ANSWER_MAX: usize = 64 << 20;

/// Most bytes of the past of one rank, of which a point takes about 30, and of a refusal.
pub(super) const PAST_MAX: usize = 4 << 20;

/// A bearer token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(HeaderValue);

/// The address of a store, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    origin: Origin,
    path: String,
    token: Option<Token>,
}

impl Token {
    /// Takes a token as a variable of the environment has it.
    ///
    /// # Errors
    /// Fails if no request can carry it.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() {
            bail!("the token is empty");
        }
        let value = HeaderValue::from_str(&format!("Bearer {text}"));
        // The error would show the token.
        let mut value =
            value.map_err(|_shows_it| anyhow!("the token has characters that no HTTP request can carry"))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Reads the first line of a file.
    ///
    /// # Errors
    /// Fails if it cannot be read, is too long or empty.
    pub fn read(path: &Path) -> Result<Self> {
        let line = token_file::read(path, |_| Ok(()))?;
        let shown = Foreign::new(path.to_string_lossy());
        Self::new(&line).with_context(|| format!("cannot use the token in {shown}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
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
    pub(super) async fn ask(&self, path: &str, parameters: &[(&str, String)], most: usize) -> Result<Bytes> {
        let stream = self.origin.connect().await;
        let stream = stream.with_context(|| format!("cannot reach {self}"))?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.with_context(|| format!("cannot reach {self}"))?;
        // It ends with the sender.
        tokio::spawn(connection);
        let pairs: Vec<String> = parameters.iter().map(|(name, it)| format!("{name}={}", encoded(it))).collect();
        let mut request = Request::post(format!("{}{path}", self.path))
            .header(HOST, self.origin.authority())
            .header(USER_AGENT, concat!("gpuwatch/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(Token(token)) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(Bytes::from(pairs.join("&")))).context("cannot ask")?;
        let response = sender.send_request(request).await.map_err(|error| match tls::refusal(&error) {
            Some(why) => anyhow!("cannot reach {self}: {why}"),
            None => anyhow!(error).context(format!("{self} does not answer")),
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

/// Encodes a parameter of a form.
fn encoded(text: &str) -> String {
    let byte = |it: u8| match it {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(it).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
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
        for bad in ["", " ", "a\u{7}b"] {
            assert!(Token::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parameters_keep_every_character() {
        assert_eq!(encoded("{a=\"b c\"}&é"), "%7Ba%3D%22b%20c%22%7D%26%C3%A9");
    }
}

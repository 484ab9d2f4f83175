//! Answers HTTP requests for the figures: on a loopback port, or on a Unix socket.

use super::exposition::Format;
use anyhow::{Context, Result, bail};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::Mode;
use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{Semaphore, mpsc, oneshot},
    time::timeout,
};

/// Where the figures are.
const PATH: &str = "/metrics";

/// Connections at the same time; more wait.
const CONNECTIONS: usize = 8;

/// How long a request may take to arrive.
const REQUEST: Duration = Duration::from_secs(5);

/// How long a connection may stay: a scraper that keeps one open opens it again.
const CONNECTION: Duration = Duration::from_secs(60);

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port of this machine that other machines cannot reach.
    Loopback(SocketAddr),
    /// A Unix socket, which its owner alone can use.
    Socket(PathBuf),
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Socket(path.into()));
        }
        let address: SocketAddr = text.parse().ok().with_context(|| {
            format!("{text:?} is not an address: write 127.0.0.1:9477, [::1]:9477 or unix:/path/of/a/socket")
        })?;
        if !address.ip().is_loopback() {
            bail!(
                "other machines could reach {address} without encryption: listen on 127.0.0.1 or on a Unix socket, and put \
                 a proxy with TLS before it"
            );
        }
        Ok(Self::Loopback(address))
    }
}

/// A request for the figures.
pub(super) struct Scrape {
    /// The format.
    pub(super) format: Format,
    /// Where the text goes.
    pub(super) reply: oneshot::Sender<String>,
}

/// A listener. Dropping it removes its socket.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// Fails if the address is in use or not allowed.
    pub(super) async fn open(address: &Address) -> Result<Self> {
        match address {
            Address::Loopback(it) => {
                Ok(Self::Tcp(TcpListener::bind(it).await.with_context(|| format!("cannot listen on {it}"))?))
            }
            Address::Socket(path) => Ok(Self::Unix(bind(path)?, path.clone())),
        }
    }

    /// Answers requests; each connection has a task of its own.
    pub(super) async fn answer(&self, scrapes: mpsc::Sender<Scrape>, token: Option<String>) {
        let (permits, token) = (Arc::new(Semaphore::new(CONNECTIONS)), token.map(Arc::from));
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let (scrapes, token) = (scrapes.clone(), token.clone());
            let task = match self {
                Self::Tcp(it) => it.accept().await.map(|it| tokio::spawn(converse(it.0, scrapes, token, permit))),
                Self::Unix(it, _) => it.accept().await.map(|it| tokio::spawn(converse(it.0, scrapes, token, permit))),
            };
            if task.is_err() {
                // Out of descriptors: other connections have to end first.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(it) => match it.local_addr() {
                Ok(it) => write!(f, "http://{it}{PATH}"),
                Err(why) => write!(f, "an unknown port ({why})"),
            },
            Self::Unix(_, path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes a socket that only this user can open. A socket without a listener is left from a process that was killed.
fn bind(path: &Path) -> Result<UnixListener> {
    let is_left = std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    if is_left && fs::symlink_metadata(path).is_ok_and(|it| std::os::unix::fs::FileTypeExt::is_socket(&it.file_type()))
    {
        let _ = fs::remove_file(path);
    }
    // Nothing else of this process makes files at this moment.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    bound.with_context(|| format!("cannot listen on {}", path.display()))
}

/// Answers the requests of one connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    scrapes: mpsc::Sender<Scrape>,
    token: Option<Arc<str>>,
    permit: tokio::sync::OwnedSemaphorePermit,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (scrapes, token) = (scrapes.clone(), token.clone());
        async move { Ok::<_, hyper::Error>(answer(&request, &scrapes, token.as_deref()).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST).max_headers(64);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    // A peer that breaks off or sends garbage gets no answer.
    let _ = timeout(CONNECTION, connection).await;
    drop(permit);
}

async fn answer(
    request: &Request<Incoming>,
    scrapes: &mpsc::Sender<Scrape>,
    token: Option<&str>,
) -> Response<Full<Bytes>> {
    if token.is_some_and(|it| !is_authorized(request.headers(), it)) {
        let mut refused = plain(StatusCode::UNAUTHORIZED, "a bearer token is needed\n");
        refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    }
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, "the figures are at /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let accept = request.headers().get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let (format, (reply, replied)) = (Format::accepted(accept), oneshot::channel());
    // The loop that owns the session is gone only when the program ends.
    let _ = scrapes.send(Scrape { format, reply }).await;
    match replied.await {
        Ok(text) => typed(StatusCode::OK, format.content_type(), text),
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "gpuwatch is ending\n"),
    }
}

/// Compares all bytes, so that the time shows nothing about the token.
fn is_authorized(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let wanted = format!("Bearer {token}").into_bytes();
    given.len() == wanted.len() && given.iter().zip(&wanted).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", text.to_owned())
}

fn typed(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_listened_to() {
        let parsed = |it: &str| it.parse::<Address>();
        assert_eq!(parsed("127.0.0.1:9477").unwrap(), Address::Loopback(([127, 0, 0, 1], 9477).into()));
        assert!(matches!(parsed("[::1]:9477"), Ok(Address::Loopback(_))));
        assert_eq!(parsed("unix:/run/it.sock").unwrap(), Address::Socket("/run/it.sock".into()));
        for (text, words) in [("0.0.0.0:9477", "TLS"), ("10.0.0.7:9477", "TLS"), ("9477", "is not an address")] {
            let why = parsed(text).unwrap_err().to_string();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_token_is_compared_whole() {
        let mut headers = HeaderMap::new();
        assert!(!is_authorized(&headers, "it"));
        for (given, is_right) in [("Bearer it", true), ("Bearer i", false), ("Bearer itt", false), ("it", false)] {
            headers.insert(AUTHORIZATION, given.parse().unwrap());
            assert_eq!(is_authorized(&headers, "it"), is_right, "{given}");
        }
    }
}

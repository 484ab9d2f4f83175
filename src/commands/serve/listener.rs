//! Answers HTTP requests for the figures: on a port, or on a Unix socket.

use super::{
    admission::AllowedHosts,
    admission::{Admission, AdmittedConnection},
    exposition::Format,
};
use crate::net::{
    client::Stream,
    tls::{Identity, TlsAcceptor},
    token::is_authorized,
};
use anyhow::{Context, Result, bail};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
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
    net::{TcpListener, UnixListener},
    select,
    sync::{mpsc, oneshot},
    time::timeout,
};

/// The answer to a page of another site that reaches this machine under a name of its own.
const FOREIGN_HOST: &str = "the request names a host that is not this machine: use localhost or its address, or allow the name with --allow-host\n";

/// Where the figures are.
const PATH: &str = "/metrics";

/// How long a request may take to arrive, and a handshake before it.
const REQUEST: Duration = Duration::from_secs(5);

/// How long a connection may stay: a scraper that keeps one open opens it again.
const STAY: Duration = Duration::from_secs(60);

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port of this machine.
    Port(SocketAddr),
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
        Ok(Self::Port(address))
    }
}

impl Address {
    /// Whether other machines can reach it.
    pub(super) fn is_public(&self) -> bool {
        matches!(self, Self::Port(it) if !it.ip().is_loopback())
    }

    /// Checks what protects the figures there.
    ///
    /// # Errors
    /// Fails if other machines could read them, or if TLS has no use there.
    pub(super) fn check(&self, has_tls: bool, has_token: bool) -> Result<()> {
        let address = match self {
            Self::Socket(_) if has_tls => bail!("a Unix socket stays on this machine: use --tls-cert with a port"),
            Self::Port(it) if self.is_public() => it,
            _ => return Ok(()),
        };
        let missing = match (has_tls, has_token) {
            (true, true) => return Ok(()),
            (true, false) => "--token",
            (false, true) => "--tls-cert with --tls-key",
            (false, false) => "--tls-cert with --tls-key, and --token",
        };
        bail!("other machines can reach {address}: add {missing}, or listen on 127.0.0.1 or on a Unix socket")
    }
}

/// A request for the figures.
pub(super) struct ScrapeRequest {
    /// The format.
    pub(super) format: Format,
    /// Where the text goes.
    pub(super) reply: oneshot::Sender<String>,
}

/// What a connection needs for its answers.
#[derive(Clone)]
pub(super) struct RequestHandler {
    /// Where requests go.
    pub(super) scrapes: mpsc::Sender<ScrapeRequest>,
    /// The token that requests must have.
    pub(super) token: Option<Arc<str>>,
    /// The hosts that requests may name; `None` where any may be named.
    pub(super) hosts: Option<Arc<AllowedHosts>>,
}

/// A listener. Dropping it removes its socket.
pub(super) enum Listener {
    Tcp(TcpListener, Option<Identity>),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// Fails if the address is in use or not allowed.
    pub(super) async fn open(address: &Address, identity: Option<Identity>) -> Result<Self> {
        match address {
            Address::Port(it) => {
                let listener = TcpListener::bind(it).await.with_context(|| format!("cannot listen on {it}"))?;
                Ok(Self::Tcp(listener, identity))
            }
            Address::Socket(path) => Ok(Self::Unix(bind(path)?, path.clone())),
        }
    }

    /// Answers requests; each connection has a task of its own. `notices` get what the user should know.
    pub(super) async fn answer(&mut self, handler: RequestHandler, notices: mpsc::Sender<String>) {
        let admission = Admission::new();
        loop {
            let handler = handler.clone();
            let accepted = match self {
                Self::Tcp(it, identity) => it.accept().await.map(|(stream, _)| {
                    let notice = identity.as_mut().and_then(Identity::renew);
                    let _ = notice.map(|it| notices.try_send(it));
                    let acceptor = identity.as_ref().map(Identity::acceptor);
                    tokio::spawn(serve_connection(stream, acceptor, handler, admission.admit()))
                }),
                Self::Unix(it, _) => it
                    .accept()
                    .await
                    .map(|(stream, _)| tokio::spawn(serve_connection(stream, None, handler, admission.admit()))),
            };
            if accepted.is_err() {
                // Out of descriptors: other connections have to end first.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(it, identity) => match it.local_addr() {
                Ok(it) => write!(f, "{}://{it}{PATH}", if identity.is_some() { "https" } else { "http" }),
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

/// Serves a connection until it ends, or until a newer one displaces it.
async fn serve_connection(
    stream: impl Stream + 'static,
    acceptor: Option<TlsAcceptor>,
    handler: RequestHandler,
    permit: AdmittedConnection,
) {
    select! {
        () = meet(stream, acceptor, &handler, &permit) => {}
        () = permit.displaced() => {}
    }
}

/// Encrypts a connection if it has to be, and answers its requests.
async fn meet(
    stream: impl Stream + 'static,
    acceptor: Option<TlsAcceptor>,
    handler: &RequestHandler,
    permit: &AdmittedConnection,
) {
    let Some(acceptor) = acceptor else { return converse(stream, handler, permit).await };
    // A peer without TLS, or one that is too slow, gets no answer.
    if let Ok(Ok(stream)) = timeout(REQUEST, acceptor.accept(stream)).await {
        converse(stream, handler, permit).await;
    }
}

/// Answers the requests of one connection.
async fn converse(stream: impl Stream + 'static, handler: &RequestHandler, permit: &AdmittedConnection) {
    let service =
        service_fn(async |request: Request<Incoming>| Ok::<_, hyper::Error>(answer(&request, handler, permit).await));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST).max_headers(64);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    // A peer that breaks off or sends garbage gets no answer.
    let _ = timeout(STAY, connection).await;
}

async fn answer(
    request: &Request<Incoming>,
    handler: &RequestHandler,
    permit: &AdmittedConnection,
) -> Response<Full<Bytes>> {
    if handler.hosts.as_ref().is_some_and(|it| !it.allow(request)) {
        let mut refused = plain(StatusCode::FORBIDDEN, FOREIGN_HOST);
        refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return refused;
    }
    if handler.token.as_deref().is_some_and(|it| !is_authorized(request.headers(), it)) {
        let mut refused = plain(StatusCode::UNAUTHORIZED, "a bearer token is needed\n");
        refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        // A peer without the token cannot stay by asking again.
        refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return refused;
    }
    permit.authorize();
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
    let _ = handler.scrapes.send(ScrapeRequest { format, reply }).await;
    match replied.await {
        Ok(text) => typed(StatusCode::OK, format.content_type(), text),
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "gpuwatch is ending\n"),
    }
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
    fn other_machines_need_encryption_and_a_token() {
        let parsed = |it: &str| it.parse::<Address>().unwrap();
        assert_eq!(parsed("127.0.0.1:9477"), Address::Port(([127, 0, 0, 1], 9477).into()));
        assert_eq!(parsed("unix:/run/it.sock"), Address::Socket("/run/it.sock".into()));
        assert!("9477".parse::<Address>().unwrap_err().to_string().contains("is not an address"));
        for local in ["127.0.0.1:9477", "[::1]:9477"] {
            for (has_tls, has_token) in [(false, false), (true, false), (false, true), (true, true)] {
                parsed(local).check(has_tls, has_token).unwrap();
            }
        }
        for remote in ["0.0.0.0:9477", "10.0.0.7:9477", "[::]:9477"] {
            parsed(remote).check(true, true).unwrap();
            for (has_tls, has_token, words) in [
                (false, false, "add --tls-cert with --tls-key, and --token, or listen on 127.0.0.1"),
                (true, false, "add --token, or"),
                (false, true, "add --tls-cert with --tls-key, or"),
            ] {
                let why = parsed(remote).check(has_tls, has_token).unwrap_err().to_string();
                assert!(why.contains(words), "{why}");
            }
        }
        assert!(parsed("unix:/run/it.sock").check(true, true).is_err());
    }
}

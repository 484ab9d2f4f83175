//! Servers that gpuwatch connects to, over TCP or over TLS, and requests to them over HTTP.

use super::tls::{PROTOCOL, provider, refusal};
use crate::{facts::text::Foreign, storage::input};
use anyhow::{Context, Error, Result, anyhow, bail};
use http_body_util::Full;
use hyper::{
    Request, Response, Uri,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{HOST, HeaderName, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::{
    env, fmt, io,
    net::IpAddr,
    os::unix::fs::FileTypeExt,
    path::Path,
    sync::{Arc, OnceLock},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, pki_types::ServerName},
};

/// The characters of a form's parameters that are encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The port of `https` without one in the address.
const PORT: u16 = 443;

/// A scheme, a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    is_encrypted: bool,
    host: String,
    port: u16,
}

/// A connection, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Origin {
    /// Parses an address. `port` is that of `http` without one in the address. The path comes without a final slash.
    ///
    /// # Errors
    /// Fails if the address has another scheme or no host.
    pub fn parse(text: &str, port: u16) -> Result<(Self, String)> {
        let advice = || format!("{text:?} is not an address: write http://127.0.0.1:{port} or https://HOST");
        let uri: Uri = text.parse().with_context(advice)?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!(advice()),
        };
        let host = uri.host().filter(|it| !it.is_empty()).with_context(|| format!("{text:?} names no host"))?;
        if uri.authority().is_some_and(|it| it.as_str().contains('@')) {
            bail!("an address with a password is seen by every user of this machine: use a token in a file");
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_encrypted { PORT } else { port });
        Ok((Self { is_encrypted, host, port }, uri.path().trim_end_matches('/').to_owned()))
    }

    /// Whether no other machine can read what is sent: it is encrypted, or stays on this one.
    pub fn is_private(&self) -> bool {
        let is_loopback = self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback());
        self.is_encrypted || is_loopback
    }

    /// Connects, and verifies the server's certificate if the scheme is `https`.
    ///
    /// # Errors
    /// Fails with an [`std::io::Error`] if the server cannot be reached, and with another error if it is not trusted.
    pub async fn connect(&self) -> Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        if !self.is_encrypted {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.host.clone()).context("no certificate can name this host")?;
        match connector()?.connect(name, stream).await {
            Ok(it) => Ok(Box::new(it)),
            Err(error) => Err(refusal(&error).map_or_else(|| error.into(), |it| anyhow!(it))),
        }
    }

    /// Returns the host and the port, as a request names them.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}", Foreign::new(self.authority()))
    }
}

/// Why a request has no answer.
pub enum PostError {
    /// The server cannot be reached now.
    Unreachable(Error),
    /// The server is not trusted, or does not trust gpuwatch.
    Untrusted(Error),
    /// It ended the connection without an answer.
    Unanswered(Error),
    /// No such request can be sent.
    Invalid(Error),
}

impl Origin {
    /// Posts a request over a connection of its own, and returns the answer, whose body is yet to be read. Sets no time
    /// limit.
    ///
    /// # Errors
    /// Fails if the server cannot be reached, is not trusted, or ends the connection; not if it refuses the request.
    pub async fn post(
        &self,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Response<Incoming>, PostError> {
        let stream = self.connect().await.map_err(|why| {
            // A server that cannot be trusted now cannot be trusted in a few seconds.
            if why.is::<io::Error>() { PostError::Unreachable(why) } else { PostError::Untrusted(why) }
        })?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|it| PostError::Unreachable(it.into()))?;
        // It ends with the sender.
        tokio::spawn(connection);
        let mut request = Request::post(path)
            .header(HOST, self.authority())
            .header(USER_AGENT, concat!("gpuwatch/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(|it| PostError::Invalid(it.into()))?;
        sender.send_request(request).await.map_err(|error| match refusal(&error) {
            Some(why) => PostError::Untrusted(anyhow!(why)),
            None => PostError::Unanswered(error.into()),
        })
    }
}

/// Returns the body of a form, `application/x-www-form-urlencoded`.
pub fn form(parameters: &[(&str, String)]) -> String {
    let pairs = parameters.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, ENCODED)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns what connects over TLS. The issuers are read once, because a machine has more than a hundred; without any,
/// they are read again the next time.
fn connector() -> Result<TlsConnector> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(it) = CONFIG.get() {
        return Ok(Arc::clone(it).into());
    }
    let read = Arc::new(config()?);
    Ok(Arc::clone(CONFIG.get_or_init(|| read)).into())
}

/// Most bytes of a file of issuers: those of a system take less than 1 MiB.
const ISSUERS_MAX: u64 = 16 << 20;

/// Refuses a file of issuers without an end, of which the next call would read all.
fn check_issuers(path: &Path) -> Result<()> {
    // What a pipe has can be read once.
    if path.metadata().is_ok_and(|it| it.file_type().is_fifo()) {
        return Ok(());
    }
    match input::small(path, ISSUERS_MAX) {
        Err(why) if why.kind() == io::ErrorKind::FileTooLarge => {
            bail!("cannot read the issuers in {} (SSL_CERT_FILE): {why}", Foreign::new(path.to_string_lossy()))
        }
        // What else is wrong with it is reported below.
        _ => Ok(()),
    }
}

fn config() -> Result<ClientConfig> {
    if let Some(path) = env::var_os("SSL_CERT_FILE") {
        check_issuers(Path::new(&path))?;
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One certificate that cannot be read does not exclude the others.
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        let why = found.errors.first().map_or_else(String::new, |it| format!(" ({it})"));
        bail!(
            "there are no certificates of issuers to trust{why}: install the package ca-certificates, or name a PEM file \
             in the variable SSL_CERT_FILE"
        );
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_without_an_end_are_not_read() {
        let why = check_issuers(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(why.contains("/dev/zero (SSL_CERT_FILE): it is larger than 16384 KiB"), "{why}");
        assert!(check_issuers(Path::new("/dev/null")).is_ok() && check_issuers(Path::new("/nowhere")).is_ok());
    }

    #[test]
    fn parameters_keep_every_character() {
        let all = [("query", "{a=\"b c\"}&é".to_owned()), ("step", "15".to_owned())];
        assert_eq!(form(&all), "query=%7Ba%3D%22b%20c%22%7D%26%C3%A9&step=15");
    }

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        for (text, shown) in [
            ("http://store", ("http://store:9090", "")),
            ("https://store", ("https://store:443", "")),
            ("https://[::1]:9/path/", ("https://[::1]:9", "/path")),
        ] {
            let (origin, path) = Origin::parse(text, 9090).unwrap();
            assert_eq!((origin.to_string().as_str(), path.as_str()), shown);
        }
        for (text, words) in [
            ("ftp://store", "https://HOST"),
            ("store:9090", "https://HOST"),
            ("", "https://HOST"),
            ("http://", "not an address"),
            ("https://ada:secret@store", "token in a file"),
        ] {
            let why = Origin::parse(text, 9090).unwrap_err().to_string();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn only_encrypted_or_local_connections_are_private() {
        for (text, is_private) in [
            ("http://127.0.0.1", true),
            ("http://[::1]", true),
            ("http://localhost", true),
            ("http://store", false),
            ("https://store", true),
        ] {
            assert_eq!(Origin::parse(text, 9090).unwrap().0.is_private(), is_private, "{text}");
        }
    }
}

//! TLS, by rustls: a server's certificate and key, which are read again when their files change, and why a peer was not
//! trusted.

use crate::{facts::text::Foreign, storage::input};
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::geteuid;
use std::{
    error,
    fs::{self, Metadata},
    io, iter,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};
pub use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, Error, InconsistentKeys, InvalidMessage, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

/// What may be agreed on with a peer. gpuwatch implements HTTP/1.1 alone.
pub(super) const PROTOCOL: &[u8] = b"http/1.1";

/// Most names of a certificate that are listed.
const NAMES_MAX: usize = 4;

/// Most bytes of a file: a chain of certificates takes less than 16 KiB.
const FILE_MAX: u64 = 1 << 20;

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those of its issuers up to the root, in PEM.
    pub certificate: PathBuf,
    /// The private key in PEM, for its owner alone.
    pub key: PathBuf,
}

/// What distinguishes the versions of a file; `None` without a file.
type Version = Option<(u64, u64, u64, i64, i64)>;

/// A certificate and its key.
pub struct Identity {
    files: Files,
    versions: [Version; 2],
    config: Arc<ServerConfig>,
}

impl Files {
    fn versions(&self) -> [Version; 2] {
        [&self.certificate, &self.key].map(|path| {
            let it = fs::metadata(path).ok()?;
            Some((it.dev(), it.ino(), it.len(), it.mtime(), it.mtime_nsec()))
        })
    }

    fn read(&self) -> Result<ServerConfig> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let chain = CertificateDer::pem_slice_iter(&bytes(&self.certificate, |_| Ok(()))?)
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("{certificate} is not a certificate in PEM"))?;
        if chain.is_empty() {
            bail!("{certificate} has no certificate in PEM");
        }
        // The error could show a part of the key.
        let private = PrivateKeyDer::from_pem_slice(&bytes(&self.key, |it| private("key", &self.key, it))?)
            .map_err(|_shows_it| anyhow!("{key} has no private key in PEM without a password"))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private);
        let mut config = config.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                anyhow!("the key in {key} does not belong to the certificate in {certificate}")
            }
            other => anyhow!("cannot use the certificate in {certificate} with the key in {key}: {other}"),
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

impl Identity {
    /// Reads the files.
    ///
    /// # Errors
    /// Fails if one cannot be read, if others can read the key, or if the two do not belong together.
    pub fn read(files: Files) -> Result<Self> {
        let versions = files.versions();
        let config = Arc::new(files.read()?);
        Ok(Self { files, versions, config })
    }

    /// Reads the files again if one has changed, and returns what the user should know of it. The earlier certificate
    /// stays if the new one cannot be used.
    pub fn renew(&mut self) -> Option<String> {
        let versions = self.files.versions();
        if versions == self.versions {
            return None;
        }
        self.versions = versions;
        Some(match self.files.read() {
            Ok(config) => {
                self.config = Arc::new(config);
                format!("the new certificate in {} is in use", self.files.certificate.display())
            }
            Err(why) => format!("the earlier certificate stays in use: {why:#}"),
        })
    }

    /// Returns what encrypts a connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

/// Reads a small file, if its metadata allow it.
fn bytes(path: &Path, allow: impl Fn(&Metadata) -> Result<()>) -> Result<Vec<u8>> {
    let shown = path.display();
    let cannot = || format!("cannot read {shown}");
    // It is read again later, which a FIFO does not allow.
    let file = input::open(path).with_context(cannot)?;
    let metadata = file.metadata().with_context(cannot)?;
    if !metadata.is_file() {
        bail!("{shown} is not a file");
    }
    allow(&metadata)?;
    match input::bounded(file, FILE_MAX) {
        Err(why) if why.kind() == io::ErrorKind::FileTooLarge => bail!("{shown} is too long: it has more than 1 MiB"),
        read => read.with_context(cannot),
    }
}

/// Checks that other users cannot read a secret.
///
/// # Errors
/// Fails if they can.
pub fn private(what: &str, path: &Path, metadata: &Metadata) -> Result<()> {
    if !is_private(metadata.mode(), metadata.uid(), geteuid().as_raw()) {
        bail!("other users can read the {what} in {0}: run `chmod 600 {0}`", path.display());
    }
    Ok(())
}

/// Whether a file is its user's alone. A key of root may have a group that reads it, as for Debian's `ssl-cert` and for
/// secrets of Kubernetes: such a user can have no key of his own there.
fn is_private(mode: u32, owner: u32, user: u32) -> bool {
    let denied = if owner == 0 && user != 0 { 0o037 } else { 0o077 };
    mode & denied == 0
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns why TLS failed, and the next step; `None` if the connection broke off. A server of TLS 1.3 refuses a client
/// after the client's handshake, so the reason may be in a source of the error of a request.
pub fn refusal(error: &(dyn error::Error + 'static)) -> Option<String> {
    let mut chain = iter::successors(Some(error), |it| it.source());
    let error = chain.find_map(|it| it.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<Error>())?;
    Some(match error {
        Error::InvalidCertificate(it) => certificate(it),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it answers without TLS: write http:// if that is intended".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it wants a certificate of its client, which gpuwatch does not have".to_owned()
        }
        other => format!("TLS fails: {}", Foreign::new(other.to_string())),
    })
}

fn certificate(error: &CertificateError) -> String {
    use CertificateError as Fault;
    match error {
        // The latter two are those of an issuer whose name is trusted with another key.
        Fault::UnknownIssuer
        | Fault::BadSignature
        | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate is signed by no issuer that is trusted here: name a PEM file with the issuer's certificate in \
             the variable SSL_CERT_FILE"
                .to_owned()
        }
        Fault::Expired => "its certificate has expired".to_owned(),
        Fault::ExpiredContext { not_after, .. } => format!("its certificate has expired on {}", day(*not_after)),
        Fault::NotValidYet => "its certificate is not valid yet".to_owned(),
        Fault::NotValidYetContext { not_before, .. } => {
            format!("its certificate is valid from {} on: compare the clocks", day(*not_before))
        }
        Fault::NotValidForNameContext { expected, presented } => wrong_name(expected, presented),
        // The only sign of a self-signed certificate made with the defaults of `openssl req -x509`.
        Fault::Other(it) if it.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is that of an issuer: make one for the server, with basicConstraints=CA:FALSE".to_owned()
        }
        other => format!("its certificate is not valid: {}", Foreign::new(other.to_string())),
    }
}

fn wrong_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    // rustls gives names as `DnsName("node01")`.
    let name = |it: &String| {
        let inner = it.split_once('(').map_or(it.as_str(), |(_, rest)| rest.trim_end_matches(')'));
        Foreign::new(inner.trim_matches('"')).to_string()
    };
    let names: Vec<String> = presented.iter().take(NAMES_MAX).map(name).collect();
    let expected = Foreign::new(expected.to_str());
    match (names.is_empty(), presented.len() > NAMES_MAX) {
        (true, _) => format!("its certificate has no subjectAltName, so not {expected}"),
        (false, is_more) => {
            format!(
                "its certificate is for {}{}, not for {expected}",
                names.join(", "),
                if is_more { ", …" } else { "" }
            )
        }
    }
}

/// Returns the day in UTC.
fn day(time: UnixTime) -> String {
    let time = i64::try_from(time.as_secs()).ok().and_then(|it| jiff::Timestamp::from_second(it).ok());
    time.map_or_else(|| "–".to_owned(), |it| it.strftime("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_owners_alone_or_that_of_roots_group() {
        for (mode, owner, user, expected) in [
            (0o600, 1000, 1000, true),
            (0o400, 0, 0, true),
            (0o640, 1000, 1000, false),
            (0o604, 1000, 1000, false),
            (0o640, 0, 0, false),
            (0o640, 0, 1000, true),
            (0o440, 0, 1000, true),
            (0o660, 0, 1000, false),
            (0o644, 0, 1000, false),
        ] {
            assert_eq!(is_private(0o100_000 | mode, owner, user), expected, "{mode:o} {owner} {user}");
        }
    }

    #[test]
    fn files_without_a_certificate_are_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let refused = |certificate: &str| {
            let files = Files { certificate: path(certificate), key: path("key") };
            format!("{:#}", Identity::read(files).err().unwrap())
        };
        assert!(refused("none").contains("cannot read"));
        for (text, words) in [
            ("", "has no certificate"),
            ("\u{0}garbage", "has no certificate"),
            ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "is not a certificate"),
        ] {
            fs::write(path("it"), text).unwrap();
            let why = refused("it");
            assert!(why.contains(words), "{why}");
        }
        assert!(refused("").contains("is not a file"));
        fs::write(path("long"), "a".repeat((1 << 20) + 1)).unwrap();
        assert!(refused("long").contains("too long"));
    }
}

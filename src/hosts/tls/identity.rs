//! A server's certificate and key, which are read again when their files change.

use super::{PROTOCOL, provider};
use crate::storage::input;
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::geteuid;
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        Error, InconsistentKeys, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

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

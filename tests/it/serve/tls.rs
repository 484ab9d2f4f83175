//! Encryption: the figures for other machines, and the servers that gpuwatch asks.

/// The servers that gpuwatch asks.
mod asked;
/// What `gpuwatch serve` answers.
mod served;

use crate::{helpers::terminal::PROGRAM, probe::launch::Home};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::{
    fs,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};
use tempfile::TempDir;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

/// An issuer of certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

/// A certificate and its key.
struct Issued {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, key: key.serialize_der(), issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate for these names, changed by `change`.
    fn issue(&self, names: &[&str], change: impl Fn(&mut CertificateParams)) -> Issued {
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Issued { certificate, key: key.serialize_der() }
    }

    fn local(&self) -> Issued {
        self.issue(&["localhost", "127.0.0.1"], |_| {})
    }

    /// Connects to a server of this machine, and trusts only this issuer.
    fn connect(&self, port: u16) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }
}

impl Issued {
    /// The key as rustls wants it.
    fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(pem("PRIVATE KEY", &self.key).as_bytes()).unwrap()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A directory with files for `gpuwatch serve`.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file by a rename, so that no reader sees a part of it.
    fn write(&self, name: &str, text: &str, mode: u32) -> String {
        let (path, new) = (self.path(name), self.path("new"));
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(new, &path).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn certificate(&self, name: &str, it: &CertificateDer) -> String {
        self.write(name, &pem("CERTIFICATE", it), 0o644)
    }

    fn key(&self, name: &str, it: &[u8]) -> String {
        self.write(name, &pem("PRIVATE KEY", it), 0o600)
    }
}

/// gpuwatch, which trusts the issuers of a file alone.
fn gpuwatch(home: &Home, issuers: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).envs(home.variables()).env("SSL_CERT_FILE", Path::new(issuers));
    command.env_remove("SSL_CERT_DIR").env_remove("GPUWATCH_PROMETHEUS_TOKEN");
    command
}

fn pem(label: &str, der: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let bits = three.iter().chain(&[0; 2]).take(3).fold(0, |bits, it| bits << 8 | usize::from(*it));
            let digit = |at: usize| char::from(digits[bits >> (18 - 6 * at) & 63]);
            text.extend((0..4).map(|at| if at <= three.len() { digit(at) } else { '=' }));
        }
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

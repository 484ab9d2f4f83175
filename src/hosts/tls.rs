//! TLS, by rustls: to the servers that gpuwatch asks, and for those that ask gpuwatch.
//!
//! A client always verifies. It trusts the issuers that the system trusts, or those of the file in `SSL_CERT_FILE`.

mod identity;
mod origin;
mod words;

pub use identity::{Files, Identity, private};
pub use origin::{Origin, Stream};
pub use tokio_rustls::TlsAcceptor;
pub use words::refusal;

use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// What may be agreed on with a peer. gpuwatch implements HTTP/1.1 alone.
const PROTOCOL: &[u8] = b"http/1.1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

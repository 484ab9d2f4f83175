//! Networks: encrypted connections as a client and as a server, requests over HTTP, bearer tokens, and when to try
//! again.
//!
//! A client always verifies. It trusts the issuers that the system trusts, or those of the file in `SSL_CERT_FILE`.

/// Certificates, keys, and why a peer was not trusted.
pub mod tls;

/// Servers that gpuwatch connects to, and requests to them.
pub mod client;

/// Bearer tokens.
pub mod token;

/// When to try again.
pub mod backoff;

/// Escapes the value of a label, as Prometheus's text format and `PromQL` have it.
pub fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

//! Why a server was not trusted, in words.

use crate::facts::text::Foreign;
use std::{error, io, iter};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage,
    pki_types::{ServerName, UnixTime},
};

/// Most names of a certificate that are listed.
const NAMES_MAX: usize = 4;

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

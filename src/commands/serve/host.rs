//! The hosts that a request may name. A page in a browser of this machine can reach its loopback addresses under a name
//! of the page's own domain (DNS rebinding), but the request still has that name.

use hyper::{
    Request, Version,
    header::{HOST, HeaderValue},
};
use std::net::IpAddr;

/// What requests to a port on this machine may name: the machine itself, or a name of the user's.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// Allows names beside those that every machine has for itself.
    pub(super) fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    /// Returns whether a request names an allowed host. Before HTTP/1.1 it may name none, and browsers always do.
    pub(super) fn allow<B>(&self, request: &Request<B>) -> bool {
        let mut given = request.headers().get_all(HOST).iter().map(HeaderValue::to_str);
        let named = match (given.next(), given.next()) {
            (None, _) => request.version() < Version::HTTP_11,
            (Some(Ok(authority)), None) => self.has(authority),
            _ => false,
        };
        // An address in the request line takes the place of the header.
        named && request.uri().authority().is_none_or(|it| self.has(it.as_str()))
    }

    fn has(&self, authority: &str) -> bool {
        let Some(host) = host(authority) else { return false };
        let host = host.strip_suffix('.').unwrap_or(host);
        let address = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        match address.parse::<IpAddr>() {
            Ok(it) => it.to_canonical().is_loopback() || self.names.iter().any(|name| name.parse() == Ok(it)),
            Err(_) => {
                host.eq_ignore_ascii_case("localhost") || self.names.iter().any(|it| it.eq_ignore_ascii_case(host))
            }
        }
    }
}

/// Returns the host of `host`, `host:port`, `[address]` or `[address]:port`.
fn host(authority: &str) -> Option<&str> {
    let is_port = |it: &str| it.bytes().all(|digit| digit.is_ascii_digit());
    if authority.starts_with('[') {
        let (address, rest) = authority.split_at(authority.find(']')? + 1);
        return (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(address);
    }
    match authority.split_once(':') {
        Some((host, port)) => is_port(port).then_some(host),
        None => Some(authority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_this_machine_or_an_allowed_name() {
        let hosts = Hosts::new(vec!["node7".into(), "gpu.example.org".into(), "10.0.0.7".into()]);
        for allowed in [
            "localhost",
            "LOCALHOST:9477",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:9477",
            "127.8.9.1",
            "[::1]",
            "[::1]:9477",
            "[::ffff:127.0.0.1]:1",
            "node7",
            "Node7:9477",
            "gpu.example.org:80",
            "10.0.0.7:9477",
        ] {
            assert!(hosts.has(allowed), "{allowed}");
        }
        for refused in [
            "",
            "evil.example",
            "evil.example:9477",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "node7.evil",
            "[::2]:9477",
            "10.0.0.8",
            "localhost:x",
            "localhost@evil.example",
            "[::1",
            "[::1]x",
            "::1",
            "user@localhost",
            "0.0.0.0",
            "[::]",
            "127.1",
            "2130706433",
        ] {
            assert!(!hosts.has(refused), "{refused}");
        }
    }

    #[test]
    fn one_header_names_the_host_and_the_request_line_no_other_one() {
        let hosts = Hosts::new(Vec::new());
        let request = |version, target: &str, given: &[&str]| {
            let mut request = Request::builder().version(version).uri(target);
            for it in given {
                request = request.header(HOST, *it);
            }
            hosts.allow(&request.body(()).unwrap())
        };
        assert!(request(Version::HTTP_11, "/metrics", &["localhost:1"]));
        assert!(request(Version::HTTP_10, "/metrics", &[]) && !request(Version::HTTP_11, "/metrics", &[]));
        assert!(!request(Version::HTTP_10, "/metrics", &["evil.example"]));
        assert!(!request(Version::HTTP_11, "/metrics", &["localhost", "evil.example"]));
        assert!(!request(Version::HTTP_11, "http://evil.example/metrics", &["localhost"]));
        assert!(request(Version::HTTP_11, "http://localhost:7/metrics", &["localhost"]));
    }
}

//! Which connections and requests a listener admits. It bounds the connections: one without an authorized request
//! displaces the oldest of its kind, and so does one with it: peers without the token, and readers that are slow, keep
//! no scraper waiting.

use hyper::{
    Request, Version,
    header::{HOST, HeaderValue},
};
use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::Notify;

/// Connections with an authorized request at the same time: each may hold a text of the figures.
const AUTHORIZED_MAX: usize = 32;

/// Connections without one at the same time.
const UNAUTHORIZED_MAX: usize = 64;

/// Admits connections.
pub(super) struct Admission {
    authorized: Arc<Mutex<ConnectionLimit>>,
    unauthorized: Arc<Mutex<ConnectionLimit>>,
}

/// An admitted connection; dropping it makes its place free.
pub(super) struct AdmittedConnection {
    authorized: Arc<Mutex<ConnectionLimit>>,
    unauthorized: Arc<Mutex<ConnectionLimit>>,
    /// Notified when a newer connection displaces this one.
    displaced: Arc<Notify>,
}

/// Connections of one kind, the one whose latest request is the oldest first.
struct ConnectionLimit {
    most: usize,
    taken: VecDeque<Weak<Notify>>,
}

impl ConnectionLimit {
    fn new(most: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { most, taken: VecDeque::new() }))
    }

    /// Takes the newest place. If there are too many, it displaces the oldest.
    fn take(&mut self, connection: &Arc<Notify>) {
        self.leave(connection);
        if self.taken.len() == self.most
            && let Some(oldest) = self.taken.pop_front().and_then(|it| it.upgrade())
        {
            oldest.notify_one();
        }
        self.taken.push_back(Arc::downgrade(connection));
    }

    /// Frees the place of a connection, and of those that have ended.
    fn leave(&mut self, connection: &Arc<Notify>) {
        self.taken.retain(|it| it.upgrade().is_some_and(|there| !Arc::ptr_eq(&there, connection)));
    }
}

fn locked(destinations: &Mutex<ConnectionLimit>) -> MutexGuard<'_, ConnectionLimit> {
    destinations.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Admission {
    pub(super) fn new() -> Self {
        Self { authorized: ConnectionLimit::new(AUTHORIZED_MAX), unauthorized: ConnectionLimit::new(UNAUTHORIZED_MAX) }
    }

    /// Admits a connection.
    pub(super) fn admit(&self) -> AdmittedConnection {
        let displaced = Arc::new(Notify::new());
        locked(&self.unauthorized).take(&displaced);
        AdmittedConnection {
            authorized: Arc::clone(&self.authorized),
            unauthorized: Arc::clone(&self.unauthorized),
            displaced,
        }
    }
}

impl AdmittedConnection {
    /// Counts it among those with an authorized request, as the newest.
    pub(super) fn authorize(&self) {
        locked(&self.unauthorized).leave(&self.displaced);
        locked(&self.authorized).take(&self.displaced);
    }

    /// Waits until a newer connection displaces this one.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

/// The hosts that a request to a port of this machine may name: the machine itself, or a name of the user's. A page in
/// a browser can reach its loopback addresses under a name of the page's own domain (DNS rebinding), but the request
/// still has that name.
#[derive(Clone, Debug)]
pub(super) struct AllowedHosts {
    names: Vec<String>,
}

impl AllowedHosts {
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
        let Some(host) = host_of(authority) else { return false };
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
fn host_of(authority: &str) -> Option<&str> {
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
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    fn is_displaced(connection: &AdmittedConnection) -> bool {
        pin!(connection.displaced()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_connection_without_a_token_is_displaced() {
        let admission = Admission::new();
        let authorized = admission.admit();
        authorized.authorize();
        let mut unauthorized: Vec<AdmittedConnection> = (0..UNAUTHORIZED_MAX).map(|_| admission.admit()).collect();
        assert!(!is_displaced(&authorized) && !unauthorized.iter().any(is_displaced));
        // One that has ended makes room without displacing another.
        drop(unauthorized.pop());
        unauthorized.push(admission.admit());
        assert!(!is_displaced(&unauthorized[0]));
        unauthorized.push(admission.admit());
        assert!(is_displaced(&unauthorized[0]) && !is_displaced(&unauthorized[1]));
        assert!(!is_displaced(&authorized));
    }

    #[test]
    fn a_slow_reader_makes_room_for_a_scraper_and_not_for_an_unauthorized_peer() {
        let admission = Admission::new();
        let authorized: Vec<AdmittedConnection> = (0..AUTHORIZED_MAX).map(|_| admission.admit()).collect();
        authorized.iter().for_each(AdmittedConnection::authorize);
        // The one that asks again is no longer the oldest.
        authorized[0].authorize();
        let next = admission.admit();
        assert!(!authorized.iter().any(is_displaced));
        next.authorize();
        assert!(is_displaced(&authorized[1]) && !is_displaced(&authorized[0]) && !is_displaced(&next));
        let unauthorized: Vec<AdmittedConnection> = (0..=UNAUTHORIZED_MAX).map(|_| admission.admit()).collect();
        assert!(is_displaced(&unauthorized[0]) && !authorized.iter().any(is_displaced));
    }

    #[test]
    fn a_request_names_this_machine_or_an_allowed_name() {
        let hosts = AllowedHosts::new(vec!["node7".into(), "gpu.example.org".into(), "10.0.0.7".into()]);
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
        let hosts = AllowedHosts::new(Vec::new());
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

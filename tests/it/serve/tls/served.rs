//! `gpuwatch serve` over TLS: who gets the figures, and what is refused at the start.

use super::{Authority, Folder, gpuwatch};
use crate::{
    helpers::terminal::{PATIENCE, until},
    probe::launch::Home,
    serve::{Server, asked},
};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
};
use tokio_rustls::rustls::{CertificateError, Error};

const KEY: &str = "Authorization: Bearer open sesame\r\n";

/// Why a client does not trust the server.
fn distrust(port: u16, authority: &Authority) -> Option<CertificateError> {
    let error = authority.connect(port).write_all(b"GET").err()?;
    match error.get_ref().and_then(|it| it.downcast_ref()) {
        Some(Error::InvalidCertificate(it)) => Some(it.clone()),
        _ => panic!("{error}"),
    }
}

#[test]
fn other_machines_get_the_figures_with_the_token_and_over_tls_alone() {
    let (home, folder, authority) = (Home::new(), Folder::new(), Authority::new("the issuer"));
    let first = authority.local();
    let (certificate, key) = (folder.certificate("cert", &first.certificate), folder.key("key", &first.key));
    let token = folder.write("token", "open sesame\n", 0o600);
    let arguments = ["serve", "--no-nvml", "--metrics", "0.0.0.0:0", "--tls-cert", &certificate, "--tls-key", &key];
    let mut command = gpuwatch(&home, "/dev/null", &arguments);
    command.args(["--token", &token]);
    let mut server = Server::of(command);
    assert!(server.address.starts_with("https://0.0.0.0:"), "{}", server.address);
    let port = server.host().rsplit_once(':').unwrap().1.parse().unwrap();
    let answer = |authority: &Authority, headers: &str| asked(authority.connect(port), "GET /metrics", headers);

    let (head, body) = answer(&authority, KEY);
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("gpuwatch_build_info"), "{head}\n{body}");
    assert!(answer(&authority, "").0.starts_with("HTTP/1.1 401 "));
    assert_eq!(distrust(port, &Authority::new("another")), Some(CertificateError::UnknownIssuer));

    // Without TLS there is no answer, only TLS's alert.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // The server may close it before the request is written.
    let _ = write!(plain, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{KEY}\r\n");
    let mut got = Vec::new();
    let _ = plain.read_to_end(&mut got);
    assert!(got.len() < 16 && !got.starts_with(b"HTTP"), "{got:?}");

    // A certificate that cannot be used is reported, and the earlier one stays.
    folder.write("cert", "renewed", 0o644);
    assert!(answer(&authority, KEY).0.starts_with("HTTP/1.1 200 "));
    let line = server.line();
    assert!(line.contains("earlier certificate stays in use") && line.contains("has no certificate"), "{line}");
    // A renewal writes the key before its certificate.
    let next = Authority::new("the next issuer");
    let second = next.local();
    folder.key("key", &second.key);
    folder.certificate("cert", &second.certificate);
    assert!(answer(&next, KEY).0.starts_with("HTTP/1.1 200 "));
    assert_eq!(distrust(port, &authority), Some(CertificateError::UnknownIssuer));
    let line = server.line();
    assert!(line.contains("the new certificate in ") && line.ends_with("/cert is in use"), "{line}");
    server.end();
}

/// A server whose figures need the token [`KEY`], and its port.
fn with_token(home: &Home, folder: &Folder, authority: &Authority) -> (Server, u16) {
    let issued = authority.local();
    let (certificate, key) = (folder.certificate("cert", &issued.certificate), folder.key("key", &issued.key));
    let token = folder.write("token", "open sesame\n", 0o600);
    let arguments = ["serve", "--no-nvml", "--metrics", "127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &key];
    let mut command = gpuwatch(home, "/dev/null", &arguments);
    command.args(["--token", &token]);
    let server = Server::of(command);
    let port = server.host().rsplit_once(':').unwrap().1.parse().unwrap();
    (server, port)
}

#[test]
fn peers_without_the_token_keep_no_scraper_waiting() {
    let (home, folder, authority) = (Home::new(), Folder::new(), Authority::new("the issuer"));
    let (server, port) = with_token(&home, &folder, &authority);

    // One that could stay by asking again and again is sent away.
    let mut asking = authority.connect(port);
    asking.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    asking.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 401 ") && text.contains("connection: close\r\n"), "{text}");

    // Eight at a time, these would take longer to run out of time than the scraper waits.
    let silent: Vec<TcpStream> = (0..250).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let scraper = authority.connect(port);
    scraper.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(asked(scraper, "GET /metrics", KEY).0.starts_with("HTTP/1.1 200 "));
    drop(silent);
    server.end();
}

/// Half-open connections, slow and broken handshakes, garbage before and after one, and a renegotiation in the clear.
#[test]
fn a_server_under_attack_stays_small_and_answers() {
    let (home, folder, authority) = (Home::new(), Folder::new(), Authority::new("the issuer"));
    let (server, port) = with_token(&home, &folder, &authority);
    let scrape = || {
        let scraper = authority.connect(port);
        scraper.sock.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(asked(scraper, "GET /metrics", KEY).0.starts_with("HTTP/1.1 200 "));
    };
    scrape();
    let plain = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // The server may have closed it by now.
        let _ = stream.write_all(bytes);
        stream
    };
    // The beginning of a hello of TLS 1.2 that has 512 bytes, and one that claims the longest record.
    let (slow, long) = (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x16\x03\x03\xff\xff\x01");
    let (mut held, mut shaken) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        held.extend([
            plain(b""),
            plain(slow),
            plain(long),
            plain(&[0x80; 4096]),
            plain(b"GET /metrics HTTP/1.1\r\n\r\n"),
        ]);
        // A handshake that is complete, and then a hello in the clear, or a request without an end.
        let mut stream = authority.connect(port);
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ");
        let _ = stream.sock.write_all(slow);
        shaken.push(stream);
    }
    scrape();
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap();
    let mib = peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10;
    assert!(mib < 200, "{mib} MiB");
    let open = || fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    // At most so many connections stay, and none for long.
    assert!(until(PATIENCE, || open() < 64 + 32 + 40), "{}", open());
    drop((held, shaken));
    assert!(until(PATIENCE, || open() < 40), "{}", open());
    scrape();
    server.end();
}

#[test]
fn settings_that_would_not_protect_the_figures_are_refused_at_the_start() {
    let (home, folder, authority) = (Home::new(), Folder::new(), Authority::new("the issuer"));
    let (one, other) = (authority.local(), authority.local());
    let (certificate, key) = (folder.certificate("cert", &one.certificate), folder.key("key", &one.key));
    let (strange, open) = (folder.key("strange", &other.key), folder.key("open", &one.key));
    fs::set_permissions(&open, fs::Permissions::from_mode(0o640)).unwrap();
    let garbage = folder.write("garbage", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n", 0o600);
    let token = folder.write("token", "open sesame\n", 0o600);
    let shared = folder.write("shared", "open sesame\n", 0o640);
    let socket = format!("unix:{}", folder.path("socket").display());
    let tls = |key| vec!["--tls-cert", &certificate, "--tls-key", key];
    for (address, arguments, words) in [
        ("0.0.0.0:0", vec![], "add --tls-cert with --tls-key, and --token"),
        ("0.0.0.0:0", tls(&key), "add --token, or listen on 127.0.0.1 or on a Unix socket"),
        ("0.0.0.0:0", vec!["--token", &token], "add --tls-cert with --tls-key, or"),
        ("0.0.0.0:0", [tls(&key), vec!["--token", &shared]].concat(), "other users can read the token in "),
        (&socket, tls(&key), "a Unix socket stays on this machine"),
        ("127.0.0.1:0", tls(&strange), "does not belong to the certificate"),
        ("127.0.0.1:0", tls(&open), "other users can read the key in "),
        ("127.0.0.1:0", tls(&open), "run `chmod 600 "),
        ("127.0.0.1:0", tls(&garbage), "cannot use the certificate"),
        ("127.0.0.1:0", tls(&token), "has no private key in PEM"),
        ("127.0.0.1:0", vec!["--tls-cert", &certificate], "--tls-key"),
    ] {
        let mut command = gpuwatch(&home, "/dev/null", &["serve", "--no-nvml", "--metrics", address]);
        let output = command.args(&arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(words), "{address} {arguments:?}: {errors}");
        assert!(!errors.contains("sesame") && !errors.contains("c2VjcmV0"), "{errors}");
    }
}

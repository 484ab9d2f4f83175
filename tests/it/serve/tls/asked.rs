//! Stores and receivers behind TLS: those with the right certificate get the token, others nothing.

use super::{Authority, Folder, Issued, gpuwatch, provider};
use crate::{
    helpers::terminal::PATIENCE,
    probe::launch::Home,
    serve::{
        Server,
        otlp::{answer, received_on},
    },
};
use rcgen::date_time_ymd;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener},
    process::Output,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
};
use tokio_rustls::rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned, server::WebPkiClientVerifier, version::TLS13,
};

/// An answer of a store without ranks.
const EMPTY: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;

type Connection = StreamOwned<ServerConnection, std::net::TcpStream>;

/// Serves connections over TLS.
fn server(issued: &Issued, serve: impl Fn(Connection) + Send + 'static) -> SocketAddr {
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![issued.certificate.clone()], issued.private());
    server_of(config.unwrap(), serve)
}

fn server_of(config: ServerConfig, serve: impl Fn(Connection) + Send + 'static) -> SocketAddr {
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream));
        }
    });
    address
}

/// A store without ranks, and the head of the request on each connection; empty without one.
fn store(issued: &Issued) -> (SocketAddr, Receiver<String>) {
    let (sender, heads) = channel();
    let address = server(issued, move |stream| {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        // A client that distrusts the certificate breaks off.
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|it| it > 0) {}
        let _ = sender.send(head);
        let _ = reader.get_mut().write_all(answer("200 OK", EMPTY).as_bytes());
        reader.get_mut().conn.send_close_notify();
        let _ = reader.get_mut().flush();
    });
    (address, heads)
}

/// A receiver, and the requests that it gets.
fn receiver(issued: &Issued) -> (String, Receiver<(String, Value)>) {
    let (sender, requests) = channel();
    let at = server(issued, move |mut stream| {
        // A client without issuers breaks off.
        if stream.conn.complete_io(&mut stream.sock).is_ok() {
            let _ = sender.send(received_on(stream, &answer("200 OK", "{}")));
        }
    });
    (format!("https://localhost:{}", at.port()), requests)
}

/// A server of TLS 1.3 that wants a certificate of its clients, and why it refuses each.
fn demanding(authority: &Authority) -> (String, Receiver<String>) {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let issued = authority.local();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![issued.certificate.clone()], issued.private());
    let (sender, refusals) = channel();
    let at = server_of(config.unwrap(), move |mut stream| {
        let why = stream.read(&mut [0]).unwrap_err();
        let _ = sender.send(why.to_string());
        // What is left unread would reset the connection, perhaps before the client has read the alert.
        let _ = stream.sock.shutdown(Shutdown::Write);
        let _ = stream.sock.read_to_end(&mut Vec::new());
    });
    (format!("https://localhost:{}", at.port()), refusals)
}

#[test]
fn a_store_with_the_right_certificate_gets_the_token_and_another_nothing() {
    let (home, folder, authority) = (Home::new(), Folder::new(), Authority::new("the issuer"));
    let issuers = folder.certificate("issuers", &authority.certificate);
    let token = folder.write("token", "hush\n", 0o600);
    let once = |issuers: &str, url: &str| -> Output {
        gpuwatch(&home, issuers, &["once", "--prometheus", url, "--prometheus-token", &token]).output().unwrap()
    };
    let refused = |issuers: &str, url: &str, words: &str| {
        let output = once(issuers, url);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(words) && !errors.contains("hush"), "{words}: {errors}");
    };
    let (at, heads) = store(&authority.local());
    for host in ["localhost", "127.0.0.1"] {
        let output = once(&issuers, &format!("https://{host}:{}/prometheus", at.port()));
        assert!(output.status.success(), "{output:?}");
        // Two questions, both of which were answered.
        let heads: Vec<String> = heads.try_iter().map(|it| it.to_lowercase()).collect();
        assert_eq!(heads.len(), 2);
        for head in heads {
            assert!(head.starts_with("post /prometheus/api/v1/query "), "{head}");
            assert!(head.contains("authorization: bearer hush\r\n"), "{head}");
            assert!(head.contains(&format!("host: {host}:{}\r\n", at.port())), "{head}");
        }
    }

    let others = folder.certificate("others", &Authority::new("another").certificate);
    // One with the right name and another key.
    let renewed = folder.certificate("renewed", &Authority::new("the issuer").certificate);
    let url = format!("https://localhost:{}", at.port());
    for (issuers, words) in [
        (&*others, "signed by no issuer that is trusted here: name a PEM file"),
        (&*renewed, "signed by no issuer that is trusted here: name a PEM file"),
        ("/dev/null", "no certificates of issuers to trust"),
    ] {
        refused(issuers, &url, words);
        assert_eq!(heads.recv_timeout(PATIENCE).unwrap(), "", "{words}");
    }
    let refused_by = |issued: &Issued, words: &str| {
        let (at, heads) = store(issued);
        refused(&issuers, &format!("https://localhost:{}", at.port()), words);
        assert_eq!(heads.recv_timeout(PATIENCE).unwrap(), "", "{words}");
    };
    let wrong_name = authority.issue(&["store.example", "10.0.0.7"], |_| {});
    refused_by(&wrong_name, "its certificate is for store.example, 10.0.0.7, not for localhost");
    let expired = authority.issue(&["localhost"], |it| it.not_after = date_time_ymd(2020, 2, 3));
    refused_by(&expired, "expired on 2020-02-03");
    let early = authority.issue(&["localhost"], |it| it.not_before = date_time_ymd(4000, 2, 3));
    refused_by(&early, "valid from 4000-02-03 on");
    let own = Issued { certificate: authority.certificate.clone(), key: authority.key.clone() };
    refused_by(&own, "basicConstraints=CA:FALSE");

    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", plain.local_addr().unwrap().port());
    thread::spawn(move || {
        for mut it in plain.incoming().flatten() {
            // What is left unread would reset the connection.
            let _ = it.read(&mut [0; 4096]);
            let _ = it.write_all(answer("400 Bad Request", "").as_bytes());
        }
    });
    refused(&issuers, &url, "it answers without TLS");
}

#[test]
fn a_receiver_gets_figures_over_tls() {
    let (home, folder, authority) = (Home::new(), Folder::new(), Authority::new("the issuer"));
    let issuers = folder.certificate("issuers", &authority.certificate);
    let (url, requests) = receiver(&authority.local());
    let server = Server::of(gpuwatch(&home, &issuers, &["serve", "--no-nvml", "--otlp", &url]));
    assert_eq!(server.address, format!("{url}/v1/metrics"));
    let (head, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].is_array(), "{body}");
    server.end();

    let others = folder.certificate("others", &Authority::new("another").certificate);
    let url = format!("https://localhost:{}", store(&authority.local()).0.port());
    let mut server = Server::of(gpuwatch(&home, &others, &["serve", "--no-nvml", "--otlp", &url]));
    let line = server.line();
    assert!(line.contains("takes no figures: its certificate is signed by no issuer"), "{line}");
    server.end();
}

#[test]
fn issuers_that_appear_later_are_trusted_from_then_on() {
    let (home, folder, authority) = (Home::new(), Folder::new(), Authority::new("the issuer"));
    let (url, requests) = receiver(&authority.local());
    let later = folder.path("issuers");
    let arguments = ["serve", "--no-nvml", "--every", "1s", "--otlp", &url];
    let mut server = Server::of(gpuwatch(&home, later.to_str().unwrap(), &arguments));
    let line = server.line();
    assert!(line.contains("takes no figures: there are no certificates of issuers to trust"), "{line}");
    folder.certificate("issuers", &authority.certificate);
    requests.recv_timeout(PATIENCE).unwrap();
    let line = server.line();
    assert!(line.contains("takes figures again"), "{line}");
    server.end();
}

#[test]
fn a_server_that_wants_a_certificate_of_its_client_is_not_tried_again() {
    const WORDS: &str = "it wants a certificate of its client, which gpuwatch does not have";
    let (home, folder, authority) = (Home::new(), Folder::new(), Authority::new("the issuer"));
    let issuers = folder.certificate("issuers", &authority.certificate);
    let (url, refusals) = demanding(&authority);
    let output = gpuwatch(&home, &issuers, &["once", "--prometheus", &url]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains(&format!("cannot reach {url}: {WORDS}")), "{errors}");
    assert!(refusals.recv_timeout(PATIENCE).unwrap().contains("no certificates"));

    let (url, refusals) = demanding(&authority);
    let arguments = ["serve", "--no-nvml", "--every", "1h", "--otlp", &url];
    let mut server = Server::of(gpuwatch(&home, &issuers, &arguments));
    let line = server.line();
    assert!(line.ends_with(&format!("takes no figures: {WORDS}")), "{line}");
    assert!(refusals.recv_timeout(PATIENCE).unwrap().contains("no certificates"));
    assert!(refusals.try_recv().is_err());
    server.end();
}

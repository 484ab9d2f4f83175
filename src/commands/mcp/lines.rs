//! Standard input and output, a message a line. The SDK leaves a line that is no JSON without an answer, and its client
//! waits for ever; here it gets the error that JSON-RPC has for it.

use serde::de::IgnoredAny;
use tokio::{
    io::{
        AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, duplex, stdin,
        stdout,
    },
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinHandle,
};

/// The most bytes of a message.
const LONGEST: u64 = 16 << 20;

/// Bytes and refusals that wait between two ends.
const WAITING: usize = 64 << 10;
const REFUSED: usize = 16;

/// JSON-RPC's answer to what cannot be parsed, whose sender is unknown.
const NO_JSON: &[u8] =
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: a message is one line of JSON"}}
"#;

/// Returns what the server reads from and writes to, and what ends when all is written.
pub(super) fn ends() -> ((impl AsyncRead, impl AsyncWrite), JoinHandle<()>) {
    let (to_server, input) = duplex(WAITING);
    let (output, from_server) = duplex(WAITING);
    let (refuse, refused) = channel(REFUSED);
    let reading = tokio::spawn(read(BufReader::new(stdin()), to_server, refuse));
    let written = tokio::spawn(async move {
        write(BufReader::new(from_server), stdout(), refused).await;
        // Nobody reads: the session is over.
        reading.abort();
    });
    ((input, output), written)
}

/// Passes on the lines that are JSON.
async fn read(mut from: impl AsyncBufReadExt + Unpin, mut to: DuplexStream, refuse: Sender<()>) {
    let (mut line, mut is_rest) = (Vec::new(), false);
    loop {
        line.clear();
        if !(&mut from).take(LONGEST).read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
            return;
        }
        let is_end = line.ends_with(b"\n");
        let is_message = is_end && !is_rest;
        let is_json = is_message && serde_json::from_slice::<IgnoredAny>(&line).is_ok();
        let is_blank = is_message && line.trim_ascii().is_empty();
        let is_over = if is_json {
            to.write_all(&line).await.is_err()
        } else {
            // Of a message that is too long, once.
            !is_blank && !is_rest && refuse.send(()).await.is_err()
        };
        is_rest = !is_end;
        if is_over {
            return;
        }
    }
}

/// Writes the server's lines, and between them refusals, until the server is done or nobody reads.
async fn write(
    mut from: impl AsyncBufReadExt + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut refused: Receiver<()>,
) -> Option<()> {
    let mut line = Vec::new();
    loop {
        tokio::select! {
            // What was read of a line stays in it.
            read = from.read_until(b'\n', &mut line) => {
                if read.ok()? == 0 {
                    return Some(());
                }
            }
            Some(()) = refused.recv() => {
                // A line has begun: the refusal follows it.
                if !line.is_empty() {
                    from.read_until(b'\n', &mut line).await.ok()?;
                }
                line.extend_from_slice(NO_JSON);
            }
        }
        to.write_all(&line).await.ok()?;
        to.flush().await.ok()?;
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passed(text: &[u8]) -> (String, usize) {
        let (to, mut passed) = duplex(1 << 10);
        let (refuse, mut refused) = channel(REFUSED);
        read(text, to, refuse).await;
        let mut all = String::new();
        passed.read_to_string(&mut all).await.unwrap();
        let mut count = 0;
        while refused.recv().await.is_some() {
            count += 1;
        }
        (all, count)
    }

    #[tokio::test]
    async fn what_is_no_json_is_refused_and_the_rest_goes_on() {
        assert_eq!(passed(b"{\"a\":1}\n\n  \r\n{bad\n[1,\n\xff\n7\r\n").await, ("{\"a\":1}\n7\r\n".to_owned(), 3));
        assert_eq!(passed(b"{\"a\":").await, (String::new(), 1));
    }
}

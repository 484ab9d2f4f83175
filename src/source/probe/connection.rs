//! One probe's connection: who is at the other end, its lines, and in words why it ended.

use super::{Identity, Known, directory::Socket};
use crate::{
    event::{Ask, Fact, Line, ProbeId},
    recording::stamp_of,
    source::{Teller, now, system},
    text::Foreign,
};
use gpuwatch_probe::{
    socket::with_address,
    wire::{LINE_MAX, PROTOCOL},
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with};
use std::{io, os::unix::net, path::Path, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinHandle,
    time::sleep,
};

/// The kernel's stand-in for users that this namespace does not know: nobody in particular.
const OVERFLOW_UID: u32 = 65534;

/// Between two looks whether a process still runs.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A connected socket and who is at its other end.
pub(super) struct Stream {
    socket: UnixStream,
    uid: u32,
    /// `None` when it lives in a pid namespace that we cannot see into.
    pub(super) pid: Option<u32>,
}

/// Connects without waiting; `None` when nobody listens there, or the backlog is full.
pub(super) fn connect(path: &Path) -> Option<Stream> {
    let connected = with_address(path, |address| {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        connect_to(&socket, &SocketAddrUnix::new(address)?)?;
        Ok(net::UnixStream::from(socket))
    });
    let stream = UnixStream::from_std(connected.ok()?).ok()?;
    let peer = stream.peer_cred().ok()?;
    let pid = peer.pid().and_then(|it| u32::try_from(it).ok()).filter(|it| *it != 0);
    Some(Stream { socket: stream, uid: peer.uid(), pid })
}

/// How a connection ended.
pub(super) struct Ended {
    pub(super) inode: (u64, u64),
    pub(super) identity: Identity,
    /// The last line that was read.
    pub(super) seq: u64,
    /// Whether asking again soon makes no sense.
    pub(super) leave_alone: bool,
}

/// Why a connection ended.
enum End {
    /// It said so, or it is none of ours: nothing to add.
    Quiet { leave_alone: bool },
    /// In words for the user.
    Fault { why: String, leave_alone: bool },
    /// Nobody listens to us any more.
    Unheard,
}

/// A connection to be read.
pub(super) struct Job {
    pub(super) socket: Socket,
    pub(super) stream: Stream,
    pub(super) identity: Identity,
    pub(super) known: Known,
    /// Only if the probe is of this run.
    pub(super) run: Option<String>,
    /// What it is to be asked.
    pub(super) asks: mpsc::Receiver<Ask>,
}

impl Job {
    /// Reads to the end and says how it ended.
    pub(super) async fn read(self, teller: Teller, done: mpsc::Sender<Ended>) {
        let Self { socket, stream, identity, known, run, asks } = self;
        let probe = known.probe;
        let mut lines = Lines { probe, seq: known.seq, greeted: false, said_bye: false, teller: &teller };
        let end = lines.follow(stream, &socket, run.as_deref(), asks).await;
        let leave_alone = match end {
            End::Quiet { leave_alone } => leave_alone,
            End::Fault { why, leave_alone } => {
                let why = Foreign::new(why);
                // What never greeted is nobody yet: there is no probe to say it of.
                let fact = if lines.greeted { Fact::ProbeGone { probe, why } } else { Fact::Notice(why) };
                teller.tell(fact).await;
                leave_alone
            }
            End::Unheard => false,
        };
        // The scanner is gone only when everything ends.
        let _ = done.send(Ended { inode: socket.inode, identity, seq: lines.seq, leave_alone }).await;
    }
}

struct Lines<'a> {
    probe: ProbeId,
    seq: u64,
    greeted: bool,
    said_bye: bool,
    teller: &'a Teller,
}

impl Lines<'_> {
    async fn follow(&mut self, stream: Stream, socket: &Socket, run: Option<&str>, asks: mpsc::Receiver<Ask>) -> End {
        let Stream { socket: stream, uid, pid } = stream;
        let path = Foreign::new(socket.path.to_string_lossy());
        if !may_talk(rustix::process::geteuid().as_raw(), uid) {
            return fault(format!("{path} is answered by user {uid}, not by you: refused"), true);
        }
        let (stream, mut out) = stream.into_split();
        if self.seq > 0 && out.write_all(format!("since seq={}\n", self.seq).as_bytes()).await.is_err() {
            return End::Quiet { leave_alone: false };
        }
        let _asking = AbortOnDrop(tokio::spawn(ask(out, asks)));
        let mut input = BufReader::with_capacity(16 << 10, stream);
        let mut buffer = Vec::new();
        loop {
            let line = match line(&mut input, &mut buffer).await {
                Ok(Some(line)) => line,
                Ok(None) if self.said_bye => return End::Quiet { leave_alone: false },
                Ok(None) if !self.greeted => return End::Quiet { leave_alone: false },
                Ok(None) => return fault("the connection ended without a bye: was the process killed?".into(), false),
                Err(why) => return fault(format!("{path} {why}: the connection was closed"), !self.greeted),
            };
            if !self.greeted {
                if let Line::Refused(refused) = &line {
                    let reason = Foreign::new(&*refused.reason);
                    return fault(format!("{path} refused this viewer: {reason}"), true);
                }
                let Line::Hello(hello) = &line else {
                    return fault(format!("{path} did not begin with a hello: the connection was closed"), true);
                };
                let theirs = hello.protocol;
                if run.is_some_and(|it| hello.run.as_deref() != Some(it)) {
                    return End::Quiet { leave_alone: true };
                }
                // Counting from the start again: another life of the probe in the same process.
                if hello.seq < self.seq {
                    self.seq = 0;
                }
                self.greeted = true;
                let found = Fact::ProbeFound { probe: self.probe, pid, socket: path.clone() };
                if !self.teller.tell(found).await || !self.pass_on(line).await {
                    return End::Unheard;
                }
                if theirs != PROTOCOL {
                    last_as_long(input, pid).await;
                    let why = format!(
                        "it has ended; it spoke protocol {theirs}, this gpuwatch speaks {PROTOCOL}: update the older one"
                    );
                    return fault(why, pid.is_none());
                }
                continue;
            }
            if !self.pass_on(line).await {
                return End::Unheard;
            }
        }
    }

    /// Hands a line over, unless it came before; false when nobody listens.
    async fn pass_on(&mut self, line: Line) -> bool {
        if let Some(seq) = seq_of(&line) {
            if seq <= self.seq {
                return true;
            }
            self.seq = seq;
        }
        self.said_bye |= matches!(line, Line::Bye(_));
        // A clock that runs ahead of ours (a time namespace) must not carry the session into the future.
        let now = now();
        let at = stamp_of(&line).map_or(now, |it| it.min(now));
        self.teller.tell_at(at, Fact::Probe { probe: self.probe, line: Box::new(line) }).await
    }
}

/// Asks until nobody asks any more. The way out stays open: its end would be the end of all asking.
async fn ask(mut out: OwnedWriteHalf, mut asks: mpsc::Receiver<Ask>) {
    while let Some(ask) = asks.recv().await {
        if out.write_all(ask.line().as_bytes()).await.is_err() {
            break;
        }
    }
    std::future::pending::<()>().await;
}

/// A task that ends with whoever started it.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for the end of a process whose lines are not understood: it is to be named while it lives, and its probe
/// may close the connection earlier.
async fn last_as_long(mut input: BufReader<OwnedReadHalf>, pid: Option<u32>) {
    let alive = || system::runs_since(pid?);
    let since = alive();
    loop {
        match input.fill_buf().await.map(<[u8]>::len) {
            Ok(0) | Err(_) => break,
            Ok(read) => input.consume(read),
        }
    }
    drop(input);
    while since.is_some() && alive() == since {
        sleep(ASK_EVERY).await;
    }
}

fn fault(why: String, leave_alone: bool) -> End {
    End::Fault { why, leave_alone }
}

/// Ourselves and root; root listens to everybody with a name.
fn may_talk(own: u32, uid: u32) -> bool {
    uid == own || uid == 0 || (own == 0 && uid != OVERFLOW_UID)
}

/// The next line; `None` at the end; in words, what is wrong with it.
async fn line(input: &mut BufReader<OwnedReadHalf>, buffer: &mut Vec<u8>) -> Result<Option<Line>, String> {
    buffer.clear();
    let limit = LINE_MAX as u64;
    match (&mut *input).take(limit).read_until(b'\n', buffer).await {
        Ok(0) => return Ok(None),
        // A process that was killed: the same as an end.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(e) => return Err(format!("cannot be read ({e})")),
        Ok(_) if buffer.last() == Some(&b'\n') => {}
        Ok(read) if read == LINE_MAX => return Err("sent a line longer than 1 MiB".into()),
        Ok(_) => return Err("ended inside a line".into()),
    }
    let text = std::str::from_utf8(buffer).map_err(|e| format!("sent a line that is not UTF-8 ({e})"))?;
    serde_json::from_str(text).map(Some).map_err(|e| format!("sent a line that is not of the wire ({e})"))
}

fn seq_of(line: &Line) -> Option<u64> {
    match line {
        Line::Sample(it) => it.seq,
        Line::Mark(it) => it.seq,
        Line::Oom(it) => it.seq,
        Line::OomMessage(it) => it.seq,
        Line::Sites(it) => it.seq,
        Line::Lost(it) => it.seq,
        Line::Bye(it) => it.seq,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_another_user_are_refused() {
        let cases = [(1000, 1000, true), (1000, 0, true), (1000, 1001, false), (1000, OVERFLOW_UID, false)];
        for (own, uid, may) in cases.into_iter().chain([(0, 1000, true), (0, OVERFLOW_UID, false)]) {
            assert_eq!(may_talk(own, uid), may, "{own} hears {uid}");
        }
    }
}

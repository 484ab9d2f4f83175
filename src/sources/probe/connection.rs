//! One probe's connection: its peer, its lines, and why it ended.

use super::{
    directory::Socket,
    error_file::Spilled,
    input::{self, Input},
    known::{Introduced, Probes},
    lines::{Lines, Next, Report},
};
use crate::{
    facts::{
        event::{Fact, Line, Request, wire::Hello},
        text::Foreign,
    },
    sources::{EventSender, system},
};
use gpuwatch_probe::{
    socket::with_address,
    wire::{LINE_MAX, PROTOCOL},
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
    sockopt::socket_peercred,
};
use std::{io, os::unix::net::UnixStream, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    sync::mpsc,
    task::{JoinHandle, coop::consume_budget},
    time::{sleep, timeout},
};

/// The kernel shows this uid for users that this namespace does not map.
const OVERFLOW_UID: u32 = 65534;

/// Time between two checks whether a process still runs.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// After a line of more bytes, which is rare, the reader waits before the next one: the view empties its queue at least
/// once a second.
const HEAVY: usize = 32 << 10;
const AFTER_HEAVY: Duration = Duration::from_millis(100);

/// A connected socket and its peer.
pub(super) struct Stream {
    socket: Arc<UnixStream>,
    uid: u32,
    /// `None` in a pid namespace that gpuwatch cannot see.
    pub(super) pid: Option<u32>,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreachable {
    /// Nothing listens there, or its backlog is full.
    Silent,
    /// gpuwatch has reached its limit of open files.
    NoRoom,
}

/// Connects without waiting.
pub(super) fn connect(path: &Path) -> Result<Stream, Unreachable> {
    let connected = with_address(path, |address| {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        connect_to(&socket, &SocketAddrUnix::new(address)?)?;
        Ok(UnixStream::from(socket))
    });
    let stream = connected.map_err(|e| match e.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Unreachable::NoRoom,
        _ => Unreachable::Silent,
    })?;
    let peer = socket_peercred(&stream).map_err(|_unreadable| Unreachable::Silent)?;
    let pid = u32::try_from(peer.pid.as_raw_pid()).ok().filter(|it| *it != 0);
    Ok(Stream { socket: Arc::new(stream), uid: peer.uid.as_raw(), pid })
}

/// Why a connection ended.
enum End {
    /// It ended with a bye, or belongs to another run: nothing to report.
    Quiet(Next),
    /// A fault, described for the user.
    Fault { why: String, next: Next },
    /// Nothing receives the facts any more.
    Unheard,
}

/// A connection to read.
pub(super) struct Job {
    pub(super) socket: Socket,
    pub(super) stream: Stream,
    pub(super) probes: Probes,
    /// Read only a probe of this run.
    pub(super) run: Option<String>,
    /// Read every sample, also of many probes.
    pub(super) whole: bool,
}

impl Job {
    /// Reads to the end and reports how it ended.
    pub(super) async fn read(self, sender: EventSender, reports: mpsc::Sender<Report>) {
        let Self { socket, stream, probes, run, whole } = self;
        let mut reader =
            Reader { socket: &socket, probes: &probes, whole, reports: &reports, lines: None, sender: &sender };
        let end = reader.follow(stream, run.as_deref()).await;
        let next = reader.end(end).await;
        // The scanner ends only when everything does.
        let _ = reports.send(Report::Ended(socket.id, next)).await;
    }
}

/// Returns the hello, which must be the first line.
fn greeting(first: Result<Option<Box<Line>>, String>, path: &Foreign) -> Result<Hello, End> {
    match first.map(|it| it.map(|line| *line)) {
        Ok(Some(Line::Hello(hello))) => Ok(hello),
        Ok(Some(Line::Refused(refused))) => {
            let reason = Foreign::new(&*refused.reason);
            Err(fault(format!("{path} refused this viewer: {reason}"), Next::Later))
        }
        Ok(Some(_)) => Err(fault(format!("{path} did not begin with a hello: the connection was closed"), Next::Later)),
        Ok(None) => Err(End::Quiet(Next::Again)),
        Err(why) => Err(fault(format!("{path} {why}: the connection was closed"), Next::Later)),
    }
}

/// Reads one socket.
struct Reader<'a> {
    socket: &'a Socket,
    probes: &'a Probes,
    whole: bool,
    reports: &'a mpsc::Sender<Report>,
    /// Set once the probe is identified.
    lines: Option<(Box<Hello>, Lines<'a>)>,
    sender: &'a EventSender,
}

impl Reader<'_> {
    async fn follow(&mut self, stream: Stream, run: Option<&str>) -> End {
        let Stream { socket: stream, uid, pid } = stream;
        let path = Foreign::new(self.socket.path.to_string_lossy());
        if !may_talk(rustix::process::geteuid().as_raw(), uid) {
            return fault(format!("{path} is answered by user {uid}, not by you: refused"), Next::Later);
        }
        // A probe without a name waits only briefly for this, perhaps before it sends its hello.
        let early = self.probes.last_at(self.socket).filter(|it| it.seq > 0);
        if let Some(known) = early {
            since(&stream, known).await;
        }
        let mut input = BufReader::new(Input::new(Arc::clone(&stream)));
        let mut buffer = Vec::new();
        let hello = match greeting(line(&mut input, &mut buffer).await, &path) {
            Ok(hello) => hello,
            Err(end) => return end,
        };
        if run.is_some_and(|it| hello.run.as_deref() != Some(it)) {
            return End::Quiet(Next::Never);
        }
        let (ear, asks) = mpsc::channel(4);
        let known = match self.probes.introduce(&hello, self.socket, pid, ear) {
            Ok(known) => known,
            Err(probe) => return End::Quiet(Next::After(probe)),
        };
        let lines = Lines::after(known.seq, known.probe, self.sender);
        let (_, lines) = self.lines.insert((Box::new(hello.clone()), lines));
        if early.is_none() && hello.instance.is_some() {
            since(&stream, known).await;
        }
        let _asking = AbortOnDrop(tokio::spawn(ask(stream, asks)));
        // A lower sequence number: another life of the probe in the same process.
        if hello.seq < lines.seq {
            lines.seq = 0;
        }
        if !lines.find(pid, path.clone(), &hello).await {
            return End::Unheard;
        }
        let _ = self.reports.send(Report::Greeted(self.socket.id)).await;
        if hello.protocol != PROTOCOL {
            last_as_long(input, pid).await;
            let theirs = hello.protocol;
            let why = format!(
                "it has ended; it spoke protocol {theirs}, this gpuwatch speaks {PROTOCOL}: update the older one"
            );
            return fault(why, if pid.is_none() { Next::Later } else { Next::Again });
        }
        // A recording is read whole, however many probes there are.
        let beside = || if self.whole { 0 } else { self.probes.count() };
        receive(lines, beside, &mut input, &path, || spilled(&hello, self.socket)).await
    }

    /// Reports how it ended. If the probe went without a bye, reads its spill first.
    async fn end(&mut self, end: End) -> Next {
        let Some((hello, lines)) = &mut self.lines else {
            // A connection without a hello has no probe to report.
            return match end {
                End::Quiet(next) => next,
                End::Fault { why, next } => {
                    self.sender.send(Fact::Notice(Foreign::new(why))).await;
                    next
                }
                End::Unheard => Next::Again,
            };
        };
        let next = match end {
            End::Quiet(next) => next,
            End::Fault { why, next } => {
                for line in spilled(hello, self.socket) {
                    lines.pass_on_news(Box::new(line)).await;
                }
                lines.finish().await;
                if !lines.has_bye {
                    self.sender.send(Fact::ProbeGone { probe: lines.probe, why: Foreign::new(why) }).await;
                }
                next
            }
            End::Unheard => Next::Again,
        };
        self.probes.part(lines.probe, lines.seq);
        next
    }
}

/// Reads the lines of a probe's spill.
fn spilled(hello: &Hello, socket: &Socket) -> Vec<Line> {
    Spilled::of(hello, &socket.path).map(|it| it.lines).unwrap_or_default()
}

/// Passes on a probe's lines until it ends; `beside` counts the probes that are read, and `look` reads its spill.
async fn receive(
    lines: &mut Lines<'_>,
    beside: impl Fn() -> usize,
    input: &mut BufReader<Input>,
    path: &Foreign,
    look: impl Fn() -> Vec<Line>,
) -> End {
    let mut buffer = Vec::new();
    loop {
        if buffer.len() > HEAVY {
            // Long lines must not pile up in the queue, whatever a probe sends.
            sleep(AFTER_HEAVY).await;
            buffer = Vec::new();
        }
        if input.buffer().is_empty() {
            lines.beside(beside());
            input.get_mut().rarely(lines.may_wait());
            if !lines.flush().await {
                return End::Unheard;
            }
            // A held sample is sent, also if nothing follows.
            if let Some(stretch) = lines.holds_for()
                && timeout(stretch, input.fill_buf()).await.is_err()
            {
                continue;
            }
        }
        // A probe that always has another line must not keep the others and the screen waiting.
        consume_budget().await;
        match line(input, &mut buffer).await {
            Ok(Some(line)) => {
                let has_receiver = match &*line {
                    Line::Lost(lost) if lost.failures.is_some() => lines.recover(lost.clone(), &look).await,
                    _ => lines.pass_on(line).await,
                };
                if !has_receiver {
                    return End::Unheard;
                }
            }
            Ok(None) if lines.has_bye => return End::Quiet(Next::Again),
            Ok(None) => {
                return fault("the process ended without a word: was it killed?".into(), Next::Again);
            }
            Err(why) => return fault(format!("{path} {why}: the connection was closed"), Next::Again),
        }
    }
}

/// Requests the lines after the last one received.
async fn since(socket: &UnixStream, known: Introduced) {
    // A probe that has ended takes no request any more, but its lines are still to be read.
    let _ = input::send(socket, &format!("since seq={}\n", known.seq)).await;
}

/// Sends requests until the sender is gone.
async fn ask(socket: Arc<UnixStream>, mut asks: mpsc::Receiver<Request>) {
    while let Some(request) = asks.recv().await {
        if input::send(&socket, &request.line).await.is_err() {
            break;
        }
    }
}

/// A task that ends with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for the end of a process whose wire is unknown. Its probe may close the connection earlier, and the process
/// should be listed while it runs.
async fn last_as_long(mut input: BufReader<Input>, pid: Option<u32>) {
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

fn fault(why: String, next: Next) -> End {
    End::Fault { why, next }
}

/// Whether a peer is the same user or root; root accepts every named user.
fn may_talk(own: u32, uid: u32) -> bool {
    uid == own || uid == 0 || (own == 0 && uid != OVERFLOW_UID)
}

/// Reads the next line: `None` at the end, or a description of the error.
async fn line(input: &mut BufReader<Input>, buffer: &mut Vec<u8>) -> Result<Option<Box<Line>>, String> {
    buffer.clear();
    let limit = LINE_MAX as u64;
    match (&mut *input).take(limit).read_until(b'\n', buffer).await {
        Ok(0) => return Ok(None),
        // The process was killed, which is the same as an end.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(e) => return Err(format!("cannot be read ({e})")),
        Ok(_) if buffer.last() == Some(&b'\n') => {}
        Ok(read) if read == LINE_MAX => return Err("sent a line longer than 1 MiB".into()),
        Ok(_) => return Err("ended inside a line".into()),
    }
    let text = std::str::from_utf8(buffer).map_err(|e| format!("sent a line that is not UTF-8 ({e})"))?;
    super::lines::parse(text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::ProbeId;
    use std::{future::poll_fn, io::Write, pin::pin, task::Poll};
    use tokio::runtime;

    /// All is there before the first look, so that only the reader itself can end its turn.
    #[test]
    fn a_probe_that_never_pauses_keeps_no_other_waiting() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let sample = |seq| format!("{{\"type\":\"sample\",\"seq\":{seq},\"at_us\":{seq},\"device\":0}}\n");
        let text: String = (1..=1000).map(sample).collect();
        theirs.write_all(text.as_bytes()).unwrap();
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (queue, _events) = mpsc::channel(16);
            let sender = EventSender { queue, no_arguments: false };
            let mut lines = Lines::after(0, ProbeId(1), &sender);
            let mut input = BufReader::new(Input::new(Arc::new(ours)));
            let path = Foreign::new("probe");
            lines.pass_on(super::super::lines::parse(r#"{"type":"live","seq":0}"#).unwrap()).await;
            {
                let mut turn = pin!(receive(&mut lines, || 256, &mut input, &path, Vec::new));
                poll_fn(|context| {
                    assert!(turn.as_mut().poll(context).is_pending(), "the probe has not ended");
                    Poll::Ready(())
                })
                .await;
            }
            assert!((1..500).contains(&lines.seq), "{} lines in one turn", lines.seq);
        });
    }

    #[test]
    fn lines_of_a_probe_that_ended_before_it_was_read_are_passed_on() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("7.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let lines = [
            r#"{"type":"hello","protocol":1,"pid":7,"instance":"0123456789abcdef0123456789abcdef","seq":2}"#,
            r#"{"type":"sample","seq":1,"at_us":1,"device":0}"#,
            r#"{"type":"bye","seq":2,"at_us":2,"reason":"exit"}"#,
        ];
        theirs.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        drop(theirs);
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (queue, mut events) = mpsc::channel(16);
            let (reports, _reported) = mpsc::channel(16);
            let stream = Stream { socket: Arc::new(ours), uid: rustix::process::geteuid().as_raw(), pid: None };
            let socket = Socket::at(path).unwrap();
            let job = Job { socket, stream, probes: Probes::default(), run: None, whole: true };
            job.read(EventSender { queue, no_arguments: false }, reports).await;
            let mut came = Vec::new();
            while let Some(event) = events.recv().await {
                came.push(event.fact);
            }
            let is_bye = |it: &Fact| matches!(it, Fact::Probe { line, .. } if matches!(**line, Line::Bye(_)));
            assert!(came.len() == 4 && is_bye(&came[3]), "{came:?}");
        });
    }

    #[test]
    fn peers_of_another_user_are_refused() {
        let cases = [(1000, 1000, true), (1000, 0, true), (1000, 1001, false), (1000, OVERFLOW_UID, false)];
        for (own, uid, may) in cases.into_iter().chain([(0, 1000, true), (0, OVERFLOW_UID, false)]) {
            assert_eq!(may_talk(own, uid), may, "{own} reads {uid}");
        }
    }
}

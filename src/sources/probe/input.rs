//! What a probe sends: read whenever something arrives, or rarely, when many probes are read. Being woken costs more
//! than reading, also where no task waits.

use crate::sources::now;
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net,
    time::{Sleep, sleep},
};

/// Time between two readings of a probe where the kernel watches no more sockets.
const UNWATCHED: Duration = Duration::from_millis(100);

/// Time before another attempt to write. Requests are short, and a probe reads them at once.
const AGAIN: Duration = Duration::from_millis(15);

/// The socket of a probe, which does not block.
pub(super) struct Input {
    socket: Arc<UnixStream>,
    way: Way,
}

/// How a reader learns that something has arrived.
enum Way {
    /// The runtime watches another descriptor of the socket, which is closed when the reader rests.
    Woken(net::UnixStream),
    /// Read once in each interval.
    Rarely { interval: Duration, rests: bool, rested: Pin<Box<Sleep>> },
}

impl Input {
    /// Reads whenever something arrives, or rarely if the kernel watches no more sockets.
    pub(super) fn new(socket: Arc<UnixStream>) -> Self {
        let way = Way::woken(&socket).unwrap_or_else(|_full| Way::rarely(UNWATCHED));
        Self { socket, way }
    }

    /// Reads once in an interval from now on; `None` reads whenever something arrives.
    pub(super) fn rarely(&mut self, interval: Option<Duration>) {
        match (&self.way, interval) {
            (Way::Rarely { interval: now, .. }, Some(interval)) if *now == interval => {}
            (_, Some(interval)) => self.way = Way::rarely(interval),
            (Way::Rarely { .. }, None) => {
                // If the kernel watches no more sockets, this one is read rarely.
                if let Ok(woken) = Way::woken(&self.socket) {
                    self.way = woken;
                }
            }
            (Way::Woken(_), None) => {}
        }
    }
}

impl Way {
    fn woken(socket: &UnixStream) -> io::Result<Self> {
        net::UnixStream::from_std(socket.try_clone()?).map(Self::Woken)
    }

    fn rarely(interval: Duration) -> Self {
        Self::Rarely { interval, rests: false, rested: Box::pin(rest(interval)) }
    }
}

impl AsyncRead for Input {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { socket, way } = &mut *self;
        let (interval, rests, rested) = match way {
            Way::Woken(watched) => return Pin::new(watched).poll_read(cx, buffer),
            Way::Rarely { interval, rests, rested } => (*interval, rests, rested),
        };
        loop {
            if *rests {
                ready!(rested.as_mut().poll(cx));
                *rests = false;
            }
            let room = buffer.initialize_unfilled();
            let length = match (&**socket).read(room) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
                length => Some(length?),
            };
            // What leaves room was everything.
            if length.is_none_or(|it| it > 0 && it < room.len()) {
                rested.set(rest(interval));
                *rests = true;
            }
            if let Some(length) = length {
                buffer.advance(length);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Completes at the next whole interval of the clock: readers that wake up together cost one wakeup.
fn rest(interval: Duration) -> Sleep {
    let interval = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).max(1);
    sleep(Duration::from_micros(interval - now().0 % interval))
}

/// Sends a request.
///
/// # Errors
/// Fails if the connection has ended.
pub(super) async fn send(mut socket: &UnixStream, request: &str) -> io::Result<()> {
    let mut rest = request.as_bytes();
    while !rest.is_empty() {
        match socket.write(rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(AGAIN).await,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncBufReadExt, AsyncReadExt, BufReader},
        runtime,
    };

    #[test]
    fn both_ways_read_a_socket_up_to_its_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let mut input = BufReader::new(Input::new(Arc::new(ours)));
            let mut line = String::new();
            for interval in [None, Some(100), Some(100), Some(7), None, Some(30)] {
                input.get_mut().rarely(interval.map(Duration::from_millis));
                let mut writer = theirs.try_clone().unwrap();
                let written = tokio::task::spawn_blocking(move || writer.write_all(b"one line\n").unwrap());
                line.clear();
                input.read_line(&mut line).await.unwrap();
                assert_eq!(line, "one line\n");
                written.await.unwrap();
            }
            theirs.write_all(b"the rest").unwrap();
            drop(theirs);
            line.clear();
            input.read_to_string(&mut line).await.unwrap();
            assert_eq!(line, "the rest");
        });
    }
}

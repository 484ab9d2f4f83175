//! The loop that every screen runs in: input, signals, what a view waits for, and a picture when it is due.

use super::{
    effects::Effects,
    term::{self, Inputs, Screen},
    ui::Ui,
};
use crossterm::event::Event as Input;
use libc::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGRTMAX, SIGRTMIN, SIGSTKFLT, SIGSYS, SIGTERM,
    SIGTRAP, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, c_int,
};
use signal_hook::iterator::Signals;
use std::{future::pending, io, process, thread, time::Duration};
use tokio::{
    select,
    sync::{
        mpsc::{self, channel},
        watch,
    },
    task::yield_now,
    time::{Instant, sleep_until, timeout},
};

/// The shortest time between two frames: users cannot read faster.
pub const FASTEST: Duration = Duration::from_millis(100);

/// The longest time between two pictures, so that the loop notices a terminal that is gone.
pub const FRAME_AT_LEAST: Duration = Duration::from_secs(1);

/// How long another machine may take for its last answer after the user has quit.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// How long the terminal may take for its first reply after the user has quit.
const LAST_REPLY: Duration = Duration::from_millis(100);

/// Keys that wait for the loop; more wait in the terminal.
const KEYS: usize = 64;

/// A terminal that is stuck in a write must not keep the program alive after a signal.
const GRACE: Duration = Duration::from_millis(700);
const LAST_GRACE: Duration = Duration::from_millis(150);

/// How a screen ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The user asked, or the terminal is gone.
    Quit,
    /// By this signal.
    Signal(i32),
}

/// A view that the loop shows and feeds.
pub trait View {
    /// Input from outside: events, a loaded recording.
    type Update;

    /// Returns the state of the user interface.
    fn ui(&mut self) -> &mut Ui;

    /// Takes a key or a move of the mouse; the next picture shows its effect.
    fn input(&mut self, input: &Input, effects: &mut Effects);

    /// Returns when the next picture is due.
    fn due(&self) -> Instant;

    /// Waits for an update; the loop may drop the future at any time and call again. Never returns when there
    /// are no more updates.
    fn wait(&mut self) -> impl Future<Output = Self::Update>;

    /// Folds an update.
    ///
    /// # Errors
    /// When the terminal is gone.
    fn fold(&mut self, update: Self::Update, screen: &mut Screen) -> io::Result<()>;

    /// Draws a picture.
    ///
    /// # Errors
    /// When the terminal is gone.
    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()>;
}

/// Takes the terminal and shows a view until the user, a signal or the terminal ends it. Needs a tokio runtime around
/// it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn run(view: &mut impl View, mut effects: Effects, mouse: bool) -> io::Result<End> {
    let mut signals = signals()?;
    let mut screen = Screen::take(mouse)?;
    let mut typed = Inputs::default();
    if effects.needs_background() {
        effects.set_background(screen.background(&mut typed));
    }
    let mut unanswered = typed.unanswered();
    let mut inputs = inputs(typed)?;
    let end = shown(view, &mut effects, &mut screen, (&mut signals, &mut inputs)).await;
    if last_reply(&mut unanswered, LAST_REPLY).await {
        screen.discard_input();
    }
    Ok(end)
}

/// Shows a view until the user, a signal or the terminal ends it.
async fn shown(
    view: &mut impl View,
    effects: &mut Effects,
    screen: &mut Screen,
    (signals, inputs): (&mut mpsc::Receiver<i32>, &mut mpsc::Receiver<io::Result<Input>>),
) -> End {
    while !view.ui().quit {
        let due = view.due();
        let served = select! {
            biased;
            Some(signal) = signals.recv() => return End::Signal(signal),
            input = inputs.recv() => match input {
                Some(Ok(input)) => {
                    view.input(&input, effects);
                    effects.serve(view.ui(), screen)
                }
                // No more input: the terminal is gone.
                Some(Err(_)) | None => return End::Quit,
            },
            () = sleep_until(due) => {
                // Sources that recur at the same moment send first.
                yield_now().await;
                view.draw(screen, effects)
            }
            reply = effects.reply() => {
                effects.show(reply, view.ui());
                view.draw(screen, effects)
            }
            update = view.wait() => view.fold(update, screen),
        };
        if served.is_err() {
            break;
        }
    }
    // Ending the links now could lose a signal that the user has confirmed.
    let _ = timeout(LAST_ANSWERS, effects.wait_for_answers()).await;
    End::Quit
}

/// Waits briefly for the first reply of a terminal that has not replied yet: after gpuwatch has ended, the shell would
/// take it for typed. Returns whether one was missing.
async fn last_reply(unanswered: &mut watch::Receiver<bool>, wait: Duration) -> bool {
    let is_missing = *unanswered.borrow();
    if is_missing {
        // Fails once the reader of input has ended.
        let _ = timeout(wait, unanswered.wait_for(|it| !*it)).await;
    }
    is_missing
}

/// Waits for what a thread sends, until it is done; then never returns, as [`View::wait`] does.
pub async fn sent<T>(from: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match from {
        Some(from) => from.recv().await,
        None => pending().await,
    }
}

/// Receives input, from a thread that waits for it. crossterm's own stream takes a lock that such a thread holds, each
/// time that the loop looks, and so spins before each event of any kind.
fn inputs(mut typed: Inputs) -> io::Result<mpsc::Receiver<io::Result<Input>>> {
    let (sender, receiver) = channel(KEYS);
    thread::Builder::new().name("input".into()).spawn(move || {
        loop {
            let input = typed.read();
            let is_last = input.is_err();
            if sender.blocking_send(input).is_err() || is_last {
                break;
            }
        }
    })?;
    Ok(receiver)
}

/// Returns the signals that would end gpuwatch while it has the terminal or an open recording: all whose default action
/// is to end it, except SIGKILL and those for faults of the program itself.
pub fn ending_signals() -> impl Iterator<Item = c_int> {
    let named = [
        SIGHUP, SIGINT, SIGQUIT, SIGTRAP, SIGABRT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGSTKFLT, SIGXCPU, SIGVTALRM,
        SIGPROF, SIGIO, SIGPWR, SIGSYS,
    ];
    named.into_iter().chain(SIGRTMIN()..=SIGRTMAX())
}

/// Receives the signals that end a screen, from a thread of their own. Under nohup, SIGHUP is ignored, and still the
/// screen ends when its terminal is gone.
fn signals() -> io::Result<mpsc::Receiver<i32>> {
    let (sender, receiver) = channel(4);
    let mut signals = Signals::new(ending_signals())?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        if sender.try_send(signal).is_ok() {
            thread::sleep(GRACE);
            // The program is still here, so the loop is stuck, most likely in a write to the terminal. Giving the
            // terminal back may get stuck as well.
            thread::spawn(term::leave);
            thread::sleep(LAST_GRACE);
            process::exit(128 + signal);
        }
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn the_end_waits_briefly_for_the_first_reply_of_the_terminal() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (sender, mut unanswered) = watch::channel(true);
            assert!(last_reply(&mut unanswered, Duration::ZERO).await, "the terminal never replies");
            let late = async {
                yield_now().await;
                sender.send_replace(false)
            };
            // With an endless wait, the reply ends it.
            assert_eq!(tokio::join!(last_reply(&mut unanswered, Duration::MAX), late), (true, true));
            assert!(!last_reply(&mut unanswered, Duration::MAX).await, "it has replied");
            sender.send_replace(true);
            drop(sender);
            assert!(last_reply(&mut unanswered, Duration::MAX).await, "nothing reads input any more");
        });
    }
}

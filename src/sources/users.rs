//! Names of users, as the system knows them (`getpwuid_r`): also those of LDAP, SSSD or other services.
//!
//! Such a service may take seconds to answer, or never do so. Each user is therefore looked up on a thread of its own,
//! once, and what waits for the name decides how long.

use crate::facts::text::Foreign;
use nix::unistd::{Uid, User};
use std::{
    collections::BTreeMap,
    sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long a name is worth waiting for: files answer within it, and a service that works usually does.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// After this time, a user without a name is looked up again: the service may have been away.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Most lookups at a time.
const RUNNING_MAX: usize = 16;

/// The users of this system.
static HERE: LazyLock<Users> = LazyLock::new(|| Users::new(by_system));

type Find = fn(u32) -> Option<String>;

/// What is known of a user.
enum Lookup {
    Running,
    Named(Foreign),
    Nameless(Instant),
}

/// Names by number.
struct Users {
    find: Find,
    lookups: Mutex<BTreeMap<u32, Lookup>>,
    ended: Condvar,
    /// Counts the lookups that have ended, for tasks that wait.
    count: watch::Sender<u64>,
}

/// Returns a user's name if it is known already. Otherwise starts to look it up.
pub fn name(uid: u32) -> Option<Foreign> {
    HERE.name(uid)
}

/// Returns a user's name if it comes within [`PATIENCE`]. Blocks that long.
pub fn within_patience(uid: u32) -> Option<Foreign> {
    HERE.within(uid, PATIENCE)
}

/// Waits until a user has been looked up.
pub(super) async fn end_of_lookup(uid: u32) {
    HERE.end_of_lookup(uid).await;
}

/// Changes whenever a lookup ends.
pub(super) fn changes() -> watch::Receiver<u64> {
    HERE.count.subscribe()
}

fn by_system(uid: u32) -> Option<String> {
    Some(User::from_uid(Uid::from_raw(uid)).ok()??.name)
}

impl Users {
    fn new(find: Find) -> Self {
        Self { find, lookups: Mutex::default(), ended: Condvar::new(), count: watch::Sender::new(0) }
    }

    fn lookups(&self) -> MutexGuard<'_, BTreeMap<u32, Lookup>> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&'static self, uid: u32) -> Option<Foreign> {
        let mut lookups = self.lookups();
        let is_due = match lookups.get(&uid) {
            Some(Lookup::Named(name)) => return Some(name.clone()),
            Some(Lookup::Running) => false,
            Some(Lookup::Nameless(since)) => since.elapsed() >= RETRY_AFTER,
            None => true,
        };
        let running = lookups.values().filter(|it| matches!(it, Lookup::Running)).count();
        if is_due && running < RUNNING_MAX {
            lookups.insert(uid, Lookup::Running);
            drop(lookups);
            let thread = thread::Builder::new().name("user".into()).spawn(move || self.end(uid, (self.find)(uid)));
            if thread.is_err() {
                self.end(uid, None);
            }
        }
        None
    }

    fn end(&self, uid: u32, found: Option<String>) {
        let lookup = found.map_or_else(|| Lookup::Nameless(Instant::now()), |it| Lookup::Named(Foreign::new(it)));
        self.lookups().insert(uid, lookup);
        self.ended.notify_all();
        self.count.send_modify(|it| *it += 1);
    }

    fn is_running(&self, uid: u32) -> bool {
        matches!(self.lookups().get(&uid), Some(Lookup::Running))
    }

    fn within(&'static self, uid: u32, patience: Duration) -> Option<Foreign> {
        self.name(uid).or_else(|| {
            let is_running = |it: &mut BTreeMap<u32, Lookup>| matches!(it.get(&uid), Some(Lookup::Running));
            let waited = self.ended.wait_timeout_while(self.lookups(), patience, is_running);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.name(uid)
        })
    }

    async fn end_of_lookup(&self, uid: u32) {
        let mut count = self.count.subscribe();
        while self.is_running(uid) && count.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// What opens the gate when it is dropped, and what waits for that.
    type Gate = (Mutex<Option<Sender<()>>>, Mutex<Receiver<()>>);

    /// Opens when a directory may answer.
    static GATE: LazyLock<Gate> = LazyLock::new(|| {
        let (open, gate) = channel();
        (Mutex::new(Some(open)), Mutex::new(gate))
    });

    /// A system whose user 7 is in a directory that answers late, and whose user 8 has no name.
    fn late(uid: u32) -> Option<String> {
        if uid == 7 {
            let _ = GATE.1.lock().unwrap().recv();
        }
        (uid != 8).then(|| format!("user-{uid}"))
    }

    #[test]
    fn a_directory_that_answers_late_delays_nobody_and_no_other_name() {
        static LATE: LazyLock<Users> = LazyLock::new(|| Users::new(late));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let named = |uid| {
            let known = LATE.name(uid);
            runtime.block_on(LATE.end_of_lookup(uid));
            known.or_else(|| LATE.name(uid)).map(|it| it.to_string())
        };
        assert_eq!(LATE.name(7), None, "it is looked up now");
        assert_eq!(LATE.within(7, Duration::ZERO), None, "nobody waits longer than wanted");
        assert_eq!((named(6).as_deref(), named(8)), (Some("user-6"), None));
        GATE.0.lock().unwrap().take();
        assert_eq!(named(7).as_deref(), Some("user-7"));
        assert_eq!(LATE.within(9, Duration::MAX).map(|it| it.to_string()).as_deref(), Some("user-9"));
    }

    #[test]
    fn the_system_names_its_users() {
        assert_eq!(HERE.within(0, Duration::MAX).map(|it| it.to_string()).as_deref(), Some("root"));
    }
}

//! `gpuwatch once --by user`: what each user's processes hold.

use crate::{
    facts::{text::Foreign, units::Bytes},
    model::session::Session,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

const UNKNOWN: &str = "–";

/// What the processes of one user hold, as the driver lists them.
#[derive(Debug, Default)]
struct Held {
    pids: BTreeSet<u32>,
    devices: BTreeSet<u32>,
    /// `None` if the driver does not report one of them.
    used: Option<Bytes>,
}

/// Returns a line for each user, the one who holds most first.
pub(super) fn report(session: &Session) -> String {
    let mut users: BTreeMap<Option<&Foreign>, Held> = BTreeMap::new();
    let listed =
        session.devices.iter().flat_map(|it| it.process_list().unwrap_or_default().iter().map(move |used| (it, used)));
    for (device, it) in listed {
        let user = session.process_info.get(&it.pid).map(|it| &it.user);
        let held = users.entry(user).or_insert_with(|| Held { used: Some(Bytes(0)), ..Held::default() });
        held.pids.insert(it.pid);
        held.devices.extend(device.index);
        held.used = held.used.zip(it.used).map(|(sum, used)| sum.plus(used));
    }
    if users.is_empty() {
        return "no process that holds device memory is known\n".to_owned();
    }
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by_key(|(user, held)| (Reverse(held.used), *user));
    let mut out = format!("{:<16} {:>9}  {:>10}  devices\n", "user", "processes", "used");
    for (user, held) in &users {
        let name = user.map_or_else(|| UNKNOWN.to_owned(), ToString::to_string);
        let used = held.used.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string());
        let devices: Vec<String> = held.devices.iter().map(u32::to_string).collect();
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{name:<16} {:>9}  {used:>10}  {}", held.pids.len(), devices.join(", "));
    }
    out
}

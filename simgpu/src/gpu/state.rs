//! The machine's state in a file that every process maps: its devices, and who has how much of each.

use super::sys;
use std::{
    ffi::CStr,
    fs::{self, File, OpenOptions},
    io, mem,
    path::Path,
    ptr::NonNull,
    time::{Duration, Instant},
};

/// How many devices a machine has at most.
pub(crate) const MAX_CARDS: usize = 16;
/// How many processes use a device at most.
pub(crate) const MAX_TENANTS: usize = 64;
/// The default machine.
pub(crate) const DEFAULT_DEVICES: &str = "Simulated GPU:24576MiB";

/// Marks a file of this layout, not of another release's.
const MAGIC: u64 = 0x5550_474d_4953_0000 ^ mem::size_of::<Shared>() as u64;
/// How long a process that only its parent still waits for may be taken for a living one.
const RECHECK: Duration = Duration::from_millis(50);

/// One process's share of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    /// The process.
    pub(crate) pid: u32,
    spare: u32,
    /// When the process started, in clock ticks since boot: a reused pid is not the same process.
    start: u64,
    /// Bytes, the context's own included.
    pub(crate) used: u64,
}

/// One device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Card {
    name: [u8; 64],
    uuid: [u8; 48],
    /// Bytes on the board.
    pub(crate) total: u64,
    /// Bytes that the driver keeps for itself.
    pub(crate) reserved: u64,
    count: u64,
    tenants: [Tenant; MAX_TENANTS],
}

/// The whole file. Every bit pattern is a valid value, whatever other processes write.
#[repr(C)]
pub(crate) struct Shared {
    magic: u64,
    count: u64,
    cards: [Card; MAX_CARDS],
}

impl Tenant {
    /// Whether the process still exists; `closely` also sees that it is the same one, and no zombie.
    fn alive(&self, closely: bool) -> bool {
        self.pid == std::process::id()
            || if closely { start_of(self.pid) == Some(self.start) } else { sys::exists(self.pid) }
    }
}

/// The start time of a process that still has memory: one that is gone, or waits to be reaped, has none.
fn start_of(pid: u32) -> Option<u64> {
    // The name before the last bracket may be any bytes.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = std::str::from_utf8(stat.rsplit(|it| *it == b')').next()?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") { None } else { fields.nth(18)?.parse().ok() }
}

impl Card {
    /// The device's name.
    pub(crate) fn name(&self) -> &str {
        text(&self.name)
    }

    /// The device's identity, as NVML writes it.
    pub(crate) fn uuid(&self) -> &str {
        text(&self.uuid)
    }

    /// The identity's 16 bytes, as the driver API gives them.
    pub(super) fn uuid_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let digits: Vec<u8> = self
            .uuid()
            .trim_start_matches("GPU-")
            .chars()
            .filter_map(|it| it.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair.iter().fold(0, |sum, it| sum * 16 + it);
        }
        bytes
    }

    /// The processes that have memory on the device.
    pub(crate) fn tenants(&self) -> &[Tenant] {
        &self.tenants[..self.len()]
    }

    /// Bytes that processes have, all together.
    pub(crate) fn used(&self) -> u64 {
        self.tenants().iter().map(|it| it.used).sum()
    }

    /// Bytes that processes can have, all together.
    pub(crate) fn capacity(&self) -> u64 {
        self.total.saturating_sub(self.reserved)
    }

    /// One of the equal MIG devices that it is divided into; its processes are on the first of them.
    pub(super) fn part(&self, slot: usize, parts: usize) -> Self {
        let mut part = *self;
        let parts = parts.max(1) as u64;
        (part.total, part.reserved) = (self.total / parts, self.reserved / parts);
        part.count = if slot == 0 { self.count } else { 0 };
        write(&mut part.name, &format!("{} MIG 1g.{}gb", self.name(), part.total >> 30));
        let (_, number) = self.uuid().rsplit_once('-').unwrap_or_default();
        write(&mut part.uuid, &format!("MIG-51a60000-0000-5000-{:04x}-{number}", 0x8000 + slot));
        part
    }

    /// The device with memory of processes that have ended.
    pub(super) fn with(&self, kept: &[(u32, u64)]) -> Self {
        let mut card = *self;
        for (pid, used) in kept.iter().filter(|(pid, _)| self.tenants().iter().all(|it| it.pid != *pid)) {
            let free = card.len();
            if let Some(tenant) = card.tenants.get_mut(free) {
                *tenant = Tenant { pid: *pid, spare: 0, start: 0, used: *used };
                card.count += 1;
            }
        }
        card
    }

    /// Makes room for `bytes` more of a process, unless the device is full.
    pub(super) fn charge(&mut self, pid: u32, bytes: u64) -> bool {
        if self.used().saturating_add(bytes) > self.capacity() {
            return false;
        }
        let Some(tenant) = self.tenant(pid) else { return false };
        tenant.used += bytes;
        true
    }

    /// Takes `bytes` back from a process.
    pub(super) fn refund(&mut self, pid: u32, bytes: u64) {
        if let Some(tenant) = self.tenant(pid) {
            tenant.used = tenant.used.saturating_sub(bytes);
        }
    }

    /// Sets the memory of a process; with 0 it has left the device.
    pub(crate) fn set(&mut self, pid: u32, bytes: u64) -> bool {
        if let Some(tenant) = self.tenant(pid) {
            tenant.used = bytes;
        } else {
            return false;
        }
        self.keep(|it| it.used > 0);
        true
    }

    fn tenant(&mut self, pid: u32) -> Option<&mut Tenant> {
        let len = self.len();
        let at = match self.tenants().iter().position(|it| it.pid == pid) {
            Some(at) => at,
            None if len < MAX_TENANTS => {
                self.tenants[len] = Tenant { pid, spare: 0, start: start_of(pid)?, used: 0 };
                self.count = len as u64 + 1;
                len
            }
            None => return None,
        };
        self.tenants.get_mut(at)
    }

    fn keep(&mut self, wanted: impl Fn(&Tenant) -> bool) {
        let kept: Vec<Tenant> = self.tenants().iter().copied().filter(wanted).collect();
        self.tenants[..kept.len()].copy_from_slice(&kept);
        self.count = kept.len() as u64;
    }

    fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(MAX_TENANTS).min(MAX_TENANTS)
    }
}

impl Shared {
    /// The machine's devices.
    pub(crate) fn cards(&self) -> &[Card] {
        &self.cards[..self.len()]
    }

    /// One device, to be changed.
    pub(crate) fn card(&mut self, index: usize) -> Option<&mut Card> {
        if index < self.len() { self.cards.get_mut(index) } else { None }
    }

    fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(MAX_CARDS).min(MAX_CARDS)
    }

    fn reap(&mut self, closely: bool) {
        let len = self.len();
        for card in &mut self.cards[..len] {
            if !card.tenants().iter().all(|it| it.alive(closely)) {
                card.keep(|it| it.alive(closely));
            }
        }
    }

    /// Equips the machine from a list such as `NVIDIA H200:143771MiB:615MiB;…` (name, total, what the driver keeps),
    /// with `;` or `,` between devices.
    fn equip(&mut self, devices: &str) {
        let mut len = 0;
        for (card, text) in self.cards.iter_mut().zip(devices.split([';', ',']).filter(|it| !it.trim().is_empty())) {
            let mut parts = text.trim().split(':');
            write(&mut card.name, parts.next().unwrap_or_default());
            write(&mut card.uuid, &format!("GPU-51a60000-0000-4000-8000-{len:012x}"));
            card.total = parts.next().and_then(bytes).unwrap_or(24 << 30);
            card.reserved = parts.next().and_then(bytes).unwrap_or(0);
            card.count = 0;
            len += 1;
        }
        self.count = len;
        self.magic = MAGIC;
    }
}

/// A size such as `143771MiB`, `24G` or a plain number of bytes.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)?.chars().next() {
        None | Some('B') => 0,
        Some('K' | 'k') => 10,
        Some('M' | 'm') => 20,
        Some('G' | 'g') => 30,
        Some(_) => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_shl(shift)
}

fn text(field: &[u8]) -> &str {
    CStr::from_bytes_until_nul(field).ok().and_then(|it| it.to_str().ok()).unwrap_or("?")
}

fn write(field: &mut [u8], text: &str) {
    let mut len = text.len().min(field.len() - 1);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    field.fill(0);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

/// The state as one process has it open.
pub(crate) struct Book {
    file: File,
    shared: NonNull<Shared>,
    /// The time of the last check for ended processes, which reads /proc once for each.
    checked: Option<Instant>,
}

// SAFETY: the mapping belongs to this value alone, and is reached with `&mut self` and the file's lock only.
unsafe impl Send for Book {}

impl Book {
    /// Opens or creates the state in a directory. If no process uses the machine, `devices` replaces its devices.
    ///
    /// # Errors
    ///
    /// When the directory or the file cannot be made, opened or mapped.
    pub(crate) fn open(dir: &Path, devices: Option<&str>) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let path = dir.join("state");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        sys::lock(&file)?;
        let size = mem::size_of::<Shared>();
        if file.metadata()?.len() < size as u64 {
            file.set_len(size as u64)?;
        }
        let shared = NonNull::new(sys::map_file(&file, size)?.cast()).ok_or(io::ErrorKind::Other)?;
        let mut book = Self { file, shared, checked: None };
        sys::unlock(&book.file);
        book.locked(|shared| {
            let idle = shared.cards().iter().all(|it| it.tenants().is_empty());
            match devices {
                Some(devices) if idle || shared.magic != MAGIC => shared.equip(devices),
                None if shared.magic != MAGIC => shared.equip(DEFAULT_DEVICES),
                _ => {}
            }
        });
        Ok(book)
    }

    /// Makes the next work check for ended processes, however recent the last check is.
    pub(super) fn recheck(&mut self) {
        self.checked = None;
    }

    /// Works on the locked state, after removing the entries of dead processes.
    pub(crate) fn locked<R>(&mut self, work: impl FnOnce(&mut Shared) -> R) -> R {
        // A lock that cannot be had (only a dying descriptor refuses) leaves the figures as they are: still readable.
        let held = sys::lock(&self.file).is_ok();
        // SAFETY: the mapping lives as long as `self`, is aligned to a page, holds a `Shared`, for which any bits are
        // valid, and the file's lock keeps every other process and thread away from it.
        let shared = unsafe { self.shared.as_mut() };
        let closely = self.checked.is_none_or(|it| it.elapsed() > RECHECK);
        shared.reap(closely);
        if closely {
            self.checked = Some(Instant::now());
        }
        let result = work(shared);
        if held {
            sys::unlock(&self.file);
        }
        result
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        sys::unmap(self.shared.as_ptr() as usize, mem::size_of::<Shared>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const MIB: u64 = 1 << 20;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        assert_eq!(bytes("143771MiB"), Some(143_771 * MIB));
        assert_eq!((bytes("24G"), bytes("512"), bytes("8kB")), (Some(24 << 30), Some(512), Some(8192)));
        assert_eq!((bytes("lots"), bytes("5parsecs")), (None, None));
    }

    #[test]
    fn a_machine_has_the_devices_of_its_list_and_an_idle_one_can_be_equipped_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut book = Book::open(dir.path(), Some("NVIDIA H200:143771MiB:615MiB; T4:16GiB")).unwrap();
        book.locked(|it| {
            let [first, second] = it.cards() else { panic!("two devices") };
            assert_eq!((first.name(), first.capacity()), ("NVIDIA H200", (143_771 - 615) * MIB));
            assert_eq!((second.name(), second.capacity()), ("T4", 16 << 30));
            assert_ne!(first.uuid(), second.uuid());
            assert_eq!(first.uuid_bytes()[..4], [0x51, 0xa6, 0, 0]);
        });
        let me = std::process::id();
        assert!(Book::open(dir.path(), Some("A10:1GiB")).unwrap().locked(|it| it.card(0).unwrap().charge(me, 5)));
        assert_eq!(book.locked(|it| it.cards().len()), 1, "nobody used the two");
        Book::open(dir.path(), Some("A100:1GiB")).unwrap();
        assert_eq!(book.locked(|it| it.cards()[0].name().to_owned()), "A10", "somebody uses it");
    }

    #[test]
    fn a_device_is_full_when_all_tenants_together_fill_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut book = Book::open(dir.path(), Some("A10:100MiB:10MiB")).unwrap();
        let me = std::process::id();
        // A process may have any bytes for a name.
        let name = dir.path().join(std::ffi::OsStr::from_bytes(b") \xff 1"));
        std::os::unix::fs::symlink("/bin/sh", &name).unwrap();
        let mut other = std::process::Command::new(name);
        let mut other = other.args(["-c", "read end"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        book.locked(|it| {
            let card = it.card(0).unwrap();
            assert!(card.charge(me, 50 * MIB) && card.charge(other.id(), 40 * MIB));
            assert!(!card.charge(me, 1), "not a byte is left");
            card.refund(me, 20 * MIB);
            assert!(card.charge(other.id(), 20 * MIB));
            assert_eq!(card.used(), 90 * MIB);
        });
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(book.locked(|it| it.cards()[0].used()), 30 * MIB, "the dead have nothing");
    }
}

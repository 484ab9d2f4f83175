//! What the kernel tells of a client of a device: the lines that begin with `drm-` in `/proc/PID/fdinfo/FD`.
//!
//! After the kernel's "DRM client usage stats": a client has a number that is its own on its device (`drm-pdev`,
//! `drm-client-id`); a descriptor that was duplicated or inherited repeats the number. Sizes are in bytes unless a unit
//! follows.

use std::collections::BTreeMap;

/// Most regions and engines kept of one client.
const KEYS_MAX: usize = 64;

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Client {
    /// The PCI address of its device.
    pub(super) address: Option<String>,
    /// Its number; unique on the device.
    pub(super) id: Option<u64>,
    /// Its memory by region, in bytes.
    regions: BTreeMap<String, Region>,
    /// The work of its engines, by their class.
    engines: BTreeMap<String, Work>,
}

/// A client's memory in one region, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Region {
    resident: Option<u64>,
    /// The older name for what is resident.
    memory: Option<u64>,
}

/// What an engine has worked for a client, since the client began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Nanoseconds of work.
    pub(super) busy_ns: Option<u64>,
    /// Cycles of work, and those that passed at the same time.
    pub(super) cycles: Option<u64>,
    pub(super) total_cycles: Option<u64>,
    /// How many engines of the class there are.
    capacity: Option<u64>,
}

impl Client {
    /// Parses a file; `None` if it is not about a client of a device.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut client = Self::default();
        let mut is_client = false;
        for line in text.lines() {
            let Some((key, value)) = line.strip_prefix("drm-").and_then(|it| it.split_once(':')) else { continue };
            let value = value.trim();
            match key {
                "driver" => is_client = true,
                "pdev" => client.address = Some(value.to_owned()),
                "client-id" => client.id = value.parse().ok(),
                _ => client.figure(key, value),
            }
        }
        is_client.then_some(client)
    }

    fn figure(&mut self, key: &str, value: &str) {
        let region = [("resident-", true), ("memory-", false)];
        if let Some((name, is_new)) = region.into_iter().find_map(|(it, is_new)| Some((key.strip_prefix(it)?, is_new)))
        {
            if let Some(region) = entry(&mut self.regions, name) {
                *(if is_new { &mut region.resident } else { &mut region.memory }) = bytes(value);
            }
        } else if let Some(class) = key.strip_prefix("engine-capacity-") {
            if let Some(work) = entry(&mut self.engines, class) {
                work.capacity = value.parse().ok();
            }
        } else if let Some(class) = key.strip_prefix("engine-") {
            if let Some(work) = entry(&mut self.engines, class) {
                work.busy_ns = value.strip_suffix("ns").unwrap_or(value).trim().parse().ok();
            }
        } else if let Some(class) = key.strip_prefix("cycles-") {
            if let Some(work) = entry(&mut self.engines, class) {
                work.cycles = value.parse().ok();
            }
        } else if let Some(class) = key.strip_prefix("total-cycles-")
            && let Some(work) = entry(&mut self.engines, class)
        {
            work.total_cycles = value.parse().ok();
        }
    }

    /// Returns the resident bytes in the regions with these names, with or without a number behind them; `None` if none
    /// of them is reported.
    pub(super) fn resident(&self, names: &[&str]) -> Option<u64> {
        let is_named = |region: &str| names.contains(&region.trim_end_matches(|it: char| it.is_ascii_digit()));
        let all = self.regions.iter().filter(|(name, _)| is_named(name));
        let known = all.filter_map(|(_, it)| it.resident.or(it.memory));
        known.reduce(u64::saturating_add)
    }

    /// Returns the work of the engines of these classes.
    pub(super) fn work(&self, classes: &[&str]) -> impl Iterator<Item = (&str, Work)> {
        let all = self.engines.iter().filter(|(class, _)| classes.contains(&class.as_str()));
        all.map(|(class, work)| (class.as_str(), *work))
    }
}

impl Work {
    /// Returns the part of the time since an earlier reading, so many nanoseconds ago, in which the engine worked for
    /// the client, in percent; `None` if that is not reported or a counter fell.
    pub(super) fn percent_since(&self, before: &Self, ns: u64) -> Option<f64> {
        let more = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        let cycles = more(self.cycles, before.cycles).zip(more(self.total_cycles, before.total_cycles));
        let (worked, of) = match cycles {
            Some(it) => it,
            None => (more(self.busy_ns, before.busy_ns)?, ns),
        };
        let of = of.saturating_mul(self.capacity.unwrap_or(1).max(1));
        (of > 0).then(|| (worked as f64 / of as f64 * 100.0).min(100.0))
    }
}

/// Returns the entry of a name, a new one while there is room.
fn entry<'m, V: Default>(map: &'m mut BTreeMap<String, V>, name: &str) -> Option<&'m mut V> {
    (map.len() < KEYS_MAX || map.contains_key(name)).then(|| map.entry(name.to_owned()).or_default())
}

/// Parses a size: `2068 KiB`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let unit = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_resident_memory_are_read_and_the_newer_one_counts() {
        // amdgpu_top's issue 87.
        let old = "pos:\t0\nflags:\t02104002\npasid:\t32784\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:08:00.0\n\
                   drm-client-id:\t217\ndrm-memory-vram:\t2068 KiB\ndrm-memory-gtt: \t8192 KiB\ndrm-memory-cpu: \t0 KiB\n\
                   drm-engine-gfx:\t107322799 ns\n";
        let client = Client::parse(old).unwrap();
        assert_eq!((client.address.as_deref(), client.id), (Some("0000:08:00.0"), Some(217)));
        let of = |names: &[&str]| client.resident(names);
        assert_eq!((of(&["vram"]), of(&["vram", "gtt"])), (Some(2068 << 10), Some(10_260 << 10)));
        assert_eq!((of(&["local"]), of(&["cpu"])), (None, Some(0)));
        let both = format!("{old}drm-total-vram:\t9000 KiB\ndrm-shared-vram:\t8 KiB\ndrm-resident-vram:\t3 MiB\n");
        assert_eq!(Client::parse(&both).unwrap().resident(&["vram"]), Some(3 << 20));
    }

    #[test]
    fn sizes_without_a_unit_are_bytes_and_regions_are_added_up() {
        let text = "drm-driver: xe\ndrm-resident-vram0: 4096\ndrm-resident-vram1: 1 KiB\ndrm-resident-gtt: 7 lbs\n";
        let client = Client::parse(text).unwrap();
        assert_eq!((client.resident(&["vram"]), client.resident(&["gtt"])), (Some(5120), None));
    }

    #[test]
    fn work_is_a_part_of_time_or_of_cycles() {
        let of = |text: &str| {
            let client = Client::parse(&format!("drm-driver: x\n{text}")).unwrap();
            client.work(&["gfx", "ccs"]).map(|it| it.1).next().unwrap()
        };
        let percent = |now: &str, then: &str| of(now).percent_since(&of(then), 1_000_000_000);
        assert_eq!(percent("drm-engine-gfx: 500000000 ns", "drm-engine-gfx: 0 ns"), Some(50.0));
        assert_eq!(percent("drm-engine-gfx: 5", "drm-engine-gfx: 6"), None, "a counter fell");
        let capacity = "drm-engine-capacity-gfx: 2\ndrm-engine-gfx: 1000000000 ns";
        assert_eq!(percent(capacity, "drm-engine-gfx: 0 ns"), Some(50.0));
        let cycles = |busy, all| format!("drm-cycles-ccs: {busy}\ndrm-total-cycles-ccs: {all}");
        assert_eq!(percent(&cycles(300, 1400), &cycles(50, 400)), Some(25.0));
        assert_eq!(percent(&cycles(300, 400), &cycles(50, 400)), None, "no time passed");
    }

    #[test]
    fn any_text_is_read_without_harm() {
        assert_eq!(Client::parse("pos: 0\nflags: 02\n"), None);
        let many: Vec<String> = (0..1000).map(|it| format!("drm-memory-r{it}x: 1\ndrm-engine-e{it}: 1 ns\n")).collect();
        let many = many.concat();
        let client = Client::parse(&format!("drm-driver:\n{many}drm-client-id: x\ndrm-:\ndrm-engine-: -1 ns")).unwrap();
        assert_eq!((client.regions.len(), client.id), (KEYS_MAX, None));
    }
}

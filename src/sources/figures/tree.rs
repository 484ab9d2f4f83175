//! The host memory of a process and its descendants.

use std::{collections::BTreeSet, fs, io};

/// Most processes of a tree.
const PROCESSES_MAX: usize = 512;

/// Returns the proportional set size of a process and its descendants, in bytes; `None` if one of them is not readable,
/// or there are too many.
pub(super) fn pss(pid: u32) -> Option<u64> {
    let (mut seen, mut left) = (BTreeSet::from([pid]), vec![pid]);
    let mut sum: u64 = 0;
    while let Some(one) = left.pop() {
        match fs::read_to_string(format!("/proc/{one}/smaps_rollup")) {
            Ok(text) => sum = sum.saturating_add(pss_of(&text)?),
            // A worker that ended meanwhile has none.
            Err(error) if one != pid && is_gone(&error) => {}
            Err(_) => return None,
        }
        left.extend(children(one).into_iter().filter(|it| seen.insert(*it)));
        if seen.len() > PROCESSES_MAX {
            return None;
        }
    }
    Some(sum)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn pss_of(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|it| it.strip_prefix("Pss:"))?;
    kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_tree_has_the_memory_of_its_workers_too() {
        let mut child = Command::new("sh").args(["-c", "read end; :"]).stdin(Stdio::piped()).spawn().unwrap();
        let own = std::process::id();
        // Where the kernel lists no children, or has no such file, the figure is not what this test is about.
        if fs::metadata("/proc/self/smaps_rollup").is_ok() && !children(own).is_empty() {
            assert!(children(own).contains(&child.id()));
            assert!(pss(child.id()).is_some_and(|it| it > 0));
            assert!(pss(own).is_some());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(pss(u32::MAX), None);
        assert_eq!(pss_of("Rss: 9 kB\nPss:          12 kB\nPss_Anon: 3 kB\n"), Some(12 << 10));
    }
}

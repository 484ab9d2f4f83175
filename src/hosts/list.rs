//! Lists of machines as people and schedulers write them: `node[01-16,20],login`, one entry a line in a file.

use anyhow::{Result, bail};

/// Most machines of a list.
pub const HOSTS_MAX: usize = 4096;

/// Most characters of a machine's name.
const NAME_MAX: usize = 255;

/// Returns the machines that a list names, each once, in its order.
///
/// # Errors
/// Fails if a bracket is not closed, a range falls, a name is not one that can be given to a command, or there are too
/// many.
pub fn expand(list: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for item in items(list)? {
        for name in expanded(item)? {
            check(&name)?;
            if !all.contains(&name) {
                all.push(name);
            }
            if all.len() > HOSTS_MAX {
                bail!("the list names more than {HOSTS_MAX} machines");
            }
        }
    }
    if all.is_empty() {
        bail!("the list names no machine");
    }
    Ok(all)
}

/// Returns the machines of a file: a list in each line, comments after `#`.
///
/// # Errors
/// Fails as [`expand`] does.
pub fn expand_lines(text: &str) -> Result<Vec<String>> {
    let lines = text.lines().map(|it| it.split('#').next().unwrap_or_default().trim());
    expand(&lines.filter(|it| !it.is_empty()).collect::<Vec<_>>().join(","))
}

/// Splits a list at commas and blanks outside of brackets.
fn items(list: &str) -> Result<Vec<&str>> {
    let mut inside = false;
    let mut faulty = false;
    let split = |c: char| {
        match c {
            '[' => {
                faulty |= inside;
                inside = true;
            }
            ']' => {
                faulty |= !inside;
                inside = false;
            }
            _ => {}
        }
        !inside && (c == ',' || c.is_whitespace())
    };
    let items: Vec<&str> = list.split(split).filter(|it| !it.is_empty()).collect();
    if inside || faulty {
        bail!("the brackets of {list:?} do not match");
    }
    Ok(items)
}

/// Expands every bracket of one item, the first one slowest.
fn expanded(item: &str) -> Result<Vec<String>> {
    let mut all = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        // `items` has matched the brackets.
        let (inside, after) = after.split_once(']').unwrap_or((after, ""));
        let numbers = numbers(inside)?;
        if all.len().saturating_mul(numbers.len()) > HOSTS_MAX {
            bail!("{item:?} names more than {HOSTS_MAX} machines");
        }
        all = all.iter().flat_map(|it| numbers.iter().map(move |number| format!("{it}{before}{number}"))).collect();
        rest = after;
    }
    Ok(all.into_iter().map(|it| it + rest).collect())
}

/// Expands `01-03,7` with the leading zeros of each range's start.
fn numbers(ranges: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|it| it.is_ascii_digit()));
        let Some((from, to)) = number(first).zip(number(last)).filter(|(from, to)| from <= to) else {
            bail!("{range:?} is not a number or a range such as 01-16");
        };
        if usize::try_from(to - from).unwrap_or(usize::MAX) >= HOSTS_MAX {
            bail!("{range:?} names more than {HOSTS_MAX} machines");
        }
        let width = first.len();
        all.extend((from..=to).map(|it| format!("{it:0width$}")));
    }
    Ok(all)
}

/// Whether a name can be given to a command: none that begins as an option does, and no blanks or controls.
fn check(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@:%/".contains(c);
    if name.starts_with('-') || name.len() > NAME_MAX || !name.chars().all(is_plain) {
        bail!("{name:?} is not a machine's name");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_the_machines_that_pdsh_and_slurm_name() {
        for (list, names) in [
            ("node01", &["node01"][..]),
            ("node[08-11]", &["node08", "node09", "node10", "node11"]),
            ("node[1-2,5],login", &["node1", "node2", "node5", "login"]),
            ("r[1-2]n[01-02].x", &["r1n01.x", "r1n02.x", "r2n01.x", "r2n02.x"]),
            ("ada@a, b\tc,,a@b,b", &["ada@a", "b", "c", "a@b"]),
            ("[98-101]", &["98", "99", "100", "101"]),
            ("::1%lo,pod/train-0", &["::1%lo", "pod/train-0"]),
        ] {
            assert_eq!(expand(list).unwrap(), names, "{list}");
        }
        assert_eq!(expand("node[0001-4096]").unwrap().len(), HOSTS_MAX);
        assert_eq!(expand_lines("# all\nnode[1-2] # two\n\n  b\n").unwrap(), ["node1", "node2", "b"]);
    }

    #[test]
    fn a_list_that_names_no_machine_is_refused() {
        let many = "a[1-4096]b[1-2]";
        for list in [
            "",
            ",",
            "node[",
            "node]",
            "node[[1]]",
            "node[2-1]",
            "node[a-b]",
            "node[]",
            "node[1-4294967296]",
            "node[+1]",
            "node[0-4096]",
            many,
            "-oProxyCommand=x",
            "a;b",
            "$(x)",
            "a\u{1b}[2J",
        ] {
            assert!(expand(list).is_err(), "{list:?}");
        }
    }
}

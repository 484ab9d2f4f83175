//! Which hosts to reach, and how: by the user's own `ssh`, or by any other command that runs a command there.

use super::list;
use crate::facts::text::Foreign;
use anyhow::{Result, anyhow, bail};
use std::{
    io::{Error, ErrorKind},
    process::{Command, Stdio},
    str::FromStr,
};

/// The placeholder of the machine's name.
const HOST: &str = "{}";

/// `ssh` that asks nothing, notices a dead connection, and neither opens nor keeps a shared one.
const SSH: [&str; 14] = [
    "ssh",
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=6",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oControlMaster=no",
    "-oEscapeChar=none",
    "-oForwardAgent=no",
    "-oForwardX11=no",
    "-oClearAllForwardings=yes",
    "-oLogLevel=ERROR",
    "--",
    HOST,
];

/// The words of a command, with `{}` for the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    words: Vec<String>,
}

impl Default for Transport {
    fn default() -> Self {
        Self { words: SSH.map(str::to_owned).to_vec() }
    }
}

impl FromStr for Transport {
    type Err = anyhow::Error;

    /// Splits at blanks; quotes and backslashes keep blanks. No shell is involved.
    fn from_str(text: &str) -> Result<Self> {
        let words = words(text)?;
        if words.is_empty() {
            bail!("a transport is a command, such as \"kubectl exec -i {{}} --\"");
        }
        Ok(Self { words })
    }
}

impl Transport {
    /// Returns the command that runs `remote` on a machine.
    pub fn command(&self, host: &str, remote: &[&str]) -> Vec<String> {
        let own = self.words.iter().map(|it| it.replace(HOST, host));
        own.chain(remote.iter().map(|it| (*it).to_owned())).collect()
    }
}

fn words(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut all = text.chars();
    while let Some(c) = all.next() {
        match (quote, c) {
            (Some(it), c) if it == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(all.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        bail!("a quote of {text:?} is not closed");
    }
    words.extend(word);
    Ok(words)
}

/// Machines to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Their names.
    pub hosts: Vec<String>,
    /// The command that reaches one.
    pub transport: Transport,
    /// The gpuwatch to start there, unless this one is copied.
    pub program: String,
    /// Whether to copy this gpuwatch there.
    pub push: bool,
}

impl Plan {
    /// Returns the command that streams a machine's events by a gpuwatch there.
    pub fn command(&self, host: &str, program: &str) -> Vec<String> {
        // Nothing here needs a machine's memory more often.
        self.transport.command(host, &[program, "stream", "--interval", "1s"])
    }
}

/// Returns why a program of this machine did not start, and what to do without it.
pub fn not_started(program: &str, error: &Error) -> String {
    if error.kind() != ErrorKind::NotFound {
        return format!("cannot start {program}: {error}");
    }
    let instead = match program {
        "ssh" => "install it, or name another command that reaches machines with --transport",
        "squeue" => {
            "run gpuwatch where Slurm's commands are, such as a login node, \
             or name the job's machines: --hosts 'node[01-16]'"
        }
        "sha256sum" => "install it, or copy gpuwatch to the machines yourself and leave out --push",
        _ => "install it, or correct --transport",
    };
    format!("there is no {program} on this machine: {instead}")
}

/// Returns the machines of a running Slurm job, as `squeue` lists them.
///
/// # Errors
/// Fails if `squeue` does, or if the job has no machines yet.
pub fn of_slurm(job: &str) -> Result<Vec<String>> {
    let is_id = |c: char| c.is_ascii_alphanumeric() || "_.+".contains(c);
    if job.is_empty() || !job.chars().all(is_id) {
        bail!("{job:?} is not the number of a Slurm job");
    }
    let mut squeue = Command::new("squeue");
    squeue.args(["--noheader", "--format=%N", "--jobs", job]).stdin(Stdio::null());
    let output = squeue.output().map_err(|e| anyhow!(not_started("squeue", &e)))?;
    if !output.status.success() {
        bail!("squeue: {}", Foreign::new(String::from_utf8_lossy(&output.stderr).trim()));
    }
    let nodes = String::from_utf8_lossy(&output.stdout);
    if nodes.trim().is_empty() {
        bail!("job {job} has no machines: it waits, or it has ended");
    }
    list::expand(&nodes)
}

/// Checks a program's path: a remote shell or none may read it, so it has no characters that a shell reads.
///
/// # Errors
/// Fails if it has.
pub fn program(text: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
    if text.is_empty() || text.starts_with('-') || !text.chars().all(is_plain) {
        bail!("{text:?} is not a path without blanks and quotes");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Vec<String> {
        text.parse::<Transport>().unwrap().command("node01", &["gpuwatch", "stream"])
    }

    #[test]
    fn a_transport_is_split_as_a_shell_splits_and_gets_the_machine() {
        let exec = ["kubectl", "exec", "-i", "node01", "--", "gpuwatch", "stream"];
        assert_eq!(command("kubectl exec -i {} --"), exec);
        assert_eq!(
            command(r#"a 'b c' "d \" e" f\ g x={}"#),
            ["a", "b c", "d \" e", "f g", "x=node01", "gpuwatch", "stream"]
        );
        assert_eq!(command("a ''"), ["a", "", "gpuwatch", "stream"]);
        for bad in ["", "  ", "a 'b"] {
            assert!(bad.parse::<Transport>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ssh_asks_nothing_and_the_machine_cannot_be_an_option() {
        let ssh = Transport::default().command("node01", &["gpuwatch", "stream"]);
        let place = |word: &str| ssh.iter().position(|it| it == word).unwrap();
        assert!(place("-oBatchMode=yes") < place("--") && place("--") + 1 == place("node01"), "{ssh:?}");
        assert_eq!(ssh[place("node01") + 1..], ["gpuwatch", "stream"]);
    }
}

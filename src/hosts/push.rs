//! Copies this program into the user's cache on a machine that lacks it, by the command that reaches the machine: `sh`
//! and `dd` there, no other protocol.
//!
//! The copy's name has the hash of its content, so another version is another file. The copy becomes visible under that
//! name after its hash was verified there, and no existing file is written over.

use super::plan::{self, Transport, not_started};
use crate::{facts::text::Foreign, sources::child};
use anyhow::{Context, Result, anyhow, bail};
use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs::File,
    process::{Command, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command as Remote,
    sync::Semaphore,
    time::timeout,
};

/// This program, as Linux names it also after its file was replaced.
const OWN: &str = "/proc/self/exe";

/// How long a script may take there, and a copy.
const SCRIPT: Duration = Duration::from_secs(20);
const COPY: Duration = Duration::from_secs(300);

/// Most copies at the same time.
const COPIES: usize = 4;

/// Most bytes of an answer.
const ANSWER_MAX: u64 = 64 << 10;

/// How each line of an answer begins: a login shell may print other lines.
const MARK: &str = "gpuwatch-push ";

/// Reports what a machine is and whether it has the copy. If not, makes an empty file for it.
///
/// The copy lies in the first folder that only its user and root can change, by the rule of `storage::own_folder`: the
/// owner and the mode of each folder from there up to `/`.
const LOOK: &str = r#"
echo "gpuwatch-push machine $(uname -s) $(uname -m)"
echo "gpuwatch-push libc $(getconf GNU_LIBC_VERSION 2>/dev/null)"
umask 077
me=$(id -u)
safe() {
    at=$1
    while about=$(stat -c '%u %a' "$at" 2>/dev/null) || { why="$at cannot be looked at"; return 1; }; do
        case ${about%% *} in
            0 | "$me") ;;
            *) why="another user owns $at"; return 1 ;;
        esac
        case ${about#* } in
            # A sticky folder above the copy's: no user can replace what another one has made.
            [1357]???) [ "$at" != "$1" ] || { why="other users may write to $at"; return 1; } ;;
            *[2367]? | *[2367]) why="other users may replace files in $at (chmod go-w $at)"; return 1 ;;
        esac
        [ "$at" != / ] || return 0
        at=${at%/*}
        at=${at:-/}
    done
}
whys=
d=
for c in "${XDG_CACHE_HOME:-$HOME/.cache}/gpuwatch/bin" "${TMPDIR:-/tmp}/gpuwatch-cache-$me/bin"; do
    why="$c cannot be made"
    if mkdir -p "$c" 2>/dev/null && c=$(cd -P "$c" && pwd -P); then
        why="another user owns $c"
        [ -O "$c" ] && safe "$c" && d=$c && break
    fi
    whys="$whys$why; "
done
f=$d/gpuwatch-$hash
if [ -z "$d" ]; then
    echo "gpuwatch-push trouble it has no folder that only its user can change: $whys"
elif [ -e "$f" ] || [ -L "$f" ]; then
    sum=$(sha256sum < "$f") && echo "gpuwatch-push sum ${sum%% *}"
elif ! command -v sha256sum > /dev/null; then
    echo "gpuwatch-push trouble it has no sha256sum to verify a copy with"
else
    p=$f.$(uname -n).$$
    (set -C; : > "$p") && echo "gpuwatch-push part $p"
fi
echo "gpuwatch-push file $f"
"#;

/// Verifies a copy and gives it its name, if that is free.
const INSTALL: &str = r#"
sum=$(sha256sum < "$part")
if [ "${sum%% *}" = "$hash" ]; then
    chmod 700 "$part" && { ln "$part" "$file" 2> /dev/null || [ -e "$file" ] || mv "$part" "$file"; }
fi
rm -f "$part"
sum=$(sha256sum < "$file") && echo "gpuwatch-push sum ${sum%% *}"
"#;

/// What is copied, and what it needs.
#[derive(Debug)]
pub struct Push {
    hash: String,
    machine: String,
    glibc: (u32, u32),
    copies: Semaphore,
}

/// What a machine answers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    machine: String,
    libc: String,
    sum: Option<String>,
    part: Option<String>,
    file: String,
    trouble: Option<String>,
}

impl Push {
    /// Describes this program.
    ///
    /// # Errors
    /// Fails if its file cannot be read, or `sha256sum` is missing here.
    pub fn of_this() -> Result<Self> {
        let mut sum = Command::new("sha256sum");
        sum.stdin(File::open(OWN).context("cannot read this program")?).stderr(Stdio::null());
        let sum = sum.output().map_err(|e| anyhow!(not_started("sha256sum", &e)))?.stdout;
        let hash: String = String::from_utf8_lossy(&sum).chars().take_while(char::is_ascii_hexdigit).collect();
        if hash.len() != 64 {
            bail!("sha256sum prints no hash of this program");
        }
        let system = rustix::system::uname();
        let machine = format!("{} {}", system.sysname().to_string_lossy(), system.machine().to_string_lossy());
        let glibc = needed(&std::fs::read(OWN).context("cannot read this program")?);
        Ok(Self { hash, machine, glibc, copies: Semaphore::new(COPIES) })
    }

    /// Returns the path of the copy on a machine. If there is none, calls `copying` and then makes it.
    ///
    /// # Errors
    /// Fails with a sentence if the machine cannot run it, another file has its name, or the copy fails.
    pub(super) async fn ensure(
        &self,
        transport: &Transport,
        host: &str,
        copying: impl AsyncFnOnce(),
    ) -> Result<String> {
        let found = self.look(transport, host).await?;
        if found.part.is_none() {
            return self.verified(&found);
        }
        copying().await;
        let _permit = self.copies.acquire().await;
        let part = found.part.as_deref().map(plan::program).transpose()?.unwrap_or_default();
        let file = plan::program(&found.file)?;
        let copy = timeout(COPY, run(transport, host, &["dd", &format!("of={part}"), "bs=65536"], Input::Own)).await;
        copy.ok().with_context(|| format!("the copy took longer than {} s", COPY.as_secs()))??;
        let variables = [("hash", self.hash.as_str()), ("part", &part), ("file", &file)];
        let installed = script(transport, host, &variables, INSTALL).await?;
        self.verified(&Answer { sum: installed.sum, file, ..found })
    }

    async fn look(&self, transport: &Transport, host: &str) -> Result<Answer> {
        let found = script(transport, host, &[("hash", &self.hash)], LOOK).await?;
        if found.file.is_empty() {
            bail!("its shell answers nothing about a copy of gpuwatch");
        }
        if found.machine != self.machine {
            bail!("it is {}, this gpuwatch is for {}", Foreign::new(found.machine), self.machine);
        }
        let has = found.libc.strip_prefix("glibc ").and_then(version);
        if has.is_none_or(|it| it < self.glibc) {
            let (major, minor) = self.glibc;
            let has = if found.libc.is_empty() { "no glibc".into() } else { Foreign::new(found.libc) };
            bail!("it has {has}, this gpuwatch needs glibc {major}.{minor}: use one that was built on an older system");
        }
        match &found.trouble {
            Some(why) => bail!("{}", Foreign::new(why.as_str())),
            None => Ok(found),
        }
    }

    /// Returns the path if the file there has the hash.
    fn verified(&self, found: &Answer) -> Result<String> {
        let path = plan::program(&found.file)?;
        match &found.sum {
            Some(sum) if *sum == self.hash => Ok(path),
            Some(_) => bail!("{path} there is not this gpuwatch, and is not written over: remove it"),
            None => bail!("the copy there cannot be verified"),
        }
    }
}

/// Returns the newest version of glibc that a program asks for: a name in its table of strings.
fn needed(program: &[u8]) -> (u32, u32) {
    const NAME: &[u8] = b"GLIBC_";
    let mut newest = (2, 0);
    let mut rest = program;
    while let Some(at) = rest.windows(NAME.len()).position(|it| it == NAME) {
        rest = rest.get(at + NAME.len()..).unwrap_or_default();
        let end = rest.iter().take(16).position(|it| *it == 0);
        let text = end.and_then(|end| std::str::from_utf8(rest.get(..end)?).ok());
        newest = text.and_then(version).map_or(newest, |it| newest.max(it));
    }
    newest
}

/// Parses `2.36`, and `2.2.5` as 2.2.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

enum Input {
    Text(String),
    /// This program.
    Own,
}

/// Runs a script with variables there.
async fn script(transport: &Transport, host: &str, variables: &[(&str, &str)], text: &str) -> Result<Answer> {
    let mut input = String::new();
    for (name, value) in variables {
        // They are hexadecimal, or paths without a character that a shell reads.
        let _ = writeln!(input, "{name}={value}");
    }
    // The shell reads all of it before it runs a part.
    let _ = writeln!(input, "run() {{{text}}}\nrun < /dev/null\nexit");
    let ran = timeout(SCRIPT, run(transport, host, &["sh"], Input::Text(input))).await;
    let output = ran.ok().with_context(|| format!("its shell does not answer within {} s", SCRIPT.as_secs()))??;
    Ok(parsed(&String::from_utf8_lossy(&output)))
}

/// Runs a command there, and returns what it prints.
async fn run(transport: &Transport, host: &str, words: &[&str], input: Input) -> Result<Vec<u8>> {
    let words = transport.command(host, words);
    let (program, arguments) = words.split_first().context("the transport is empty")?;
    let mut command = Remote::new(OsStr::new(program));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    child::ends_with_us(command.as_std_mut());
    match &input {
        Input::Text(_) => command.stdin(Stdio::piped()),
        Input::Own => command.stdin(File::open(OWN)?),
    };
    let mut child = command.spawn().map_err(|e| anyhow!(not_started(program, &e)))?;
    if let (Input::Text(text), Some(mut stdin)) = (&input, child.stdin.take()) {
        // One that does not read ends with a reason.
        let _ = stdin.write_all(text.as_bytes()).await;
    }
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read_output = async {
        if let Some(it) = stdout {
            let _ = it.take(ANSWER_MAX).read_to_end(&mut output).await;
        }
    };
    let read_errors = async {
        if let Some(it) = stderr {
            let _ = it.take(ANSWER_MAX).read_to_end(&mut errors).await;
        }
    };
    tokio::join!(read_output, read_errors);
    let status = child.wait().await?;
    if !status.success() {
        let words = super::intake::last_words(&errors);
        let why = if words.is_empty() { status.to_string() } else { words };
        bail!("gpuwatch cannot be copied there: {}", Foreign::new(why));
    }
    Ok(output)
}

fn parsed(text: &str) -> Answer {
    let mut answer = Answer::default();
    for line in text.lines().filter_map(|it| it.strip_prefix(MARK)) {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let value = value.trim().to_owned();
        match name {
            "machine" => answer.machine = value,
            "libc" => answer.libc = value,
            "sum" => answer.sum = Some(value),
            "part" => answer.part = Some(value),
            "file" => answer.file = value,
            "trouble" => answer.trouble = Some(value),
            _ => {}
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_that_a_program_asks_for_is_found() {
        let program = b"\0GLIBC_2.2.5\0x\0GLIBC_2.34\0GLIBC_PRIVATE\0GLIBC_2.99 in a text\0GLIBC_2.9\0GLIBC_";
        assert_eq!(needed(program), (2, 34));
        assert_eq!(needed(b""), (2, 0));
        assert_eq!((version("2.36\n"), version("musl"), version("2")), (Some((2, 36)), None, None));
    }

    #[test]
    fn an_answer_may_stand_between_lines_of_a_login_shell() {
        let text = "Welcome\ngpuwatch-push machine Linux x86_64\ngpuwatch-push libc \ngpuwatch-push later x\n\
                    gpuwatch-push sum ab\ngpuwatch-push file /c/gpuwatch-ab\nbye";
        let answer = parsed(text);
        assert_eq!((answer.machine.as_str(), answer.libc.as_str()), ("Linux x86_64", ""));
        assert_eq!((answer.sum.as_deref(), answer.part), (Some("ab"), None));
        assert_eq!(answer.file, "/c/gpuwatch-ab");
    }
}

//! A Python process for replays: it imports PyTorch once, and forks a child for each request.

use super::{Trouble, VARIABLE};
use crate::jobs::simulated;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::Sender,
    thread,
};

const PROGRAM: &str = include_str!("replay.py");

/// Memory of a child in addition to the trace, of which it has several copies.
const MEMORY: u64 = 4 << 30;
const MEMORY_PER_BYTE: u64 = 8;

/// A request, as the Python program reads it.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    pub(super) id: u64,
    pub(super) settings: &'a str,
    /// The file of operations.
    pub(super) operations: &'a Path,
    /// The file for allocated and released segments, if requested.
    pub(super) segments: Option<&'a Path>,
    /// Whether to continue after the failure of an allocation that failed in the recorded run too.
    pub(super) expects_failures: bool,
    pub(super) environment: BTreeMap<String, String>,
}

/// A server's message.
#[derive(Debug)]
pub(super) enum Message {
    /// PyTorch's version: the server is ready for requests.
    Ready(String),
    /// PyTorch cannot be imported.
    Unusable(String),
    /// The request was replayed.
    Replayed(u64, Outcome),
    /// PyTorch rejects the settings, or the replay.
    Refused(u64, String),
    /// The request's process ended before its answer.
    Died(String),
    /// The server ended.
    Gone,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Outcome {
    /// The operation at which memory ran out.
    pub(super) failed: Option<usize>,
    pub(super) peak_allocated: u64,
    pub(super) peak_reserved: u64,
    pub(super) reserved: u64,
    pub(super) retries: u64,
    pub(super) cuda_mallocs: u64,
    pub(super) synchronisations: u64,
}

/// A line of the Python program.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    id: Option<u64>,
    version: Option<String>,
    unusable: Option<String>,
    refused: Option<String>,
    died: Option<String>,
    #[serde(flatten)]
    outcome: Option<Outcome>,
}

/// A running server; it ends when this is dropped.
pub(super) struct Server {
    child: Child,
    requests: Option<ChildStdin>,
    folder: PathBuf,
}

impl Server {
    /// Starts a server for an allocator of PyTorch; sends its messages to `messages`, with its number.
    ///
    /// # Errors
    /// Fails if it cannot be started.
    pub(super) fn start(
        python: &Python,
        backend: &str,
        folder: &Path,
        bytes: u64,
        messages: Sender<(usize, Message)>,
        number: usize,
    ) -> Result<Self, Trouble> {
        let limit = bytes.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY);
        let errors = fs::File::create(folder.join(format!("errors-{number}")))?;
        // The machine must exist when PyTorch is loaded; each request has its own.
        let machine = simgpu::Machine::new("GPU:1GiB", &folder.join("machine"))?;
        let mut command = clean(&python.program);
        command.args(["-c", PROGRAM]).arg(folder).arg(limit.to_string()).current_dir(folder);
        command.envs(machine.environment(&python.libraries)).env(VARIABLE, format!("backend:{backend}"));
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut child = spawned.map_err(|e| Trouble::Unstarted { program: python.program.clone(), why: e })?;
        let answers = child.stdout.take();
        thread::spawn(move || {
            let lines = answers.map(|it| BufReader::new(it).lines()).into_iter().flatten();
            for line in lines.map_while(Result::ok) {
                // Ignores what other code prints.
                let Some(it) = parsed(&line) else { continue };
                if messages.send((number, it)).is_err() {
                    return;
                }
            }
            let _ = messages.send((number, Message::Gone));
        });
        let requests = child.stdin.take();
        Ok(Self { child, requests, folder: folder.to_owned() })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Fails if the server has ended.
    pub(super) fn ask(&mut self, request: &Request) -> Result<(), Trouble> {
        let mut line = serde_json::to_vec(request).map_err(std::io::Error::from)?;
        line.push(b'\n');
        let pipe = self.requests.as_mut().ok_or_else(|| Trouble::Interrupted("its process ended".to_owned()))?;
        pipe.write_all(&line).map_err(|e| Trouble::Interrupted(e.to_string()))
    }

    /// Returns how the server ended, with its last line on standard error.
    pub(super) fn end(&mut self, number: usize) -> String {
        drop(self.requests.take());
        let how = self.child.wait().map_or_else(|e| e.to_string(), |it| it.to_string());
        let errors = fs::read(self.folder.join(format!("errors-{number}"))).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors).into_owned();
        let last = errors.lines().rfind(|it| !it.trim().is_empty());
        last.map_or_else(|| how.clone(), |it| format!("{how}: {}", it.trim()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Outstanding requests end with the server.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parsed(line: &str) -> Option<Message> {
    let it: Line = serde_json::from_str(line).ok()?;
    let Some(id) = it.id else {
        return it.version.map(Message::Ready).or(it.unusable.map(Message::Unusable));
    };
    if let Some(why) = it.refused {
        return Some(Message::Refused(id, why));
    }
    if let Some(how) = it.died {
        return Some(Message::Died(how));
    }
    it.outcome.map(|it| Message::Replayed(id, it))
}

/// Prints the folder of the package `torch`, without importing it.
const FIND: &str = "import importlib.util as u; it = u.find_spec('torch'); \
                    print(it.submodule_search_locations[0] if it and it.submodule_search_locations else '')";

/// A Python with a usable PyTorch.
#[derive(Clone, Debug)]
pub(super) struct Python {
    pub(super) program: PathBuf,
    /// The folder of the simulated driver's libraries.
    pub(super) libraries: PathBuf,
}

impl Python {
    /// Finds PyTorch in a Python, or in the first one on the path, and prepares the libraries on first use.
    ///
    /// # Errors
    /// Fails if there is no PyTorch, or if it is built without CUDA.
    pub(super) fn find(named: Option<&Path>) -> Result<Self, Trouble> {
        let program = match named {
            // The replay has another working directory.
            Some(it) if it.components().count() > 1 => std::path::absolute(it)?,
            Some(it) => it.to_owned(),
            None => on_path().ok_or(Trouble::NoPython)?,
        };
        let torch = torch_of(&program)?;
        let libraries = simulated::libraries(&torch)?;
        Ok(Self { program, libraries })
    }
}

fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let is_there = |name: &str| env::split_paths(&path).any(|it| it.join(name).is_file());
    ["python", "python3"].into_iter().find(|it| is_there(it)).map(PathBuf::from)
}

fn torch_of(program: &Path) -> Result<PathBuf, Trouble> {
    let mut command = clean(program);
    command.args(["-c", FIND]).stdin(Stdio::null());
    let done = command.output().map_err(|e| Trouble::Unstarted { program: program.to_owned(), why: e })?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let folder = text.lines().last().unwrap_or_default().trim();
    if !done.status.success() || folder.is_empty() {
        return Err(Trouble::NoTorch { program: program.to_owned() });
    }
    Ok(PathBuf::from(folder))
}

/// Returns a Python command without a probe and without the user's settings of allocators and devices.
pub(super) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("GPUWATCH", "off");
    let names = env::vars_os().map(|it| it.0);
    let is_foreign = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        name.starts_with("PYTORCH_") || name.starts_with("SIMGPU_") || name.starts_with("CUDA_")
    };
    for it in names.filter(is_foreign) {
        command.env_remove(it);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_answer_or_none_of_ours() {
        assert!(matches!(parsed("{\"version\": \"2.15.0\"}"), Some(Message::Ready(it)) if it == "2.15.0"));
        assert!(matches!(parsed("{\"unusable\": \"no\"}"), Some(Message::Unusable(_))));
        assert!(matches!(parsed("{\"id\": 3, \"died\": \"signal 9\"}"), Some(Message::Died(_))));
        assert!(matches!(parsed("{\"id\": 3, \"refused\": \"no\"}"), Some(Message::Refused(3, _))));
        let all = "{\"id\": 4, \"failed\": null, \"peak_allocated\": 1, \"peak_reserved\": 2, \"reserved\": 3, \
                   \"retries\": 4, \"cuda_mallocs\": 5, \"synchronisations\": 6}";
        assert!(matches!(parsed(all), Some(Message::Replayed(4, it)) if it.peak_reserved == 2 && it.failed.is_none()));
        assert!(parsed("Warning: something").is_none() && parsed("{\"id\": 4}").is_none());
    }
}

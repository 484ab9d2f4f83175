//! The text that Python runs in a job: it starts a thread, which does the rest. Pure.

use super::{
    maps::{read, word},
    runtime::{COOKIE, INTERPRETERS},
};
use std::{
    fmt::Write as _,
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

/// What the job is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Start the probe.
    Start,
    /// End it.
    Stop,
}

/// The order for the job's thread. Paths are as the job sees them.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) wish: Wish,
    /// The job's number as it sees it itself: a child that is forked meanwhile has another.
    pub(super) own_pid: u32,
    /// The directory with the probe's package.
    pub(super) folder: PathBuf,
    pub(super) library: PathBuf,
    /// The directory of this request, and the names of the files there by which the job shows that it has begun, and
    /// answers.
    pub(super) place: PathBuf,
    pub(super) begun: &'static str,
    pub(super) answer: &'static str,
    /// The directories for its socket; if empty, the job's own environment decides.
    pub(super) directories: Vec<PathBuf>,
    /// The recording's run.
    pub(super) run: Option<String>,
    /// Whether the directory goes once its content is loaded.
    pub(super) is_removed: bool,
}

/// Starts the thread, with `order` as a name of its own. A thread that cannot start or load the probe is an answer too;
/// where not even that can be written, the request goes, so that it does not stand in the way of the next. Nothing is
/// raised: what a thread raises is printed. While Python shuts down, nothing is done: its main thread has ended for
/// `threading` before threads are waited for and the functions of `atexit` run.
const BEGIN: &str = "import os, sys, _thread
def ends():
 threading = sys.modules.get('threading')
 return threading is not None and not threading.main_thread().is_alive()
def reply(words):
 path = os.path.join(order['place'], order['answer'])
 with open(path + b'.tmp', 'wb') as file: file.write(words.encode('utf-8', 'replace'))
 os.replace(path + b'.tmp', path)
def refuse(error):
 try: reply('refused could not start the probe: %r' % (error,))
 except BaseException:
  for name in (b'asked', order['begun'], order['answer'] + b'.tmp'):
   try: os.unlink(os.path.join(order['place'], name))
   except BaseException: pass
def join():
 try:
  if ends(): return reply('refused is ending: its Python shuts down')
  with open(order['join'], 'rb') as file: text = file.read()
  exec(text, {'order': order, 'reply': reply})
 except BaseException as error: refuse(error)
if os.getpid() == order['pid'] and not sys.is_finalizing():
 try: join() if ends() else _thread.start_new_thread(join, ())
 except Exception as error: refuse(error)
";

/// Names nothing in the job's main module, raises nothing, and leaves everything that takes time to a thread of its
/// own, whose signals are blocked. The page at `page` is given back at the end; 0 stands for no page.
pub(super) fn text(order: &Order, page: u64) -> String {
    let Order { own_pid, begun, answer, .. } = order;
    let wish = if order.wish == Wish::Start { "start" } else { "stop" };
    let directories: Vec<String> = order.directories.iter().map(|it| literal(it)).collect();
    let run = order.run.as_deref().map_or_else(|| "None".to_owned(), |it| format!("'{it}'"));
    let known = format!(
        "'do':'{wish}','pid':{own_pid},'join':{},'folder':{},'library':{},'place':{},'begun':b'{begun}',\
         'answer':b'{answer}','directories':[{}],'run':{run},'remove':{},'page':{page}",
        literal(&order.folder.join("gpuwatch_probe/_attach_script.py")),
        literal(&order.folder),
        literal(&order.library),
        literal(&order.place),
        directories.join(","),
        u8::from(order.is_removed),
    );
    format!(
        "try: exec(\"{}\", {{'order':{{{known}}}}})\n\
         except KeyboardInterrupt: __import__('_thread').interrupt_main()\n\
         except BaseException: pass\n",
        BEGIN.replace('\n', "\\n")
    )
}

/// Any path as bytes of Python; within quotes of either kind.
fn literal(path: &Path) -> String {
    let mut text = String::from("b'");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => text.push(char::from(*byte)),
            other => {
                let _ = write!(text, "\\x{other:02x}");
            }
        }
    }
    text + "'"
}

/// The offset in the table at `_PyRuntime` of an offset that every release has: an interpreter's main thread.
const MAIN_THREAD: u64 = 80;

/// The bit of the "eval breaker" that requests the thread to check for a script.
const PLEASE_STOP: u64 = 1 << 5;

/// Where the table's fields begin, and how many of them are read.
const FIELDS: u64 = 24;
const FIELDS_MAX: usize = 256;

/// The fields for debuggers are the table's last six, and what is before them differs between releases. The last
/// three are the layout of a struct that is the same in all of them: a number of four bytes, and a path.
const STRUCT: [u64; 3] = [0, 4, 512];

/// Returns the six fields for debuggers of a table.
fn for_debuggers(table: &[u64]) -> Option<[u64; 6]> {
    table.windows(6).find(|it| it[3..] == STRUCT)?.try_into().ok()
}

/// Addresses and sizes of the fields.
struct Fields {
    interpreter: u64,
    thread: u64,
    eval_breaker: u64,
    support: u64,
    enabled: u64,
    pending: u64,
    path: u64,
    path_size: u64,
}

impl Fields {
    fn find(memory: &File, runtime: u64) -> Option<Self> {
        if read(memory, runtime, COOKIE.len())? != COOKIE {
            return None;
        }
        // 0x030E00F0 is 3.14.0.
        let [_, _, minor, major, ..] = word(memory, runtime + 8)?.to_le_bytes();
        let is_free_threaded = word(memory, runtime + 16)? != 0;
        if major != 3 || minor < 14 || is_free_threaded {
            return None;
        }
        let bytes = read(memory, runtime + FIELDS, 8 * FIELDS_MAX)?;
        let table: Vec<u64> =
            bytes.chunks_exact(8).filter_map(|it| Some(u64::from_le_bytes(it.try_into().ok()?))).collect();
        let [eval_breaker, support, enabled, pending, path, path_size] = for_debuggers(&table)?;
        let interpreter = word(memory, runtime + word(memory, runtime + INTERPRETERS)?)?;
        let thread = word(memory, interpreter + word(memory, runtime + MAIN_THREAD)?)?;
        let is_sane = thread != 0 && eval_breaker < 1 << 12 && support < 1 << 16 && enabled < 1 << 20;
        let found = Self { interpreter, thread, eval_breaker, support, enabled, pending, path, path_size };
        is_sane.then_some(found)
    }
}

/// Returns whether Python takes scripts; `None` if it does not report it.
pub(super) fn takes_scripts(memory: &File, runtime: u64) -> Option<bool> {
    let fields = Fields::find(memory, runtime)?;
    match read(memory, fields.interpreter + fields.enabled, 4)?[..] {
        [0, 0, 0, 0] => Some(false),
        [1, 0, 0, 0] => Some(true),
        _ => None,
    }
}

/// Has Python run a script.
///
/// # Errors
/// When its memory is not as expected, another script waits, or the path is too long.
pub(super) fn run(memory: &File, runtime: u64, script: &[u8]) -> io::Result<()> {
    let fields = Fields::find(memory, runtime).ok_or_else(|| io::Error::other("its state cannot be read"))?;
    let support = fields.thread + fields.support;
    if script.len() as u64 >= fields.path_size {
        return Err(io::Error::other("the path of its directory for temporary files is too long"));
    }
    let pending = read(memory, support + fields.pending, 4);
    if pending.is_none_or(|it| it.iter().any(|byte| *byte != 0)) {
        return Err(io::Error::other("a debugger's script waits in it"));
    }
    let path: Vec<u8> = script.iter().copied().chain([0]).collect();
    memory.write_all_at(&path, support + fields.path)?;
    memory.write_all_at(&1_i32.to_le_bytes(), support + fields.pending)?;
    let breaker = fields.thread + fields.eval_breaker;
    let now = word(memory, breaker).ok_or_else(|| io::Error::other("its state cannot be read"))?;
    memory.write_all_at(&(now | PLEASE_STOP).to_le_bytes(), breaker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn any_path_survives_and_nothing_is_named_or_raised() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a 'b' \"c\" \\ ü\n");
        std::fs::create_dir_all(folder.join("gpuwatch_probe")).unwrap();
        let join = "reply(str(sorted(order)))\n1/0\n";
        std::fs::write(folder.join("gpuwatch_probe/_attach_script.py"), join).unwrap();
        let order = Order {
            wish: Wish::Start,
            own_pid: 0,
            place: folder.clone(),
            begun: "begun",
            answer: "answer",
            library: folder.join("library"),
            directories: vec![folder.clone()],
            folder: folder.clone(),
            run: Some("0123".to_owned()),
            is_removed: true,
        };
        let text = text(&order, 4096).replace("'pid':0", "'pid':os.getpid()");
        let run = "import os, sys, time\nnames = None; names = set(globals())\nexec(sys.argv[1])\n\
            import pathlib; names.add('pathlib'); answer = pathlib.Path(sys.argv[2]); names.add('answer')\n\
            while not (answer.exists() and b'refused' in answer.read_bytes()): time.sleep(0.01)\n\
            print(sorted(set(globals()) - names))";
        let output = Command::new("python3").args(["-c", run, &text]).arg(folder.join("answer")).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(printed.trim(), "[]");
        // What goes wrong in the thread is an answer as well.
        let answer = std::fs::read_to_string(folder.join("answer")).unwrap();
        assert!(answer.contains("refused could not start the probe: ZeroDivisionError"), "{answer}");
    }

    #[test]
    fn the_fields_are_found_behind_a_table_of_any_length() {
        // The end of Python 3.14.8's table, and what follows it.
        let end = [67, 24, 304, 8076, 0, 4, 512, 1, 4_294_967_297];
        for before in [86, 102] {
            let table: Vec<u64> = (0..before).map(|it| 8 * it).chain(end).collect();
            assert_eq!(for_debuggers(&table), Some([24, 304, 8076, 0, 4, 512]));
        }
        assert_eq!(for_debuggers(&[0; 86]), None);
    }
}

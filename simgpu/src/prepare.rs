//! Prepares the libraries: reads from a wheel what it imports, and writes one shared object under each soname.
//!
//! All of them depend on the simulated device, which exports what it simulates; each holds the version that programs
//! were linked with, and stubs for the rest.
//!
//! Where NVIDIA's own libraries are installed beside PyTorch, its wheel finds them by a path that it contains
//! (`DT_RPATH`), before any in `LD_LIBRARY_PATH`. The dynamic linker searches no library that it has already loaded
//! under a soname. So a program loads a file that needs all of the simulated ones before it loads PyTorch: jobs of
//! `gpuwatch fit` and replays by themselves (`SIMGPU_FIRST`), others by `LD_PRELOAD`.
//!
//! # How one device serves two CUDAs
//!
//! A wheel contains its requirements: the sonames and versions of its imports, the CUDA, cuDNN and NCCL that it was
//! built with, the architectures that were compiled in. `simgpu/src/prepare.rs` reads them, writes a library under each
//! soname, and notes the versions in a file beside them (`gpu/wheel.rs`). The device behind the libraries is one. Where
//! CUDA 12 and 13 have other layouts or arguments the function's name mostly shows it (`cudaGetDeviceProperties_v2`,
//! `cudaStreamGetCaptureInfo_v2` are 12's); where it does not, the code asks `Wheel::is_cuda_12`. The offsets of
//! `cudaDeviceProp` are held to both headers'.
//!
//! `tests/it/probe/older_torch.rs` runs tests of the suite again, by name, in a process of its own with an older
//! PyTorch. If a release lacks a counter, the scripts find that out from PyTorch, and the tests expect the counter to
//! be unknown.

use crate::{
    elf::{self, Object},
    gpu::{
        forms::{self, Kind, Step, Verb},
        wheel::Wheel,
    },
    shared::Shared,
    table::{self, Effect, Library},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Error},
    path::{Path, PathBuf},
};

const DEVICE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libsimgpu.so"));
const DEVICE_FILE: &str = "libsimgpu.so";
/// The target of all stubs.
const TARGET: &str = "simgpu_stub";
const NVML_SONAME: &str = "libnvidia-ml.so.1";
/// Needs all the others, so that a program that loads it first finds them and no others of these names.
pub(crate) const ALL_FILE: &str = "libsimgpu-all.so";
const DRIVER_STEM: &str = "libcuda";
const DRIVER_SONAME: &str = "libcuda.so.1";
/// `NVML_ERROR_NOT_SUPPORTED`
const NVML_UNSUPPORTED: i64 = 3;

/// Writes NVML's library, and what it needs, into a folder; needs no PyTorch. Gives the library's path.
///
/// # Errors
///
/// Fails if the folder cannot be written, or if this system's processor is not supported.
pub fn prepare_nvml(out: &Path) -> io::Result<PathBuf> {
    let device = write_device(out)?;
    let stubs = Stubs {
        soname: NVML_SONAME.into(),
        version: None,
        names: table::NVML_NAMES.split_whitespace().map(str::to_owned).collect(),
    };
    stubs.write(out, None, NVML_UNSUPPORTED, &device)?;
    Ok(out.join(NVML_SONAME))
}

/// Like `prepare_nvml`, with the driver's library beside it: for programs that use the driver API alone. Gives NVML's
/// path.
///
/// # Errors
///
/// As `prepare_nvml`.
pub fn prepare_driver(out: &Path) -> io::Result<PathBuf> {
    let nvml = prepare_nvml(out)?;
    let libraries = table::libraries(table::LIBRARIES)?;
    let library = libraries.iter().find(|it| it.stem == DRIVER_STEM);
    let device = Object::read(&out.join(DEVICE_FILE))?.exports.into_iter().collect();
    driver(None).write(out, library, library.map_or(0, |it| it.unsupported), &device)?;
    Ok(nvml)
}

/// The driver's functions that its library exports although no wheel imports them.
fn driver(imported: Option<Stubs>) -> Stubs {
    let mut stubs = imported.unwrap_or_else(|| Stubs::new(DRIVER_SONAME));
    stubs.names.extend(table::DRIVER_NAMES.split_whitespace().map(str::to_owned));
    stubs
}

/// Writes every library that PyTorch in `torch` (the package's folder) imports, and NVML's, into a folder.
///
/// # Errors
///
/// Fails if there is no PyTorch with CUDA 12 or 13, if it imports from a library that the table does not know, if
/// the folder cannot be written, or if the processor is not supported.
pub fn prepare(torch: &Path, out: &Path) -> io::Result<()> {
    let libraries = table::libraries(table::LIBRARIES)?;
    let wheel = read_wheel(torch)?;
    let files = objects(torch)?;
    let mut stubs = imports(&files, &libraries)?;
    if !stubs.contains_key("libcudart") {
        return Err(Error::other(format!("{} imports no CUDA runtime: not PyTorch with CUDA", torch.display())));
    }
    for library in table::public(table::PUBLIC_NAMES) {
        let Some(soname) =
            stubs.get(&library.stem).map(|it| it.soname.clone()).or(library.soname(wheel.runtime / 1000))
        else {
            continue;
        };
        stubs.entry(library.stem).or_insert_with(|| Stubs::new(&soname)).names.extend(library.names);
    }
    let driver = driver(stubs.remove(DRIVER_STEM));
    stubs.insert(DRIVER_STEM.into(), driver);
    prepare_nvml(out)?;
    fs::write(out.join(Wheel::FILE), wheel.to_string())?;
    let device = Object::read(&out.join(DEVICE_FILE))?.exports.into_iter().collect();
    for (stem, stubs) in &stubs {
        let library = libraries.iter().find(|it| it.stem == *stem);
        stubs.write(out, library, library.map_or(0, |it| it.unsupported), &device)?;
    }
    let others = stubs.values().map(|it| it.soname.as_str());
    let all = Shared {
        soname: ALL_FILE,
        version: None,
        needed: [DEVICE_FILE, NVML_SONAME].into_iter().chain(others).collect(),
        target: TARGET,
        stubs: Vec::new(),
    };
    fs::write(out.join(ALL_FILE), all.file()?)
}

/// Like `prepare`, into a folder under `parent` that is made once for this PyTorch and this simgpu. Gives the folder.
/// Another PyTorch in the same place gets another folder.
///
/// # Errors
///
/// As `prepare`.
pub fn prepared(torch: &Path, parent: &Path) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    let version = fs::read_to_string(torch.join("version.py")).unwrap_or_default();
    let tables = [table::LIBRARIES, table::DRIVER_NAMES, table::PUBLIC_NAMES, table::NVML_NAMES];
    (DEVICE, ALL_FILE, tables, torch, version).hash(&mut hasher);
    let out = parent.join(format!("simgpu-{:016x}", hasher.finish()));
    if !out.exists() {
        let new = parent.join(format!("simgpu-new-{}", std::process::id()));
        prepare(torch, &new)?;
        // Another process was faster and made the same.
        if fs::rename(&new, &out).is_err() && out.exists() {
            fs::remove_dir_all(&new)?;
        }
    }
    Ok(out)
}

/// The contents of one generated library.
struct Stubs {
    soname: String,
    version: Option<String>,
    names: BTreeSet<String>,
}

impl Stubs {
    fn new(soname: &str) -> Self {
        Self { soname: soname.into(), version: None, names: BTreeSet::new() }
    }

    /// Writes the library of the stubs, without those that the device exports itself.
    fn write(
        &self,
        out: &Path,
        library: Option<&Library>,
        unsupported: i64,
        device: &BTreeSet<String>,
    ) -> io::Result<()> {
        let names = self.names.iter().filter(|it| !device.contains(*it));
        let stub = |name| form(name, library.and_then(|it| it.effects(name)), unsupported, &self.soname);
        let shared = Shared {
            soname: &self.soname,
            version: self.version.as_deref(),
            needed: vec![DEVICE_FILE],
            target: TARGET,
            stubs: names.map(|it| (it.as_str(), stub(it))).collect(),
        };
        fs::write(out.join(&self.soname), shared.file()?)
    }
}

/// Returns the work of a stub, as the device reads it.
fn form(name: &str, effects: Option<&[Effect]>, unsupported: i64, soname: &str) -> Vec<u8> {
    let Some(effects) = effects else {
        let kind = match soname {
            NVML_SONAME => Kind::Unsupported,
            _ if soname.starts_with("libcudart.") => Kind::RefusedRuntime,
            _ => Kind::Refused,
        };
        return forms::bytes(kind, unsupported, &[], name, soname);
    };
    let (mut answer, mut steps) = (0, Vec::new());
    for effect in effects {
        steps.push(match *effect {
            Effect::Work(None) => Step::new(Verb::Work, 0, 0),
            Effect::Work(Some(at)) => Step::new(Verb::WorkOn, at, 0),
            Effect::Stream(at) => Step::new(Verb::Stream, at, 0),
            Effect::Zero(at, bytes) => Step::new(Verb::Zero, at, bytes),
            Effect::Handle(at) => Step::new(Verb::Handle, at, 0),
            Effect::Free(at) => Step::new(Verb::Free, at, 0),
            Effect::Int(at, value) => Step::new(Verb::Int, at, value),
            Effect::Size(at, value) => Step::new(Verb::Size, at, value),
            Effect::Elements(at, a, b) => Step::product(Verb::Elements, at, [a, b]),
            Effect::Bytes(at, a, b) => Step::product(Verb::Bytes, at, [a, b]),
            Effect::Text(at) => Step::new(Verb::Text, at, 0),
            Effect::Heuristic(at) => Step::new(Verb::Heuristic, at, 0),
            Effect::ReturnsText => Step::new(Verb::AnswerText, 0, 0),
            Effect::Returns(value) => {
                answer = value;
                continue;
            }
        });
    }
    forms::bytes(Kind::Reviewed, answer, &steps, name, soname)
}

/// Writes the simulated device; gives the names that it exports.
fn write_device(out: &Path) -> io::Result<BTreeSet<String>> {
    fs::create_dir_all(out)?;
    let path = out.join(DEVICE_FILE);
    fs::write(&path, DEVICE)?;
    Ok(Object::read(&path)?.exports.into_iter().collect())
}

/// The shared objects of a wheel.
fn objects(torch: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for dir in [torch.to_owned(), torch.join("lib")] {
        for entry in fs::read_dir(&dir).map_err(|it| Error::new(it.kind(), format!("{}: {it}", dir.display())))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned() + ".";
            if path.is_file() && name.contains(".so.") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the imports of the objects, by library.
fn imports(files: &[PathBuf], libraries: &[Library]) -> io::Result<BTreeMap<String, Stubs>> {
    let mut stubs: BTreeMap<String, Stubs> = BTreeMap::new();
    let mut unversioned = BTreeSet::new();
    let stem = |soname: &str| soname.split(".so").next().unwrap_or_default().to_owned();
    let known = |soname: &str| libraries.iter().any(|it| it.stem == stem(soname));
    for file in files {
        let object = Object::read(file).map_err(|it| Error::other(format!("{}: {it}", file.display())))?;
        for soname in object.needed {
            if known(&soname) {
                stubs.entry(stem(&soname)).or_insert_with(|| Stubs::new(&soname));
            } else if files.iter().any(|it| it.file_name().is_some_and(|name| *name == *soname)) {
                // The wheel brings it along.
            } else if soname.starts_with("libcu") || soname.starts_with("libnv") || soname.starts_with("libnccl") {
                return Err(Error::other(format!("{} needs {soname}, which nobody simulates", file.display())));
            }
        }
        for import in object.imports {
            match import.version {
                Some((soname, version)) if known(&soname) => {
                    let library = stubs.entry(stem(&soname)).or_insert_with(|| Stubs::new(&soname));
                    library.version = Some(version);
                    library.names.insert(import.name);
                }
                Some(_) => {}
                None => {
                    unversioned.insert(import.name);
                }
            }
        }
    }
    for name in unversioned {
        let library = libraries.iter().find(|it| it.claims(&name));
        if let Some(stubs) = library.and_then(|it| stubs.get_mut(&it.stem)) {
            stubs.names.insert(name);
        }
    }
    Ok(stubs)
}

/// The versions that a wheel was compiled for, from its own statements about itself.
fn read_wheel(torch: &Path) -> io::Result<Wheel> {
    let mut wheel = Wheel::default();
    let file = torch.join("version.py");
    let version = fs::read_to_string(&file).map_err(|it| Error::new(it.kind(), format!("{}: {it}", file.display())))?;
    let cuda = version.lines().find_map(|it| it.strip_prefix("cuda:")).and_then(|it| it.split('\'').nth(1));
    let cuda = numbers(cuda.ok_or_else(|| Error::other("it is not built for CUDA"))?);
    let [major, minor, ..] = cuda[..] else { return Err(Error::other("version.py names no version of CUDA")) };
    if !(12..=13).contains(&major) {
        return Err(Error::other(format!(
            "built for CUDA {major}; only the structures of CUDA 12 and 13 are simulated"
        )));
    }
    wheel.runtime = major * 1000 + minor * 10;
    for line in metadata(torch)?.lines() {
        let wanted = |package: &str| {
            let rest = line.strip_prefix("Requires-Dist: ")?.strip_prefix(package)?;
            Some(numbers(rest.split_once("==")?.1))
        };
        if let Some([a, b, c, ..]) = wanted("nvidia-cudnn-").as_deref() {
            wheel.cudnn = usize::try_from(a * 10_000 + b * 100 + c).unwrap_or(wheel.cudnn);
        }
        if let Some([a, b, c, ..]) = wanted("nvidia-nccl-").as_deref() {
            wheel.nccl = a * 10_000 + b * 100 + c;
        }
    }
    wheel.architectures = architectures(&elf::read_only_data(&torch.join("lib/libtorch_python.so"))?);
    if wheel.architectures.is_empty() {
        return Err(Error::other("libtorch_python.so lists no architectures"));
    }
    Ok(wheel)
}

fn metadata(torch: &Path) -> io::Result<String> {
    let packages = torch.parent().unwrap_or(torch);
    for entry in fs::read_dir(packages)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("torch-") && name.ends_with(".dist-info") {
            return fs::read_to_string(path.join("METADATA"));
        }
    }
    Err(Error::other(format!("{}: no torch-*.dist-info beside it", torch.display())))
}

/// Returns the whole numbers of a dotted version, up to the first part that is not a number.
fn numbers(version: &str) -> Vec<i32> {
    version
        .split('.')
        .map_while(|it| it.get(..it.find(|c: char| !c.is_ascii_digit()).unwrap_or(it.len()))?.parse().ok())
        .collect()
}

/// The list that `torch.cuda.get_arch_list()` shows: a plain text such as `sm_75 sm_80 sm_90`. It ends with a zero, but
/// need not begin after one: compilers leave the zero of a text out that is only ever copied.
fn architectures(data: &[u8]) -> Vec<i32> {
    let number =
        |word: &str| word.rsplit_once("sm_")?.1.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse().ok();
    data.split(|it| *it == 0)
        .filter(|it| it.windows(3).any(|window| window == b"sm_"))
        .map(|it| String::from_utf8_lossy(it).split(' ').filter_map(number).collect::<Vec<i32>>())
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn libraries_inside_a_wheel_are_not_simulated_and_unknown_imports_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
        let link = |name: &str| {
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-Wl,--no-as-needed", "-o"]).arg(path(name)).arg(format!("-Wl,-soname,{name}"));
            cc
        };
        run(&mut link("libcudart.so.12"));
        run(&mut link("libcuthing-1f2e.so.0"));
        run(link("libtorch.so").args([path("libcudart.so.12"), path("libcuthing-1f2e.so.0")]));
        let libraries = table::libraries(table::LIBRARIES).unwrap();
        let with = imports(&[path("libtorch.so"), path("libcuthing-1f2e.so.0")], &libraries).unwrap();
        assert_eq!(with.keys().collect::<Vec<_>>(), ["libcudart"]);
        let without = imports(&[path("libtorch.so")], &libraries).map(|_| ()).unwrap_err().to_string();
        assert!(without.contains("libcuthing-1f2e.so.0, which nobody simulates"), "{without}");
    }

    #[test]
    fn the_list_of_architectures_is_found_behind_whatever_stands_before_it() {
        let data = b"asm_1\0from_handle(string ipc_hsm_70 sm_75 sm_90a compute_90\0sm_count\0";
        assert_eq!(architectures(data), [70, 75, 90]);
        assert_eq!(architectures(b"sm_\xff sm_80\0none"), [80]);
        assert_eq!(architectures(b"nothing of the kind"), Vec::<i32>::new());
    }
}

//! The reviewed table of stubs: which library answers "not supported" how, and which stub writes which result.

use std::io::{self, Error};

/// The libraries that PyTorch's wheel imports from, and NVML.
pub(crate) const LIBRARIES: &str = include_str!("../tables/libraries.txt");
/// Public names of the driver API that no program here links with, but that some resolve at run time.
pub(crate) const DRIVER_NAMES: &str = include_str!("../tables/driver.txt");
/// Public names of the other libraries: what PyTorch does not import, other packages may.
pub(crate) const PUBLIC_NAMES: &str = include_str!("../tables/public.txt");
/// Public names of NVML.
pub(crate) const NVML_NAMES: &str = include_str!("../tables/nvml.txt");

/// How many arguments of a function its stub can name.
pub(crate) const ARGUMENTS: usize = 24;

/// One effect of a stub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Stands for a kernel: on the stream that an argument names, or that was set for its handle, the first argument.
    Work(Option<usize>),
    /// Sets the handle's stream to the one that an argument names.
    Stream(usize),
    /// Writes a new handle through an argument.
    Handle(usize),
    /// Frees the handle that is an argument.
    Free(usize),
    Int(usize, i64),
    Size(usize, i64),
    /// Writes the product of two other arguments: a workspace of so many values, as `int`.
    Elements(usize, usize, usize),
    /// The same in bytes, 8 a value, as `size_t`.
    Bytes(usize, usize, usize),
    /// Writes so many bytes of zeroes through an argument: a result that nothing was computed for.
    Zero(usize, i64),
    Text(usize),
    /// Writes one cublasLt heuristic result.
    Heuristic(usize),
    /// Answers this number instead of 0.
    Returns(i64),
    /// Answers a text.
    ReturnsText,
}

impl Effect {
    /// Whether the caller gets something from it.
    fn gives(&self) -> bool {
        !matches!(self, Self::Work(_) | Self::Stream(_) | Self::Free(_))
    }
}

/// Whether functions with such names return something to their callers: a stub for them must do more than succeed.
fn promises(pattern: &str) -> bool {
    ["Get", "Create", "Query", "Alloc", "?dot", "Version", "ufferSize"].iter().any(|it| pattern.contains(it))
}

#[derive(Debug)]
pub(crate) struct Library {
    /// The soname's stem, such as `libcublas`.
    pub(crate) stem: String,
    /// The answer of an unlisted function.
    pub(crate) unsupported: i64,
    /// How unversioned imports from this library begin.
    prefixes: Vec<String>,
    rules: Vec<(String, Vec<Effect>)>,
}

impl Library {
    /// Returns what a function of the library does; `None` if it was not reviewed.
    pub(crate) fn effects(&self, name: &str) -> Option<&[Effect]> {
        self.rules.iter().find(|(pattern, _)| matches(pattern, name)).map(|(_, it)| it.as_slice())
    }

    /// Whether an unversioned import of that name is this library's.
    pub(crate) fn claims(&self, name: &str) -> bool {
        self.prefixes.iter().any(|it| name.starts_with(it.as_str()))
    }
}

/// The public names of one library.
#[derive(Debug)]
pub(crate) struct Public {
    /// The soname's stem, such as `libcublas`.
    pub(crate) stem: String,
    /// The soname, for wheels that do not import the library.
    soname: Option<String>,
    pub(crate) names: Vec<String>,
}

impl Public {
    /// Returns the soname beside a CUDA of that major version; `None` where only a wheel names it.
    pub(crate) fn soname(&self, cuda: i32) -> Option<String> {
        self.soname.as_ref().map(|it| it.replace("{cuda}", &cuda.to_string()))
    }
}

/// Reads the table of public names: `[stem soname]`, and names below it.
pub(crate) fn public(text: &str) -> Vec<Public> {
    let mut all: Vec<Public> = Vec::new();
    for line in text.lines().filter(|it| !it.starts_with('#')) {
        if let Some(head) = line.strip_prefix('[') {
            let mut words = head.trim_end_matches(']').split(' ').map(str::to_owned);
            let stem = words.next().unwrap_or_default();
            all.push(Public { stem, soname: words.next(), names: Vec::new() });
        } else if let Some(last) = all.last_mut() {
            last.names.extend(line.split_whitespace().map(str::to_owned));
        }
    }
    all
}

/// Reads the table.
pub(crate) fn libraries(text: &str) -> io::Result<Vec<Library>> {
    let mut libraries: Vec<Library> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let wrong = || Error::other(format!("line {} of the table of libraries: {line}", number + 1));
        if let Some(head) = line.strip_prefix('[') {
            libraries.push(head_of(head.trim_end_matches(']')).ok_or_else(wrong)?);
        } else if let Some((patterns, effects)) = line.split_once(':') {
            let library = libraries.last_mut().ok_or_else(wrong)?;
            let effects = effects.split_whitespace().filter(|it| *it != "ok").map(effect).collect::<Option<Vec<_>>>();
            let effects = effects.ok_or_else(wrong)?;
            for pattern in patterns.split_whitespace() {
                if promises(pattern) && !effects.iter().any(Effect::gives) {
                    return Err(wrong());
                }
                library.rules.push((pattern.to_owned(), effects.clone()));
            }
        } else if !line.is_empty() {
            return Err(wrong());
        }
    }
    Ok(libraries)
}

fn head_of(text: &str) -> Option<Library> {
    let mut words = text.split_whitespace();
    let stem = words.next()?.to_owned();
    let (mut unsupported, mut prefixes) = (None, Vec::new());
    for (key, value) in words.filter_map(|it| it.split_once('=')) {
        match key {
            "unsupported" => unsupported = value.parse().ok(),
            "prefix" => prefixes.extend(value.split(',').map(str::to_owned)),
            _ => return None,
        }
    }
    Some(Library { stem, unsupported: unsupported?, prefixes, rules: Vec::new() })
}

fn effect(text: &str) -> Option<Effect> {
    let (text, value) = text.split_once('=').map_or((text, None), |(text, value)| (text, Some(value)));
    let argument = |text: &str| text.parse::<usize>().ok().filter(|it| *it < ARGUMENTS);
    let product = value.and_then(|it| it.split_once('*')).and_then(|(a, b)| Some((argument(a)?, argument(b)?)));
    let value = value.and_then(|it| it.parse::<i64>().ok());
    let (word, at) = text.split_once('@').map_or((text, None), |(word, at)| (word, argument(at)));
    if let Some((a, b)) = product {
        return match (word, at) {
            ("elements", Some(at)) => Some(Effect::Elements(at, a, b)),
            ("bytes", Some(at)) => Some(Effect::Bytes(at, a, b)),
            _ => None,
        };
    }
    Some(match (word, at, value) {
        ("work", at, None) => Effect::Work(at),
        ("stream", Some(at), None) => Effect::Stream(at),
        ("handle", Some(at), None) => Effect::Handle(at),
        ("free", Some(at), None) => Effect::Free(at),
        ("int", Some(at), Some(value)) => Effect::Int(at, value),
        ("size", Some(at), Some(value)) => Effect::Size(at, value),
        ("zero", Some(at), Some(bytes)) => Effect::Zero(at, bytes),
        ("text", Some(at), None) => Effect::Text(at),
        ("heuristic", Some(at), None) => Effect::Heuristic(at),
        ("returns", None, Some(value)) => Effect::Returns(value),
        ("returns-text", None, None) => Effect::ReturnsText,
        _ => return None,
    })
}

/// Whether a name matches a pattern, in which `?` stands for one character. There is no wildcard for several, so that
/// no rule covers an unforeseen function.
fn matches(pattern: &str, name: &str) -> bool {
    pattern.chars().count() == name.chars().count()
        && pattern.chars().zip(name.chars()).all(|(it, own)| it == '?' || it == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        assert!(matches("cublas?gemm_v2", "cublasSgemm_v2"));
        assert!(!matches("cublas?gemm_v2", "cublasSgemm_v2_64"));
        assert!(!matches("cublas?gemm_v2", "cublasGemm_v2") && !matches("a", ""));
    }

    #[test]
    fn the_table_parses_and_a_line_without_a_rule_is_refused() {
        let table = libraries(LIBRARIES).unwrap();
        let blas = table.iter().find(|it| it.stem == "libcublas").unwrap();
        assert_eq!(blas.effects("cublasSgemm_v2"), Some([Effect::Work(None)].as_slice()));
        assert_eq!(blas.effects("cublasNobodyKnows"), None);
        assert!(libraries("[libx unsupported=1]\nxCreate: handle").is_err());
        assert!(libraries("xCreate: handle@0").is_err());
    }

    #[test]
    fn a_function_with_an_output_cannot_have_the_rule_ok() {
        let accepts = |rule: &str| libraries(&format!("[libx unsupported=1]\n{rule}")).is_ok();
        assert!(accepts("xSetStream: stream@1") && accepts("xGetStream: int@1=0") && accepts("xDestroy: free@0"));
        assert!(
            accepts("x_bufferSize: elements@5=1*2")
                && accepts("x_bufferSize: bytes@5=3*3")
                && !accepts("x_bufferSize: ok")
        );
        assert!(
            !accepts("x_bufferSize: bytes@5=3") && !accepts("x_bufferSize: bytes=1*2") && !accepts("x: int@1=1*99")
        );
        assert!(!accepts("xGetStream: ok") && !accepts("xSet xCreate: ok") && !accepts("xAlgoQuery: work"));
    }
}

//! A pickler for tests: values as opcodes of any protocol from 2 on, equal texts and shared frames memoised as Python
//! does.

use std::collections::HashMap;

/// The value as Python has it.
#[derive(Clone, Debug)]
pub(crate) enum Py {
    Int(i64),
    Bool(bool),
    Float(f64),
    Text(String),
    Pair(i64, i64),
    List(Vec<Self>),
    Dict(Vec<(&'static str, Self)>),
    /// Written once, and then referred to by its number.
    Shared(u32, Box<Self>),
}

impl From<i64> for Py {
    fn from(it: i64) -> Self {
        Self::Int(it)
    }
}

impl From<&str> for Py {
    fn from(it: &str) -> Self {
        Self::Text(it.to_owned())
    }
}

/// The bytes of a value.
pub(crate) fn pickle(protocol: u8, it: &Py) -> Vec<u8> {
    let mut out =
        Writer { bytes: vec![0x80, protocol], protocol, texts: HashMap::new(), shared: HashMap::new(), memo: 0 };
    out.value(it);
    out.bytes.push(b'.');
    out.bytes
}

struct Writer {
    bytes: Vec<u8>,
    protocol: u8,
    texts: HashMap<String, u32>,
    shared: HashMap<u32, u32>,
    memo: u32,
}

impl Writer {
    fn value(&mut self, it: &Py) {
        match it {
            Py::Int(it) => self.int(*it),
            Py::Bool(it) => self.bytes.push(if *it { 0x88 } else { 0x89 }),
            Py::Float(it) => {
                self.bytes.push(b'G');
                self.bytes.extend(it.to_be_bytes());
            }
            Py::Text(it) => self.text(it),
            Py::Pair(a, b) => {
                self.int(*a);
                self.int(*b);
                self.bytes.push(0x86);
                self.memoise();
            }
            Py::List(items) => {
                self.bytes.push(b']');
                self.memoise();
                for some in items.chunks(1000) {
                    self.some(some, b'a', b'e', Self::value);
                }
            }
            Py::Dict(items) => {
                self.bytes.push(b'}');
                self.memoise();
                self.some(items, b's', b'u', |out, (key, value)| {
                    out.text(key);
                    out.value(value);
                });
            }
            Py::Shared(number, it) => {
                if let Some(at) = self.shared.get(number) {
                    self.get(*at);
                } else {
                    self.shared.insert(*number, self.memo);
                    self.value(it);
                }
            }
        }
    }

    fn some<T>(&mut self, items: &[T], one: u8, many: u8, how: impl Fn(&mut Self, &T)) {
        match items {
            [] => {}
            [it] => {
                how(self, it);
                self.bytes.push(one);
            }
            _ => {
                self.bytes.push(b'(');
                for it in items {
                    how(self, it);
                }
                self.bytes.push(many);
            }
        }
    }

    fn int(&mut self, it: i64) {
        if let Ok(it) = u8::try_from(it) {
            self.bytes.extend([b'K', it]);
        } else if let Ok(it) = i32::try_from(it) {
            self.bytes.push(b'J');
            self.bytes.extend(it.to_le_bytes());
        } else {
            self.bytes.extend([0x8a, 8]);
            self.bytes.extend(it.to_le_bytes());
        }
    }

    fn text(&mut self, it: &str) {
        if let Some(at) = self.texts.get(it) {
            return self.get(*at);
        }
        let length = u32::try_from(it.len()).unwrap().to_le_bytes();
        if self.protocol >= 4 && it.len() < 256 {
            self.bytes.extend([0x8c, length[0]]);
        } else {
            self.bytes.push(b'X');
            self.bytes.extend(length);
        }
        self.bytes.extend(it.as_bytes());
        self.texts.insert(it.to_owned(), self.memo);
        self.memoise();
    }

    fn memoise(&mut self) {
        let at = self.memo;
        self.memo += 1;
        match u8::try_from(at) {
            _ if self.protocol >= 4 => self.bytes.push(0x94),
            Ok(at) => self.bytes.extend([b'q', at]),
            Err(_) => {
                self.bytes.push(b'r');
                self.bytes.extend(at.to_le_bytes());
            }
        }
    }

    fn get(&mut self, at: u32) {
        if let Ok(at) = u8::try_from(at) {
            self.bytes.extend([b'h', at]);
        } else {
            self.bytes.push(b'j');
            self.bytes.extend(at.to_le_bytes());
        }
    }
}

/// A frame of a job's, which all who have it share.
pub(crate) fn frame(line: u32) -> Py {
    let fields = vec![("name", Py::from("step")), ("filename", "train.py".into()), ("line", i64::from(line).into())];
    Py::Shared(line, Box::new(Py::Dict(fields)))
}

/// A snapshot with a segment, of which blocks were taken and given back so often, each from a stack so deep.
pub(crate) fn snapshot(times: i64, depth: u32) -> Py {
    let stack = |first: i64| Py::List((0..depth).map(|it| frame(u32::try_from(first % 7).unwrap() + it)).collect());
    let base = 0x7f00_0000_0000;
    let event = |action: &str, size: i64, at: i64| {
        Py::Dict(vec![
            ("action", action.into()),
            ("addr", (base + at % 4 * 4096).into()),
            ("size", size.into()),
            ("stream", 0.into()),
            ("time_us", (1_700_000_000_000_000 + at).into()),
            ("new_in_2_99", Py::List(vec![Py::Float(0.5), Py::Bool(true)])),
            ("pool_id", Py::Pair(0, 0)),
            ("frames", stack(at)),
        ])
    };
    let first = event("segment_alloc", 2 << 20, 0);
    let pairs = (0..times).flat_map(|it| {
        [event("alloc", 1000, it), event("free_requested", 1000, it), event("free_completed", 1000, it)]
    });
    let block = |at: i64, size: i64, state: &str| {
        Py::Dict(vec![
            ("address", (base + at).into()),
            ("size", size.into()),
            ("requested_size", (size - 24).into()),
            ("state", state.into()),
            ("frames", stack(at)),
        ])
    };
    let blocks = vec![
        block(0, 1024, "active_allocated"),
        block(1024, 3072, "active_pending_free"),
        block(4096, (2 << 20) - 4096, "inactive"),
    ];
    let segment = Py::Dict(vec![
        ("device", 0.into()),
        ("address", base.into()),
        ("total_size", (2 << 20).into()),
        ("allocated_size", 1024.into()),
        ("active_size", 4096.into()),
        ("requested_size", 1000.into()),
        ("stream", 0.into()),
        ("segment_type", "small".into()),
        ("segment_pool_id", Py::Pair(0, 1)),
        ("is_expandable", Py::Bool(false)),
        ("frames", Py::List(Vec::new())),
        ("blocks", Py::List(blocks)),
    ]);
    let note = |stage: &str| {
        let fields =
            vec![("stage", stage.into()), ("name", "step".into()), ("device", 0.into()), ("time_us", 7.into())];
        Py::Dict(fields)
    };
    let settings = vec![
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64".into()),
        ("max_split_size", (64 << 20).into()),
        ("garbage_collection_threshold", Py::Float(0.5)),
        ("expandable_segments", Py::Bool(false)),
        ("roundup_power2_divisions", Py::Dict(vec![("1", 0.into()), ("32768", 4.into())])),
    ];
    Py::Dict(vec![
        ("segments", Py::List(vec![segment])),
        ("device_traces", Py::List(vec![Py::List([first].into_iter().chain(pairs).collect()), Py::List(Vec::new())])),
        ("allocator_settings", Py::Dict(settings)),
        ("external_annotations", Py::List(vec![note("START"), note("END")])),
    ])
}

//! A snapshot with two devices, streams, pools, pending and stuck memory, and a trace with a peak and a failed request.

use super::writer::Py;

const MIB: i64 = 1 << 20;
const BASE: i64 = 0x7f00_0000_0000;

/// File, line and function of each frame.
const FRAMES: [(&str, i64, &str); 8] = [
    ("/home/ada/train.py", 80, "<module>"),
    ("/home/ada/train.py", 40, "train"),
    ("/home/ada/model.py", 12, "forward"),
    ("/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", 134, "forward"),
    ("/venv/lib/python3.12/site-packages/torch/optim/adam.py", 171, "_init_group"),
    ("/home/ada/data.py", 7, "load"),
    ("??", 0, "at::detail::empty_generic(c10::ArrayRef<long>)"),
    ("/home/ada/model.py", 30, "attention"),
];

/// Stacks, the innermost frame first, by their places among the frames.
const PARAMETERS: &[usize] = &[3, 2, 0];
const ACTIVATIONS: &[usize] = &[6, 2, 1, 0];
const SCORES: &[usize] = &[6, 7, 2, 1, 0];
const STATE: &[usize] = &[4, 1, 0];
const BATCH: &[usize] = &[5, 1, 0];
const NATIVE: &[usize] = &[6];

pub(crate) fn stack(frames: &[usize], names: &[(&'static str, i64, &'static str)]) -> Py {
    let frame = |place: &usize| {
        let (file, line, name) = names[*place];
        let fields = vec![("name", Py::from(name)), ("filename", file.into()), ("line", line.into())];
        Py::Shared(u32::try_from(*place).unwrap(), Box::new(Py::Dict(fields)))
    };
    Py::List(frames.iter().map(frame).collect())
}

struct Story {
    names: Vec<(&'static str, i64, &'static str)>,
    events: Vec<Py>,
}

impl Story {
    fn event(&mut self, action: &str, address: i64, size: i64, frames: &[usize]) {
        let at = 1_700_000_000_000_000 + 1000 * i64::try_from(self.events.len()).unwrap();
        let mut fields = vec![
            ("action", Py::from(action)),
            ("size", size.into()),
            ("stream", 0.into()),
            ("time_us", at.into()),
            ("frames", stack(frames, &self.names)),
        ];
        fields.push(if action == "oom" { ("device_free", (3 * MIB).into()) } else { ("addr", address.into()) });
        self.events.push(Py::Dict(fields));
    }

    fn block(&self, size: i64, state: &str, frames: &[usize]) -> Py {
        Py::Dict(vec![
            ("size", size.into()),
            ("requested_size", (size - 100).into()),
            ("state", state.into()),
            ("frames", stack(frames, &self.names)),
        ])
    }
}

/// A segment; its blocks stand one behind the other.
fn segment(place: i64, (device, stream, pool): (i64, i64, i64), is_small: bool, blocks: Vec<(i64, Py)>) -> Py {
    let begin = BASE + place * 64 * MIB;
    let total = blocks.iter().map(|it| it.0).sum::<i64>();
    let mut address = begin;
    let placed = blocks.into_iter().map(|(size, block)| {
        let Py::Dict(mut fields) = block else { panic!("a block is a dictionary") };
        fields.push(("address", address.into()));
        address += size;
        Py::Dict(fields)
    });
    let placed: Vec<Py> = placed.collect();
    Py::Dict(vec![
        ("device", device.into()),
        ("address", begin.into()),
        ("total_size", total.into()),
        ("stream", stream.into()),
        ("segment_type", if is_small { "small" } else { "large" }.into()),
        ("segment_pool_id", Py::Pair(0, pool)),
        ("is_expandable", Py::Bool(false)),
        ("frames", Py::List(Vec::new())),
        ("blocks", Py::List(placed)),
    ])
}

/// The snapshot.
pub(crate) fn busy() -> Py {
    busy_with(&FRAMES)
}

/// The same of a program whose frames have these names, of which there are eight.
pub(crate) fn busy_with(names: &[(&'static str, i64, &'static str)]) -> Py {
    let mut story = Story { names: names.to_vec(), events: Vec::new() };
    for (place, size) in [(0, 64), (1, 20), (2, 32), (3, 2)] {
        story.event("segment_alloc", BASE + place * 64 * MIB, size * MIB, PARAMETERS);
    }
    story.event("alloc", BASE, 40 * MIB - 100, PARAMETERS);
    for step in 0..30 {
        for layer in 0..6 {
            let frames = if layer % 3 == 2 { SCORES } else { ACTIVATIONS };
            story.event("alloc", BASE + (41 + layer) * MIB, MIB + step * 10_000, frames);
        }
        if step == 20 {
            story.event("alloc", BASE + 64 * MIB, 18 * MIB, SCORES);
            story.event("oom", 0, 48 * MIB, SCORES);
            story.event("free_requested", BASE + 64 * MIB, 18 * MIB, &[]);
            story.event("free_completed", BASE + 64 * MIB, 18 * MIB, &[]);
        }
        for layer in (0..6).rev() {
            story.event("free_requested", BASE + (41 + layer) * MIB, MIB + step * 10_000, &[]);
            story.event("free_completed", BASE + (41 + layer) * MIB, MIB + step * 10_000, &[]);
        }
    }
    story.event("alloc", BASE + 48 * MIB, 8 * MIB - 100, STATE);
    let block = |size, state, frames| (size, story.block(size, state, frames));
    let (live, free, pending) = ("active_allocated", "inactive", "active_pending_free");
    let segments = vec![
        segment(
            0,
            (0, 0, 0),
            false,
            vec![
                block(40 * MIB, live, PARAMETERS),
                block(8 * MIB, free, &[]),
                block(8 * MIB, live, STATE),
                block(8 * MIB, free, &[]),
            ],
        ),
        segment(1, (0, 0, 0), false, vec![block(20 * MIB, free, &[])]),
        segment(2, (0, 7, 1), false, vec![block(16 * MIB, live, BATCH), block(16 * MIB, free, &[])]),
        segment(
            3,
            (0, 0, 0),
            true,
            vec![block(MIB, live, NATIVE), block(MIB / 2, pending, BATCH), block(MIB / 2, free, &[])],
        ),
        segment(4, (1, 0, 0), false, vec![block(6 * MIB, live, BATCH), block(14 * MIB, free, &[])]),
    ];
    Py::Dict(vec![
        ("segments", Py::List(segments)),
        ("device_traces", Py::List(vec![Py::List(story.events), Py::List(Vec::new())])),
        ("allocator_settings", Py::Dict(vec![("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8".into())])),
    ])
}

//! Encodes lines as a probe writes them, without serde: integers, escaped text, nothing longer than a line may be.
//!
//! Whatever the job describes, names or raises, a line stays under [`LINE_MAX`](super::LINE_MAX): every text has a
//! limit, the command line has a total one, and the sum of all, with everything escaped, fits.

use super::{
    Counters, Device, Edge, FRAMES_MAX, Hello, Line, Oom, Parts,
    json::{List, Object, digits, quoted},
    limits::{ARGUMENTS_MAX, ARGV_MAX, DEVICE_TEXT_MAX, DEVICES_MAX, MESSAGE_MAX, NAME_MAX, SITE_TEXT_MAX, TEXT_MAX},
    sites,
};

/// Appends one line, with its newline.
pub fn encode(line: &Line, out: &mut String) {
    match line {
        Line::Hello(it) => hello(it, out),
        Line::Sample(it) => {
            let values = it.counters.values();
            let values = Counters::NAMES.iter().zip(values).filter_map(|(name, value)| Some((*name, value?)));
            sample(out, it.seq, (it.at_us, it.device, it.edge, it.step), values, it.parts.as_ref());
        }
        Line::Mark(it) => Object::open(out, "mark")
            .some("seq", it.seq)
            .number("at_us", it.at_us)
            .text("name", &it.name, NAME_MAX)
            .signed("value", it.value)
            .close(),
        Line::Oom(it) => oom(it, out),
        Line::OomMessage(it) => Object::open(out, "oom_message")
            .some("seq", it.seq)
            .number("at_us", it.at_us)
            .number("device", it.device.into())
            .text("message", &it.message, MESSAGE_MAX)
            .close(),
        Line::Sites(it) => sites::encode(it, out),
        Line::Lost(it) => Object::open(out, "lost")
            .some("seq", it.seq)
            .number("at_us", it.at_us)
            .number("samples", it.samples)
            .some("failures", it.failures)
            .close(),
        Line::History(it) => Object::open(out, "history")
            .number("from_us", it.from_us)
            .number("to_us", it.to_us)
            .number("stride", it.stride)
            .close(),
        Line::Live(it) => Object::open(out, "live").number("seq", it.seq).close(),
        Line::Bye(it) => Object::open(out, "bye")
            .some("seq", it.seq)
            .number("at_us", it.at_us)
            .text("reason", &it.reason, NAME_MAX)
            .close(),
        Line::Refused(it) => Object::open(out, "refused").text("reason", &it.reason, NAME_MAX).close(),
        Line::Unknown => Object::open(out, "unknown").close(),
    }
}

fn oom(it: &Oom, out: &mut String) {
    let mut object = Object::open(out, "oom")
        .some("seq", it.seq)
        .number("at_us", it.at_us)
        .number("device", it.device.into())
        .some("step", it.step)
        .some("tried", it.tried)
        .some("device_free", it.device_free)
        .some("limit", it.limit)
        .some("largest_free", it.largest_free)
        .pairs("blocks", &it.blocks)
        .some("other_blocks", it.other_blocks)
        .some("other_bytes", it.other_bytes);
    if !it.frames.is_empty() {
        object = object.list("frames", it.frames.iter().take(FRAMES_MAX), sites::frame);
    }
    if let Some(library) = &it.library {
        object.name("library");
        sites::frame(library, List { out: object.out });
    }
    object
        .some_text("phase", it.phase.as_deref(), SITE_TEXT_MAX)
        .some("again_bytes", it.again_bytes)
        .some_text("message", it.message.as_deref(), MESSAGE_MAX)
        .close();
}

/// Appends a `sites` line whose fields are already encoded, such as `"why":"asked",…`.
pub(crate) fn encode_sites(seq: u64, at_us: u64, fields: &str, out: &mut String) {
    let object = Object::open(out, "sites").number("seq", seq).number("at_us", at_us);
    object.out.push(',');
    object.out.push_str(fields);
    object.close();
}

/// Appends a sample's line.
pub(crate) fn sample<'a>(
    out: &mut String,
    seq: Option<u64>,
    (at_us, device, edge, step): (u64, u32, Edge, Option<u64>),
    values: impl Iterator<Item = (&'a str, u64)>,
    parts: Option<&Parts>,
) {
    let mut object = Object::open(out, "sample")
        .some("seq", seq)
        .number("at_us", at_us)
        .number("device", device.into())
        .word("edge", edge.name())
        .some("step", step);
    for (name, value) in values {
        object = object.number(name, value);
    }
    if let Some(parts) = parts {
        parts.encode(&mut object);
    }
    object.close();
}

fn hello(it: &Hello, out: &mut String) {
    let mut object = Object::open(out, "hello")
        .number("protocol", it.protocol.into())
        .text("probe", &it.probe, TEXT_MAX)
        .some_text("instance", it.instance.as_deref(), TEXT_MAX)
        .number("seq", it.seq)
        .number("pid", it.pid.into())
        .some("start_us", it.start_us)
        .some("attached_us", it.attached_us)
        .some("attached_step", it.attached_step)
        .text("host", &it.host, TEXT_MAX);
    object.name("argv");
    arguments(&it.argv, object.out);
    object = object
        .some_text("cwd", it.cwd.as_deref(), TEXT_MAX)
        .some_text("framework", it.framework.as_deref(), TEXT_MAX)
        .some_text("framework_version", it.framework_version.as_deref(), TEXT_MAX)
        .some_text("backend", it.backend.as_deref(), TEXT_MAX)
        .some_text("allocator_conf", it.allocator_conf.as_deref(), TEXT_MAX)
        .some_text("run", it.run.as_deref(), TEXT_MAX)
        .some("restart", it.restart)
        .some("rank", it.rank)
        .some("local_rank", it.local_rank)
        .some("world_size", it.world_size)
        .some_text("master", it.master.as_deref(), NAME_MAX);
    if let Some(job) = &it.job {
        object.name("job");
        object.out.push_str("{\"scheduler\":");
        quoted(&job.scheduler, TEXT_MAX, object.out);
        object.out.push_str(",\"id\":");
        quoted(&job.id, TEXT_MAX, object.out);
        object.out.push('}');
    }
    object =
        object.some_text("sites", it.sites.as_deref(), TEXT_MAX).some_text("fitted", it.fitted.as_deref(), NAME_MAX);
    object.name("devices");
    devices(&it.devices, object.out);
    object.number("monotonic_us", it.monotonic_us).number("unix_us", it.unix_us).close();
}

fn arguments(argv: &[String], out: &mut String) {
    let mut left = ARGV_MAX;
    out.push('[');
    for (index, argument) in argv.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if left == 0 || index == ARGUMENTS_MAX {
            quoted("…", TEXT_MAX, out);
            break;
        }
        quoted(argument, left.min(TEXT_MAX), out);
        left = left.saturating_sub(argument.len().min(TEXT_MAX));
    }
    out.push(']');
}

fn devices(devices: &[Device], out: &mut String) {
    out.push('[');
    for (index, device) in devices.iter().take(DEVICES_MAX).enumerate() {
        out.push_str(if index > 0 { ",{\"ordinal\":" } else { "{\"ordinal\":" });
        digits(device.ordinal.into(), out);
        Object { out }
            .some_text("uuid", device.uuid.as_deref(), DEVICE_TEXT_MAX)
            .some_text("name", device.name.as_deref(), DEVICE_TEXT_MAX)
            .some("total", device.total)
            .out
            .push('}');
    }
    out.push(']');
}

//! Lines by hand, as a probe writes them: integers, escaped text, nothing longer than a line may be.
//!
//! Whatever is described, named or thrown, a line stays under [`LINE_MAX`](super::LINE_MAX): every text has a
//! limit, the command line has one as a whole, and the sum of all, escaped at its worst, fits.

use super::{
    Counters, Device, Edge, GROUPS_MAX, Hello, Line,
    limits::{ARGUMENTS_MAX, ARGV_MAX, DEVICE_TEXT_MAX, DEVICES_MAX, MESSAGE_MAX, NAME_MAX, TEXT_MAX},
    sites,
};
use crate::reading::Reading;

/// Appends one line, its newline included.
pub fn encode(line: &Line, out: &mut String) {
    match line {
        Line::Hello(it) => hello(it, out),
        Line::Sample(it) => {
            let values = it.counters.values();
            let values = Counters::NAMES.iter().zip(values).filter_map(|(name, value)| Some((*name, value?)));
            sample(out, it.seq, (it.at_us, it.device, it.edge, it.step), values);
        }
        Line::Mark(it) => Object::open(out, "mark")
            .some("seq", it.seq)
            .number("at_us", it.at_us)
            .text("name", &it.name, NAME_MAX)
            .signed("value", it.value)
            .close(),
        Line::Oom(it) => Object::open(out, "oom")
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
            .some("other_bytes", it.other_bytes)
            .some_text("message", it.message.as_deref(), MESSAGE_MAX)
            .close(),
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

/// Appends a line `sites` whose fields are written already, as `"why":"asked",…`.
pub(crate) fn encode_sites(seq: u64, at_us: u64, fields: &str, out: &mut String) {
    let object = Object::open(out, "sites").number("seq", seq).number("at_us", at_us);
    object.out.push(',');
    object.out.push_str(fields);
    object.close();
}

/// Appends a sample's line straight from the form it has in the queue.
pub(crate) fn encode_reading(seq: u64, it: &Reading, out: &mut String) {
    sample(out, Some(seq), (it.at_us, it.device, it.edge, it.step()), it.named_values());
}

fn sample<'a>(
    out: &mut String,
    seq: Option<u64>,
    (at_us, device, edge, step): (u64, u32, Edge, Option<u64>),
    values: impl Iterator<Item = (&'a str, u64)>,
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
        .some("world_size", it.world_size);
    if let Some(job) = &it.job {
        object.name("job");
        object.out.push_str("{\"scheduler\":");
        quoted(&job.scheduler, TEXT_MAX, object.out);
        object.out.push_str(",\"id\":");
        quoted(&job.id, TEXT_MAX, object.out);
        object.out.push('}');
    }
    object = object.some_text("sites", it.sites.as_deref(), TEXT_MAX);
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

/// An object that has its first field.
pub(super) struct Object<'a> {
    pub(super) out: &'a mut String,
}

/// The place of an item in a list.
pub(super) struct List<'a> {
    pub(super) out: &'a mut String,
}

impl<'a> List<'a> {
    /// An object whose first field is a text.
    pub(super) fn object(self, name: &str, value: &str, limit: usize) -> Object<'a> {
        self.out.push_str("{\"");
        self.out.push_str(name);
        self.out.push_str("\":");
        quoted(value, limit, self.out);
        Object { out: self.out }
    }

    pub(super) fn number(self, value: u64) {
        digits(value, self.out);
    }
}

impl<'a> Object<'a> {
    pub(super) fn open(out: &'a mut String, kind: &str) -> Self {
        out.push_str("{\"type\":\"");
        out.push_str(kind);
        out.push('"');
        Self { out }
    }

    pub(super) fn name(&mut self, name: &str) {
        self.out.push_str(",\"");
        self.out.push_str(name);
        self.out.push_str("\":");
    }

    pub(super) fn number(mut self, name: &str, value: u64) -> Self {
        self.name(name);
        digits(value, self.out);
        self
    }

    pub(super) fn some(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(name, value),
            None => self,
        }
    }

    /// What there is of them, and as many as are allowed.
    pub(super) fn pairs(mut self, name: &str, pairs: &[(u64, u64)]) -> Self {
        for (index, (one, other)) in pairs.iter().take(GROUPS_MAX).enumerate() {
            if index == 0 {
                self.name(name);
            }
            self.out.push(if index == 0 { '[' } else { ',' });
            self.out.push('[');
            digits(*one, self.out);
            self.out.push(',');
            digits(*other, self.out);
            self.out.push(']');
        }
        if !pairs.is_empty() {
            self.out.push(']');
        }
        self
    }

    /// As many items as there are; one that writes nothing is left out.
    pub(super) fn list<T>(
        mut self,
        name: &str,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(T, List<'_>),
    ) -> Self {
        self.name(name);
        self.out.push('[');
        for item in items {
            let before = self.out.len();
            if !self.out.ends_with('[') {
                self.out.push(',');
            }
            let begun = self.out.len();
            write(item, List { out: self.out });
            if self.out.len() == begun {
                self.out.truncate(before);
            }
        }
        self.out.push(']');
        self
    }

    pub(super) fn truth(mut self, name: &str, value: bool) -> Self {
        self.name(name);
        self.out.push_str(if value { "true" } else { "false" });
        self
    }

    /// Ends an object inside of a line.
    pub(super) fn end(self) {
        self.out.push('}');
    }

    fn signed(mut self, name: &str, value: Option<i64>) -> Self {
        if let Some(value) = value {
            self.name(name);
            if value < 0 {
                self.out.push('-');
            }
            digits(value.unsigned_abs(), self.out);
        }
        self
    }

    /// A word of the wire's own, which needs no escape.
    fn word(mut self, name: &str, word: &str) -> Self {
        self.name(name);
        self.out.push('"');
        self.out.push_str(word);
        self.out.push('"');
        self
    }

    pub(super) fn text(mut self, name: &str, text: &str, limit: usize) -> Self {
        self.name(name);
        quoted(text, limit, self.out);
        self
    }

    pub(super) fn some_text(self, name: &str, text: Option<&str>, limit: usize) -> Self {
        match text {
            Some(text) => self.text(name, text, limit),
            None => self,
        }
    }

    pub(super) fn close(self) {
        self.out.push_str("}\n");
    }
}

/// A JSON string; text over the limit ends in an ellipsis.
fn quoted(text: &str, limit: usize, out: &mut String) {
    out.push('"');
    let mut bytes = 0;
    for c in text.chars() {
        bytes += c.len_utf8();
        if bytes > limit {
            out.push('…');
            break;
        }
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if u32::from(c) < 0x20 => {
                out.push_str("\\u00");
                out.push(if u32::from(c) < 0x10 { '0' } else { '1' });
                out.push(char::from_digit(u32::from(c) % 16, 16).unwrap_or('0'));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn digits(mut value: u64, out: &mut String) {
    let mut text = [b'0'; 20];
    let mut used = 0;
    for place in text.iter_mut().rev() {
        *place = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        used += 1;
        if value == 0 {
            break;
        }
    }
    out.extend(text.iter().skip(20 - used).map(|&it| char::from(it)));
}

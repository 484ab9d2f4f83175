//! The answer to `sites`: which lines of the job allocate what grows, and what holds it.

use super::{
    json::{List, Object},
    limits::{self, ACCOUNT_MAX, SITE_TEXT_MAX as TEXT_MAX},
};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// Most sites in one [`Sites`].
pub const SITES_MAX: usize = 16;

/// Most frames of a stack, steps of a path, owners and source lines in one [`Site`].
pub const PARTS_MAX: usize = 24;

/// Where live blocks come from that grow in number or in size, from comparing them over some steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Sites {
    /// Sequence number.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seq: Option<u64>,
    /// µs of `CLOCK_MONOTONIC`.
    pub at_us: u64,
    /// Why it was captured: `asked` by a user, `growth` that a viewer saw, `oom`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub why: String,
    /// Steps completed at the last comparison.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub step: Option<u64>,
    /// Steps from the first comparison to the last; 0 for the single one at an error.
    pub steps: u64,
    /// What grew, most first; at an error, what is live. Empty without growth.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "bounded"))]
    pub sites: Vec<Site>,
    /// Live blocks from before stacks were recorded, whose origin is unknown.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub older_blocks: Option<u64>,
    /// Their bytes.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub older_bytes: Option<u64>,
    /// How long all comparisons together paused the job, in µs.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub held_us: Option<u64>,
    /// The longest of these pauses, in µs.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub longest_us: Option<u64>,
    /// How long the search for holders paused the job, in µs.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub holders_us: Option<u64>,
    /// The longest of these pauses, in µs; absent if there was one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub holders_longest_us: Option<u64>,
    /// Approximate peak of host memory for the recorded stacks, in bytes.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub history_bytes: Option<u64>,
    /// Bytes that one run of the collector freed, if requested.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub collected_bytes: Option<u64>,
    /// What is missing, and why.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub trouble: Option<String>,
}

/// One call stack whose live blocks grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Site {
    /// Ordinal of the device.
    pub device: u32,
    /// The file of the innermost frame in user code. Empty for blocks without a Python stack, such as those of
    /// backward's threads and of libraries.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// Its function.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub function: String,
    /// The innermost library frame that this line called, if any.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub library: Option<Frame>,
    /// The whole stack, innermost first.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, PARTS_MAX>"))]
    pub frames: Vec<Frame>,
    /// Bytes of growth between the comparisons; at an error, live bytes.
    pub bytes: u64,
    /// Blocks of growth; 0 for one block that is reallocated larger.
    pub blocks: u64,
    /// Sizes and counts of its blocks, in bytes, largest total first.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, PARTS_MAX>"))]
    pub sizes: Vec<(u64, u64)>,
    /// Their stream.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub stream: Option<u64>,
    /// Their private pool, as in `1.0`; absent for the default one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub pool: Option<String>,
    /// Whether some blocks have no Python object that owns them; probably autograd holds those.
    pub autograd: bool,
    /// The tensors in them that Python knows.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, PARTS_MAX>"))]
    pub owners: Vec<Owner>,
    /// The holders of one of them, from the tensor outwards.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, PARTS_MAX>"))]
    pub holders: Vec<Holder>,
    /// The line that keeps it, if it was found.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub kept: Option<Place>,
    /// Other lines that may keep it instead; which of them ran is unknown.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, PARTS_MAX>"))]
    pub kept_or: Vec<Place>,
    /// The lines around `line`, and around the line that keeps, read by the probe at that moment.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, PARTS_MAX>"))]
    pub source: Vec<Place>,
}

/// One frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Frame {
    /// Its file.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// Its function.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub function: String,
}

/// Tensors of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Owner {
    /// Their shape.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::list::<_, _, PARTS_MAX>"))]
    pub shape: Vec<u64>,
    /// Their type, as in `float32`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub dtype: String,
    /// Whether they have a graph.
    pub grad: bool,
    /// Number of them.
    pub count: u64,
}

/// One step of a path of holders: a container, and how it refers to the previous object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Holder {
    /// How it refers to it: `item`, `key`, `attribute`, `global`, `local`, `cell`, `class`, `generator`, `traceback`,
    /// `cycle`, ….
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub by: String,
    /// The name it has it under, if any.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub name: Option<String>,
    /// The container's type.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub kind: Option<String>,
    /// Number of its items.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub items: Option<u64>,
    /// The function, for locals and cells.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub function: Option<String>,
    /// The file of its function or module; of an attribute, that of a method that mentions it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::some_text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub file: Option<String>,
    /// The current line of its frame, or the first line of its function or method, from 1.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub line: Option<u64>,
}

/// A line of source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Place {
    /// Its file; empty if it is the site's.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub file: String,
    /// Its number, from 1.
    pub line: u64,
    /// Its text.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "limits::text::<_, { limits::SITE_TEXT_MAX }>"))]
    pub text: String,
    /// Whether it is in a library instead of user code.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub library: bool,
}

#[cfg(feature = "serde")]
fn bounded<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Site>, D::Error> {
    limits::weighed(from, SITES_MAX, Site::weight)
}

#[cfg(feature = "serde")]
impl Site {
    /// Returns the approximate bytes of its texts.
    fn weight(&self) -> usize {
        let frames = self.frames.iter().map(|it| it.file.len() + it.function.len());
        let names = self.holders.iter().flat_map(|it| [&it.name, &it.kind, &it.function, &it.file]);
        let places = self.source.iter().chain(&self.kept).chain(&self.kept_or).map(|it| it.file.len() + it.text.len());
        frames.sum::<usize>() + names.flatten().map(String::len).sum::<usize>() + places.sum::<usize>()
    }
}

pub(super) fn encode(it: &Sites, out: &mut String) {
    let begun = out.len();
    Object::open(out, "sites")
        .some("seq", it.seq)
        .number("at_us", it.at_us)
        .text("why", &it.why, TEXT_MAX)
        .some("step", it.step)
        .number("steps", it.steps)
        .list("sites", it.sites.iter().take(SITES_MAX), |it, list| {
            if list.out.len() - begun < ACCOUNT_MAX {
                site(it, list);
            }
        })
        .some("older_blocks", it.older_blocks)
        .some("older_bytes", it.older_bytes)
        .some("held_us", it.held_us)
        .some("longest_us", it.longest_us)
        .some("holders_us", it.holders_us)
        .some("holders_longest_us", it.holders_longest_us)
        .some("history_bytes", it.history_bytes)
        .some("collected_bytes", it.collected_bytes)
        .some_text("trouble", it.trouble.as_deref(), TEXT_MAX)
        .close();
}

fn site(it: &Site, list: List<'_>) {
    let mut object = list
        .object("file", &it.file, TEXT_MAX)
        .number("line", it.line)
        .text("function", &it.function, TEXT_MAX)
        .list("frames", it.frames.iter().take(PARTS_MAX), frame)
        .number("device", it.device.into())
        .number("bytes", it.bytes)
        .number("blocks", it.blocks)
        .pairs("sizes", &it.sizes)
        .some("stream", it.stream)
        .some_text("pool", it.pool.as_deref(), TEXT_MAX)
        .truth("autograd", it.autograd);
    if !it.owners.is_empty() {
        object = object.list("owners", it.owners.iter().take(PARTS_MAX), |owner, list| {
            list.object("dtype", &owner.dtype, TEXT_MAX)
                .list("shape", owner.shape.iter().take(PARTS_MAX), |size, list| list.number(*size))
                .truth("grad", owner.grad)
                .number("count", owner.count)
                .end();
        });
    }
    if !it.holders.is_empty() {
        object = object.list("holders", it.holders.iter().take(PARTS_MAX), |it, list| {
            list.object("by", &it.by, TEXT_MAX)
                .some_text("name", it.name.as_deref(), TEXT_MAX)
                .some_text("type", it.kind.as_deref(), TEXT_MAX)
                .some("items", it.items)
                .some_text("function", it.function.as_deref(), TEXT_MAX)
                .some_text("file", it.file.as_deref(), TEXT_MAX)
                .some("line", it.line)
                .end();
        });
    }
    if let Some(library) = &it.library {
        object.name("library");
        frame(library, List { out: object.out });
    }
    if let Some(kept) = &it.kept {
        object.name("kept");
        place(kept, List { out: object.out });
    }
    if !it.kept_or.is_empty() {
        object = object.list("kept_or", it.kept_or.iter().take(PARTS_MAX), place);
    }
    if !it.source.is_empty() {
        object = object.list("source", it.source.iter().take(PARTS_MAX), place);
    }
    object.end();
}

pub(super) fn frame(it: &Frame, list: List<'_>) {
    list.object("file", &it.file, TEXT_MAX).number("line", it.line).text("function", &it.function, TEXT_MAX).end();
}

fn place(it: &Place, list: List<'_>) {
    let object = list.object("text", &it.text, TEXT_MAX).number("line", it.line).text("file", &it.file, TEXT_MAX);
    let object = if it.library { object.truth("library", true) } else { object };
    object.end();
}

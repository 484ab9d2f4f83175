//! A culprit as JSON: bytes and blocks per step. JSON escapes text from outside.

use super::{Culprit, Spot};
use serde_json::{Value, json};

impl Culprit {
    /// Fields: `file`, `line`, `function`, `text` (of the line that allocates), `leading` (`file`, `line` of the one to
    /// blame), `kept` (the same for the line that
    /// keeps, without the function; `null` if it was not found), `kept_or[]` (other lines that may keep it instead),
    /// `library` (the innermost library frame that the line calls), `bytes_per_step`, `blocks_per_step`, `graph` (the
    /// part of both that autograd holds; `null` without), `holders[]` (in words, from the tensor outwards), `sentence`,
    /// `advice`, `source[]` (`file`, `line`, `text`), `frames[]` (`file`, `line`, `function`, innermost first).
    pub fn json(&self) -> Value {
        let kept = |it: &Spot| json!({"file": it.file, "line": it.line, "text": text(it)});
        let frame = |it: &Spot| json!({"file": it.file, "line": it.line, "function": it.function});
        let graph = self.graph.map(|(bytes, blocks)| json!({"bytes_per_step": bytes, "blocks_per_step": blocks}));
        json!({
            "file": self.allocated.file,
            "line": self.allocated.line,
            "function": self.allocated.function,
            "text": text(&self.allocated),
            "leading": {"file": self.leading().file, "line": self.leading().line},
            "library": self.library.as_ref().map(frame),
            "kept": self.kept.as_ref().map(kept),
            "kept_or": self.kept_or.iter().map(kept).collect::<Vec<_>>(),
            "bytes_per_step": self.bytes_per_step,
            "blocks_per_step": self.blocks_per_step,
            "graph": graph,
            "holders": self.holders,
            "sentence": self.sentence,
            "advice": self.advice,
            "source": self.source.iter().map(kept).collect::<Vec<_>>(),
            "frames": self.frames.iter().map(frame).collect::<Vec<_>>(),
        })
    }
}

fn text(it: &Spot) -> Option<&str> {
    Some(it.text.raw()).filter(|it| !it.is_empty())
}

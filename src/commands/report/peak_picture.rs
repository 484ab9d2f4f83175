//! What memory consists of at a highest moment, as a picture and a table: of a recording, and of an answer of `fit`.

use super::escape_html;
use crate::{
    facts::{
        event::anatomy::{Anatomy, AnatomyPart, LineShare},
        units::Bytes,
    },
    model::analysis::ladder::Gap,
};
use std::fmt::Write as _;

/// The picture's sizes in its own units: a row of parts above one of lines.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 22.0;
const BELOW: f64 = 25.0;
const HEIGHT: f64 = 48.0;

/// The colour of a part: that of the gap which holds it between steps.
fn gap(part: AnatomyPart) -> Gap {
    match part {
        AnatomyPart::Weights => Gap::Weights,
        AnatomyPart::Gradients => Gap::Gradients,
        AnatomyPart::Optimizer => Gap::Optimizer,
        AnatomyPart::Activations => Gap::Transient,
        AnatomyPart::Temporaries => Gap::Cached,
        AnatomyPart::Other => Gap::Retained,
    }
}

/// What is shown.
pub(super) struct PeakPicture {
    /// What stands above it.
    pub(super) caption: String,
    /// Bytes that are live.
    pub(super) allocated: u64,
    /// Bytes of each part.
    pub(super) parts: Vec<(AnatomyPart, u64)>,
    /// The lines that allocated them, the largest first.
    pub(super) lines: Vec<PictureLine>,
    /// What the last column has.
    pub(super) place: &'static str,
}

/// One line of the job.
pub(super) struct PictureLine {
    pub(super) line: String,
    /// The part of which it has the most.
    pub(super) part: AnatomyPart,
    pub(super) bytes: u64,
    pub(super) blocks: Option<u64>,
    /// Its module, or its function.
    pub(super) of: String,
}

impl PeakPicture {
    /// Returns the picture of a moment.
    pub(super) fn of(it: &Anatomy, caption: String) -> Self {
        let line = |it: &LineShare| PictureLine {
            line: it.line.to_string(),
            part: it.part,
            bytes: it.bytes,
            blocks: Some(it.blocks),
            of: it.module.as_ref().map(ToString::to_string).unwrap_or_default(),
        };
        Self {
            caption,
            allocated: it.allocated,
            parts: it.parts.iter().map(|(part, bytes)| (*part, *bytes)).collect(),
            lines: it.lines.iter().map(line).collect(),
            place: "module",
        }
    }

    /// Returns it as a figure of HTML.
    pub(super) fn html(&self) -> String {
        let parts: Vec<(AnatomyPart, u64)> = AnatomyPart::WORDS
            .iter()
            .filter_map(|it| self.parts.iter().find(|own| own.0 == it.0 && own.1 > 0))
            .copied()
            .collect();
        let named: Vec<String> = parts.iter().map(|it| format!("{} {}", it.0.name(), self.share(it.1))).collect();
        let label = escape_html(&format!("{}: {}", self.caption, named.join(", ")));
        let mut out = format!("<figure class=\"panel\"><figcaption>{}</figcaption>\n", escape_html(&self.caption));
        // Writing into a String cannot fail.
        let _ = write!(
            out,
            "<svg class=\"bar icicle\" role=\"img\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" aria-label=\"{label}\">"
        );
        let mut x = 0.0;
        for (part, bytes) in &parts {
            let words = format!("{}: {}, {}", part.name(), Bytes(*bytes), self.share(*bytes));
            self.rect(&mut out, (x, 0.0), (*part, *bytes), &words);
            let (mut from, mut left) = (x, *bytes);
            for line in self.lines_of(*part) {
                // A line's bytes may be of several parts; it stands below the one of most.
                let held = line.bytes.min(left);
                let of = if line.of.is_empty() { String::new() } else { format!(" of {}", line.of) };
                let words = format!("{}{of}: {}, {}", line.line, Bytes(line.bytes), self.share(line.bytes));
                self.rect(&mut out, (from, BELOW), (*part, held), &words);
                from += self.width(held);
                left -= held;
            }
            x += self.width(*bytes);
        }
        out.push_str("</svg>\n");
        self.table(&mut out, &parts);
        out.push_str("</figure>\n");
        out
    }

    fn table(&self, out: &mut String, parts: &[(AnatomyPart, u64)]) {
        let _ = writeln!(
            out,
            "<div class=\"wide\"><table><thead><tr><th scope=\"col\">part or line</th><th scope=\"col\" class=\"n\">size</th><th \
             scope=\"col\" class=\"n\">share</th><th scope=\"col\" class=\"n\">blocks</th><th scope=\"col\">{}</th></tr></thead><tbody>",
            self.place
        );
        for (part, bytes) in parts {
            let _ = writeln!(
                out,
                "<tr><th scope=\"row\"><i class=\"swatch\" style=\"background: {}\"></i>{}</th><td class=\"n\">{}</td><td \
                 class=\"n\">{}</td><td></td><td></td></tr>",
                colour(gap(*part)),
                part.name(),
                Bytes(*bytes),
                self.share(*bytes)
            );
            for line in self.lines_of(*part) {
                let _ = writeln!(
                    out,
                    "<tr><td class=\"mono\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td \
                     class=\"mono\">{}</td></tr>",
                    escape_html(&line.line),
                    Bytes(line.bytes),
                    self.share(line.bytes),
                    line.blocks.map_or_else(String::new, |it| it.to_string()),
                    escape_html(&line.of)
                );
            }
        }
        out.push_str("</tbody></table></div>\n");
    }

    fn lines_of(&self, part: AnatomyPart) -> impl Iterator<Item = &PictureLine> {
        self.lines.iter().filter(move |it| it.part == part)
    }

    fn rect(&self, out: &mut String, (x, y): (f64, f64), (part, bytes): (AnatomyPart, u64), words: &str) {
        let _ = write!(
            out,
            "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{ROW}\" fill=\"{}\" stroke=\"var(--panel)\" \
             vector-effect=\"non-scaling-stroke\"><title>{}</title></rect>",
            self.width(bytes),
            colour(gap(part)),
            escape_html(words)
        );
    }

    fn width(&self, bytes: u64) -> f64 {
        bytes as f64 / self.allocated.max(1) as f64 * WIDTH
    }

    fn share(&self, bytes: u64) -> String {
        percent(bytes, self.allocated)
    }
}

/// Returns a gap's colour.
pub(super) fn colour(gap: Gap) -> String {
    format!("var(--gap-{})", gap.row().name.replace(' ', "-"))
}

/// Returns a share, as `12.3 %`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    format!("{:.1} %", part as f64 / whole as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_box_for_each_part_and_line_and_escapes_texts() {
        let line = |line: &str, part, bytes| PictureLine {
            line: line.to_owned(),
            part,
            bytes,
            blocks: Some(2),
            of: "layers.*.mlp".to_owned(),
        };
        let picture = PeakPicture {
            caption: "step 3".to_owned(),
            allocated: 1000,
            parts: vec![(AnatomyPart::Activations, 750), (AnatomyPart::Weights, 250), (AnatomyPart::Other, 0)],
            lines: vec![line("<b>.py:1", AnatomyPart::Activations, 800), line("b.py:2", AnatomyPart::Weights, 100)],
            place: "module",
        };
        let html = picture.html();
        assert_eq!(html.matches("<rect ").count(), 4, "{html}");
        assert!(html.contains("aria-label=\"step 3: weights 25.0 %, activations 75.0 %\""), "{html}");
        assert!(html.contains("&lt;b&gt;.py:1") && !html.contains("<b>"), "{html}");
        let places = ["x=\"0.00\" y=\"0\" width=\"250.00\"", "x=\"250.00\" y=\"25\" width=\"750.00\""];
        assert!(places.iter().all(|it| html.contains(it)), "a line is not wider than its part: {html}");
    }
}

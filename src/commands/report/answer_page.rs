//! An answer of `gpuwatch fit` as a page without scripts: verdicts, the peak, phases, ranks, and what techniques save.

use super::{
    escape_html,
    peak_picture::{PeakPicture, PictureLine, percent},
    plain_page,
};
use crate::{
    facts::{event::anatomy::AnatomyPart, text::Foreign, units::Bytes},
    model::fit::{
        Baseline,
        baseline::{Advised, PeakLine, SavedPeak},
        technique::costs,
    },
};
use std::{cmp::Reverse, fmt::Write as _};

/// Lines of the picture.
const LINES: usize = 32;

/// Returns an answer as a page; `name` is its file's.
pub(super) fn html(answer: &Baseline, name: &Foreign) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let torch = answer.torch.as_deref().unwrap_or("–");
    let _ = writeln!(out, "<p class=\"faint\">answer of gpuwatch fit, PyTorch {}</p>", text(torch));
    verdicts(&mut out, answer);
    if let Some(peak) = &answer.peak {
        out.push_str("<h2>The peak</h2>\n");
        out.push_str(&picture(peak).html());
    }
    phases(&mut out, answer);
    ranks(&mut out, answer);
    advice(&mut out, answer);
    if !answer.unknown.is_empty() {
        out.push_str("<h2>Not known</h2>\n");
        list(&mut out, answer.unknown.iter().cloned());
    }
    plain_page(&name.to_string(), out)
}

fn verdicts(out: &mut String, answer: &Baseline) {
    head(out, &[("device", false), ("size", true), ("the job takes", true), ("fits", false)]);
    for it in &answer.devices {
        let taken = it.peak.as_ref().map_or_else(|| Cell::Number("–".to_owned()), |peak| bytes(peak.device));
        row(out, &[Cell::Text(it.name.clone()), bytes(it.total), taken, verdict(it.fits.as_ref())]);
    }
    out.push_str("</tbody></table></div>\n");
    if let Some(it) = &answer.growth {
        let line = it.line.as_ref().map(|line| format!(", allocated at {}", text(line))).unwrap_or_default();
        let _ = writeln!(out, "<p class=\"fail\">Each step adds {}{line}.</p>", Bytes(it.bytes));
    }
}

fn picture(peak: &SavedPeak) -> PeakPicture {
    let parts: Vec<(AnatomyPart, u64)> =
        peak.parts.iter().filter_map(|(name, bytes)| Some((AnatomyPart::named(name)?, *bytes))).collect();
    let line = |it: &PeakLine, part: &str, bytes: u64| {
        let (line, of) = (Foreign::new(&it.line).to_string(), Foreign::new(&it.function).to_string());
        Some(PictureLine { line, part: AnatomyPart::named(part)?, bytes, blocks: None, of })
    };
    let all = peak.lines.iter().flatten();
    let mut lines: Vec<PictureLine> =
        all.flat_map(|it| it.parts.iter().filter_map(move |(part, bytes)| line(it, part, *bytes))).collect();
    lines.sort_by_key(|it| Reverse(it.bytes));
    lines.truncate(LINES);
    let at = peak.line.as_ref().map(|it| format!(", at {}", Foreign::new(it))).unwrap_or_default();
    let reserved = Bytes(peak.reserved.max(peak.wanted));
    PeakPicture {
        caption: format!("{} allocated, {reserved} reserved by the allocator{at}", Bytes(peak.allocated)),
        allocated: peak.allocated,
        parts,
        lines,
        place: "function",
    }
}

fn phases(out: &mut String, answer: &Baseline) {
    if answer.phases.ran.is_empty() {
        return;
    }
    out.push_str("<h2>Phases</h2>\n");
    head(out, &[("phase", false), ("from", false), ("times", true), ("allocated at most", true)]);
    for it in &answer.phases.ran {
        let (name, line) = (Cell::Text(it.name.clone()), Cell::Text(it.line.clone().unwrap_or_default()));
        row(out, &[name, line, Cell::Number(it.count.to_string()), bytes(it.allocated)]);
    }
    out.push_str("</tbody></table></div>\n");
}

fn ranks(out: &mut String, answer: &Baseline) {
    if answer.ranks.is_empty() {
        return;
    }
    out.push_str("<h2>Ranks that ran</h2>\n");
    head(out, &[("rank", false), ("allocated", true), ("reserved", true), ("host", true)]);
    for it in &answer.ranks {
        row(out, &[Cell::Text(it.rank.to_string()), bytes(it.peak.allocated), bytes(it.peak.reserved), bytes(it.host)]);
    }
    out.push_str("</tbody></table></div>\n");
}

/// What techniques save: a bar for each, under that of the job as it is.
fn advice(out: &mut String, answer: &Baseline) {
    let Some(now) = answer.peak.as_ref().map(|it| it.device).filter(|it| *it > 0) else { return };
    let (mut tried, refused): (Vec<&Advised>, Vec<&Advised>) =
        answer.advised.iter().partition(|it| it.device.is_some());
    if tried.is_empty() && refused.is_empty() {
        return;
    }
    tried.sort_by_key(|it| it.device);
    out.push_str("<h2>What saves memory</h2>\n");
    let columns = [("technique", false), ("peak", true), ("saves", true), ("left of the peak", false), ("fits", false)];
    head(out, &[&columns[..], &[("price", false)]].concat());
    let bar = |of: u64| {
        let width = of.min(now) as f64 / now as f64 * 1000.0;
        Cell::Picture(format!(
            "<svg class=\"bar\" viewBox=\"0 0 1000 22\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{0}\"><rect \
             width=\"{width:.2}\" height=\"22\" fill=\"var(--accent)\"><title>{0}</title></rect></svg>",
            percent(of, now)
        ))
    };
    let (nothing, fits) = (|| Cell::Text(String::new()), verdict(answer.fits.as_ref()));
    row(out, &[Cell::Text("as it is".to_owned()), bytes(now), nothing(), bar(now), fits, nothing()]);
    for it in &tried {
        let device = it.device.unwrap_or(now);
        let saves =
            if device <= now { percent(now - device, now) } else { format!("−{}", percent(device - now, now)) };
        let fits = verdict(it.fits.as_ref());
        let cells =
            [Cell::Text(it.name()), bytes(device), Cell::Number(saves), bar(device), fits, Cell::Text(price(it))];
        row(out, &cells);
    }
    out.push_str("</tbody></table></div>\n");
    for it in tried.iter().filter(|it| !it.edit.is_empty()) {
        let lines: Vec<String> = it.edit.iter().map(|it| text(it)).collect();
        let name = text(&it.name());
        let _ =
            writeln!(out, "<details><summary>{name}: what to write</summary><pre>{}</pre></details>", lines.join("\n"));
    }
    if !refused.is_empty() {
        out.push_str("<h3>Not tried or not counted</h3>\n");
        list(
            out,
            refused.iter().map(|it| format!("{}: {}", it.name(), it.refused.as_deref().unwrap_or("not measured"))),
        );
    }
}

fn list(out: &mut String, items: impl Iterator<Item = String>) {
    out.push_str("<ul>");
    for it in items {
        let _ = write!(out, "<li>{}</li>", text(&it));
    }
    out.push_str("</ul>\n");
}

fn price(it: &Advised) -> String {
    let Some(price) = &it.price else { return String::new() };
    let mut words = vec![price.class.clone()];
    words.extend(costs(price.recomputed_blocks, price.host_bytes, price.kernel_launches));
    words.join("; ")
}

/// A cell of a table.
enum Cell {
    /// Text of the file's, which is escaped.
    Text(String),
    Number(String),
    /// A picture of this page's.
    Picture(String),
}

/// Opens a table whose columns are of text or of numbers.
fn head(out: &mut String, columns: &[(&str, bool)]) {
    out.push_str("<div class=\"wide\"><table><thead><tr>");
    for (name, is_number) in columns {
        let class = if *is_number { " class=\"n\"" } else { "" };
        let _ = write!(out, "<th scope=\"col\"{class}>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
}

fn row(out: &mut String, cells: &[Cell]) {
    out.push_str("<tr>");
    for it in cells {
        let _ = match it {
            Cell::Text(raw) => write!(out, "<td>{}</td>", text(raw)),
            Cell::Number(raw) => write!(out, "<td class=\"n\">{}</td>", text(raw)),
            Cell::Picture(html) => write!(out, "<td class=\"map\">{html}</td>"),
        };
    }
    out.push_str("</tr>\n");
}

fn verdict(fits: Option<&String>) -> Cell {
    Cell::Text(fits.map_or_else(|| "–".to_owned(), Clone::clone))
}

fn bytes(it: u64) -> Cell {
    Cell::Number(Bytes(it).to_string())
}

/// Text from the file.
fn text(raw: &str) -> String {
    escape_html(&Foreign::new(raw).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_verdicts_parts_ranks_and_savings_and_no_markup_of_the_file() {
        let text = r#"{"schema":1,"baseline":{"schema":1,"fits":"no","torch":"2.15.0","unknown":["<i>why</i>"],
            "devices":[{"name":"html:<b>L4","total":1048576,"fits":"no","peak":{"device":2097152}}],
            "peak":{"allocated":1000,"reserved":2000,"wanted":2000,"device":2097152,"line":"t.py:3",
                "parts":{"weights":400,"activations":600},
                "lines":[{"line":"t.py:9","function":"Net.<locals>","parts":{"activations":500}}]},
            "ranks":[{"rank":63,"peak":{"allocated":10,"reserved":20},"host":30}]},
            "rows":[{"technique":"bf16","device":1048576,"fits":"yes","edit":["t.py:4: <with>"],
                "price":{"class":"other numerics","recomputed_blocks":2,"host_bytes":0}},
                {"technique":"sgd","refused":"uses <SGD>"}],
            "combinations":[{"techniques":["bf16","foreach"],"device":3145728}]}"#;
        let page = html(&Baseline::parse(text).unwrap(), &Foreign::new("a.json"));
        let parts = [
            "html:&lt;b&gt;L4",
            "60.0 %",
            "Net.&lt;locals&gt;",
            "<td>63</td>",
            "bf16 + foreach",
            "−50.0 %",
            "other numerics; 2 blocks forward twice",
            "t.py:4: &lt;with&gt;",
            "sgd: uses &lt;SGD&gt;",
            "&lt;i&gt;why&lt;/i&gt;",
        ];
        for part in parts {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<b>") && !page.contains("<SGD>"), "{page}");
    }
}

//! The answer of `gpuwatch diff` as a self-contained page without scripts.

use super::Diff;
use crate::{
    commands::report::{escape_html, plain_page},
    facts::{
        text::Foreign,
        units::{Bytes, separated},
    },
};
use std::{collections::BTreeMap, fmt::Write as _};

/// The allocated bytes of a run by step.
pub(super) type Course = BTreeMap<u64, u64>;

/// Most points of a curve.
const POINTS: u64 = 600;

/// The size of the chart in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 240.0;

/// The colours of both curves, and their names.
const COLOURS: [(&str, &str); 2] = [("var(--faint)", "grey"), ("var(--accent)", "blue")];

/// Returns the comparison of two runs.
pub(super) fn of_runs(diff: &Diff, names: &[Foreign; 2]) -> String {
    let mut out = beginning(diff.code(), names);
    if let Some(courses) = &diff.courses {
        chart(&mut out, courses);
    }
    if !diff.figures.is_empty() {
        let figure = |value: Option<f64>, text: &dyn Fn(f64) -> String| value.map_or_else(|| "–".to_owned(), text);
        let rows: Vec<ComparisonRow> = diff
            .figures
            .iter()
            .map(|it| ComparisonRow {
                name: it.name.clone(),
                both: [it.a, it.b].map(|value| figure(value, &|value| it.unit.text(value))),
                change: it.a.zip(it.b).map_or_else(|| "–".to_owned(), |(a, b)| it.unit.change(a, b)),
                is_worse: it.worse,
            })
            .collect();
        table(&mut out, "figure", &rows);
    }
    for (class, title, lines) in [("unjudged", "not compared", &diff.doubts), ("faint", "note", &diff.notes)] {
        for it in lines {
            let _ = writeln!(out, "<p class=\"{class}\">{title}: {}</p>", text(it));
        }
    }
    plain_page("two runs compared", out)
}

/// One row of a table: a figure, or a call stack.
pub(super) struct ComparisonRow {
    pub(super) name: String,
    /// The values of both.
    pub(super) both: [String; 2],
    pub(super) change: String,
    /// Whether the second has more than tolerated.
    pub(super) is_worse: bool,
}

/// Returns what a page begins with: what is compared, and the verdict by its exit code.
pub(super) fn beginning(code: u8, names: &[Foreign; 2]) -> String {
    let (class, verdict) = match code {
        0 => ("pass", "The second needs no more memory than the first."),
        1 => ("fail", "The second needs more memory than the first."),
        _ => ("unjudged", "They could not be compared in full."),
    };
    let [first, second] = names.each_ref().map(|it| escape_html(&it.to_string()));
    format!(
        "<p class=\"mono\">first: {first}</p>\n<p class=\"mono\">second: {second}</p>\n<p><strong \
         class=\"{class}\">{verdict}</strong></p>\n"
    )
}

/// Writes a table of both values and their change.
pub(super) fn table(out: &mut String, title: &str, rows: &[ComparisonRow]) {
    // Writing into a String cannot fail.
    let _ = writeln!(
        out,
        "<div class=\"wide\"><table><thead><tr><th scope=\"col\">{}</th><th scope=\"col\" class=\"n\">first</th><th \
         scope=\"col\" class=\"n\">second</th><th scope=\"col\" class=\"n\">change</th></tr></thead><tbody>",
        text(title)
    );
    for ComparisonRow { name, both: [first, second], change, is_worse } in rows {
        let mark = if *is_worse { " <strong class=\"fail\">more than tolerated</strong>" } else { "" };
        let _ = writeln!(
            out,
            "<tr><td>{}{mark}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            text(name),
            text(first),
            text(second),
            text(change)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

/// Draws what both runs had allocated, step by step; nothing without steps.
fn chart(out: &mut String, courses: &[Course; 2]) {
    let last = courses.iter().filter_map(|it| it.keys().next_back()).max().copied().unwrap_or(0);
    let most = courses.iter().flat_map(BTreeMap::values).max().copied().unwrap_or(0);
    if last == 0 || most == 0 {
        return;
    }
    let words = format!(
        "Allocated memory by step, up to {} and step {}: the first {}, the second {}.",
        Bytes(most),
        separated(last),
        COLOURS[0].1,
        COLOURS[1].1
    );
    let _ = writeln!(
        out,
        "<div class=\"panel\"><svg class=\"curve\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"{words}\">"
    );
    for (course, (colour, _)) in courses.iter().zip(COLOURS) {
        let mut points = String::new();
        for (step, bytes) in thinned(course, last) {
            let (x, y) = (step as f64 / last as f64 * WIDTH, HEIGHT - bytes as f64 / most as f64 * HEIGHT);
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
             vector-effect=\"non-scaling-stroke\"/>",
            points.trim_end()
        );
    }
    let _ = writeln!(out, "</svg><p class=\"faint\">{words}</p></div>");
}

/// Returns the highest value of each of at most [`POINTS`] stretches of steps, with the step that has it.
fn thinned(course: &Course, last: u64) -> impl Iterator<Item = (u64, u64)> {
    let width = (last / POINTS).saturating_add(1);
    let mut highest: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (step, bytes) in course {
        let of_stretch = highest.entry(step / width).or_insert((*step, *bytes));
        if *bytes > of_stretch.1 {
            *of_stretch = (*step, *bytes);
        }
    }
    highest.into_values()
}

/// Escapes text from outside.
pub(super) fn text(raw: &str) -> String {
    escape_html(&Foreign::new(raw).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::diff::{Figure, Unit};

    #[test]
    fn a_page_has_the_figures_the_verdict_and_nothing_that_a_name_brings() {
        let name = "peak allocated".to_owned();
        let figure = Figure { name, unit: Unit::Count, a: Some(1.0), b: Some(2.0), judged: true, worse: true };
        let courses: [Course; 2] = [1, 2].map(|times| (1..=10_000).map(|step| (step, step * times)).collect());
        let doubts = vec!["<script>\u{202e}".to_owned()];
        let diff = Diff { figures: vec![figure], courses: Some(courses), doubts, notes: Vec::new() };
        let page = of_runs(&diff, &["a.jsonl.zst".into(), "<b>\u{1b}[2J".into()]);
        assert!(page.contains("The second needs more memory") && page.contains("more than tolerated"), "{page}");
        assert!(page.contains("&lt;b&gt;\\u{1b}[2J") && page.contains("&lt;script&gt;\\u{202e}"), "{page}");
        assert!(!page.contains("<script") && !page.contains("<!-- account"), "{page}");
        let curves: Vec<&str> = page.split("points=\"").skip(1).map(|it| it.split('"').next().unwrap()).collect();
        assert!(curves.len() == 2 && curves[1].ends_with("1000.0,0.0"), "{curves:?}");
        assert!(curves.iter().all(|it| it.split(' ').count() <= 601), "{curves:?}");
    }
}

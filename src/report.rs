//! `gpuwatch report`: a run in one file to be read later, or sent to somebody: a page, or JSON.

mod series;

use crate::{
    alerts::Policy,
    analysis::severity::Severity,
    check::{FailOn, Limits, Verdict, check_with},
    replay::{index::Index, tape::Tape},
    text::escape_json,
};
use serde_json::{Value, json};
use series::{Point, Timeline};

/// The version of what is documented at [`Report::json`].
const SCHEMA: u32 = 1;

/// The page, whole but for the run: no other file, and no network.
const PAGE: &str = include_str!("report/page.html");

/// Where the run's verdict and its data stand in the page.
const PLACES: [&str; 2] = ["<!-- verdict -->", "<!-- data -->"];

/// All that is told of a run.
pub struct Report {
    verdict: Verdict,
    timeline: Timeline,
    index: Index,
    /// Wall clock at stamp 0, µs of Unix time.
    unix_us: Option<u64>,
}

impl Report {
    /// Reads a tape to its end; what the policy allows is marked, and fails nothing.
    pub fn read(tape: &Tape, policy: &Policy) -> Self {
        let fail_on = vec![FailOn::Severity(Severity::Warning)];
        let mut timeline = Timeline::default();
        let limits = Limits { fail_on, ..Limits::default() };
        let verdict = check_with(tape, &limits, policy, |event, session| timeline.apply(event, session));
        let (index, _, _) = Index::build(tape, |_, _| ());
        let unix_us = tape.unix_us(index.from);
        Self { verdict, timeline, index, unix_us }
    }

    /// As JSON (schema 1), its last newline included: what `gpuwatch check --json` says as `run`, and
    /// - `started_unix_us`: the wall clock at `from_us`, where the recording knows it
    /// - `from_us`, `to_us`: the first and the last event
    /// - `environment[]`: `rank`, `framework`, `framework_version`, `backend`, `allocator_conf`, `world_size` of each
    ///   process
    /// - `timeline[]`: `device_id`, `stride` (readings a point), `columns` and `points[]`, an array each
    /// - `moments[]`: `at_us`, `kind` (`mark`, `trouble`), `text`
    pub fn json(&self) -> String {
        escape_json(&format!("{:#}\n", self.value()))
    }

    /// As a page of its own.
    pub fn html(&self) -> String {
        let verdict = escape_html(&self.verdict.text());
        // Nothing of a run can end the element that it stands in.
        let data = escape_json(&self.value().to_string()).replace('<', "\\u003c");
        let [verdict_place, data_place] = PLACES;
        let (head, rest) = PAGE.split_once(verdict_place).unwrap_or((PAGE, ""));
        let (middle, tail) = rest.split_once(data_place).unwrap_or((rest, ""));
        [head, &verdict, middle, &data, tail].concat()
    }

    fn value(&self) -> Value {
        let run: Value = serde_json::from_str(&self.verdict.json()).unwrap_or_default();
        let timeline = self.timeline.devices.iter().map(|(id, it)| {
            let points: Vec<Value> = it.points.iter().map(point).collect();
            let columns = ["at_us", "step", "allocated", "reserved", "stuck", "used"];
            json!({"device_id": id, "stride": it.stride, "columns": columns, "points": points})
        });
        let moment = |kind: &'static str| move |it: &crate::replay::index::Moment| json!({"at_us": it.at, "kind": kind, "text": it.text});
        let marks = self.index.marks.iter().map(moment("mark"));
        let moments = marks.chain(self.index.troubles.iter().map(moment("trouble")));
        json!({
            "schema": SCHEMA,
            "started_unix_us": self.unix_us,
            "from_us": self.index.from,
            "to_us": self.index.to,
            "run": run,
            "environment": self.environment(),
            "timeline": timeline.collect::<Vec<_>>(),
            "moments": moments.collect::<Vec<_>>(),
        })
    }

    /// What a run was made with, and nothing else of its environment.
    fn environment(&self) -> Vec<Value> {
        let hellos = self.verdict.session.processes.iter().filter_map(|it| Some((it.rank(), it.hello.as_ref()?)));
        hellos
            .map(|(rank, it)| {
                json!({
                    "rank": rank,
                    "world_size": it.world_size,
                    "framework": it.framework,
                    "framework_version": it.framework_version,
                    "backend": it.backend,
                    "allocator_conf": it.allocator_conf,
                })
            })
            .collect()
    }
}

fn point(it: &Point) -> Value {
    json!([it.at, it.step, it.allocated, it.reserved, it.stuck, it.used])
}

fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_part_and_text_is_escaped() {
        for place in PLACES {
            assert_eq!(PAGE.matches(place).count(), 1, "{place}");
        }
        assert_eq!(escape_html("<a href='x'>&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;");
    }
}

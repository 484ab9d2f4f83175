//! Every finding: the open ones in full, worst first, what is allowed after them; below those that ended, the latest
//! first.

use super::{Look, cells, culprit, scrolled, title, verdict};
use crate::{
    alerts,
    analysis::episode::Resource,
    findings::{Finding, Kind},
    session::process::Process,
    theme::Role,
    units,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use std::cmp::Reverse;

/// The place of the severity; on narrow screens what is said of it begins below.
const SEVERITY: usize = 10;
const NARROW: usize = 60;

/// Lines of source told of a culprit.
const SOURCE: usize = 3;

/// Draws what fits from where the user scrolled to, and says how far that can be.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) -> usize {
    let (open, ended) = sorted(look);
    let allowed = open.iter().filter(|it| it.is_allowed()).count();
    let expected = if allowed > 0 { format!("{allowed} allowed, ") } else { String::new() };
    let count = format!("{} open, {expected}{} ended", open.len() - allowed, ended.len());
    title(buffer, area, "alerts", vec![Span::styled(count, look.style(Role::Dim))], look);
    let list = List { width: usize::from(area.width).saturating_sub(1), look };
    let mut lines: Vec<Line> = open.iter().flat_map(|it| list.open(it)).collect();
    if open.is_empty() {
        lines.extend(list.none());
    }
    if !open.is_empty() && !ended.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(ended.iter().flat_map(|it| list.ended(it)));
    let devices = || look.session.processes.iter().flat_map(|it| &it.devices);
    let forgotten = devices().fold(0_u64, |sum, it| sum.saturating_add(it.growth.forgotten()));
    if forgotten > 0 {
        lines.push(Line::styled(format!(" and {forgotten} that are no longer remembered"), look.style(Role::Dim)));
    }
    if !open.is_empty() || !ended.is_empty() {
        lines.push(Line::default());
        lines.push(Line::styled(" more of a cause: gpuwatch explain CAUSE", look.style(Role::Dim)));
    }
    scrolled(buffer, area, &lines, look)
}

fn sorted<'a>(look: &Look<'a>) -> (Vec<&'a Finding>, Vec<&'a Finding>) {
    let (open, mut ended): (Vec<_>, Vec<_>) =
        look.findings.all.iter().partition(|it| alerts::is_open(it, look.session));
    ended.sort_by_key(|it| Reverse(it.resolved_at.unwrap_or(it.first_alert_at)));
    (open, ended)
}

/// The open ones in a line each, the worst first, and how many more there are.
pub(super) fn brief(most: usize, width: usize, look: &Look) -> Vec<Line<'static>> {
    let (open, _) = sorted(look);
    let list = List { width: usize::MAX, look };
    let line = |it: &&Finding| {
        let word = Span::styled(
            format!(" {}", cells::left(it.severity.name(), SEVERITY - 1)),
            look.style(verdict::role(it.severity)),
        );
        let line = it.culprit.as_ref().map_or_else(String::new, |it| format!(", {}", it.leading().place()));
        let what = format!("{}{line}", list.what(it));
        // When it ends is worth more than in how many steps.
        let soon = it.full_in_us.map(|it| format!("full in {}", units::duration(it)));
        let mut told = it.forecast().into_iter().chain(soon).map(|it| format!("{what}; {it}"));
        let room = width.saturating_sub(SEVERITY);
        let rest = told.find(|it| cells::width(it) <= room).unwrap_or_else(|| cells::elide(&what, room));
        Line::from(vec![word, Span::styled(rest, look.style(Role::Text))])
    };
    let told = if open.len() > most { most.saturating_sub(1) } else { open.len() };
    let mut lines: Vec<Line> = open.iter().take(told).map(line).collect();
    if told < open.len() {
        lines.push(Line::styled(format!(" and {} more: a", open.len() - told), look.style(Role::Dim)));
    }
    lines
}

struct List<'a> {
    width: usize,
    look: &'a Look<'a>,
}

impl List<'_> {
    /// ```text
    /// warning   rank 1 on GPU 1: allocated +4.00 MiB/step, tensors-retained
    ///           since step 12, told at step 31; full in 20739 steps, 43 min
    ///           where a probe looked for it: which line allocates what grows, and who keeps it
    ///           → what to do
    ///           the figures it rests on
    /// ```
    fn open(&self, it: &Finding) -> Vec<Line<'static>> {
        let (severity, rest) =
            if it.is_allowed() { (Role::Dim, Role::Dim) } else { (verdict::role(it.severity), Role::Text) };
        let mut lines = self.head(it, it.severity.name(), severity, rest);
        let goes_on = self.look.session.process(it.probe).is_some_and(Process::is_alive);
        let pace = if goes_on { "" } else { "at that pace " };
        let forecast = it.forecast().map_or_else(String::new, |it| format!("; {pace}{it}"));
        let ago = units::duration(self.look.session.now.since(it.first_alert_at));
        self.below(&mut lines, &format!("{}, {ago} ago{forecast}", when(it)), rest);
        if let Some(culprit) = &it.culprit {
            self.below(&mut lines, &culprit.sentence, rest);
        }
        self.below(&mut lines, &format!("→ {}", it.remedy()), Role::Good);
        lines.extend(self.look_at(it));
        let figures = figures(it);
        if !figures.is_empty() {
            self.below(&mut lines, &figures, Role::Dim);
        }
        lines
    }

    /// The lines around the culprit's; where it was not looked for, why, or how to.
    fn look_at(&self, it: &Finding) -> Vec<Line<'static>> {
        if let Some(it) = &it.culprit {
            return culprit::source(it, SOURCE, self.indent(), self.width, self.look);
        }
        let mut lines = Vec::new();
        let process = self.look.session.process(it.probe);
        let on = process.and_then(|process| process.devices.iter().find(|on| Some(on.ordinal) == it.ordinal));
        let own = process.zip(on).filter(|_| it.kind == Kind::Growth && it.resource == Some(Resource::Allocated));
        if let Some(hint) = own.and_then(|(process, on)| culprit::hint(process, on, self.look)) {
            self.below(&mut lines, &hint, Role::Dim);
        }
        lines
    }

    fn ended(&self, it: &Finding) -> Vec<Line<'static>> {
        let word = if it.is_active() { "ended" } else { "resolved" };
        let mut lines = self.head(it, word, Role::Good, Role::Dim);
        let end = it.resolved_step.map(|step| format!("over at {}", it.place(step)));
        let end = end.unwrap_or_else(|| "until its process ended".to_owned());
        self.below(&mut lines, &format!("{}, {end}", when(it)), Role::Dim);
        lines
    }

    fn head(&self, it: &Finding, word: &str, role: Role, rest: Role) -> Vec<Line<'static>> {
        let words = self.what(it);
        let mut lines = Vec::new();
        self.below(&mut lines, &words, rest);
        let word = Span::styled(format!(" {}", cells::left(word, SEVERITY - 1)), self.look.style(role));
        match lines.first_mut() {
            Some(first) if self.indent() == SEVERITY => {
                if let Some(blank) = first.spans.first_mut() {
                    *blank = word;
                }
            }
            _ => lines.insert(0, Line::from(word)),
        }
        lines
    }

    /// `rank 1 on GPU 1: allocated +4.00 MiB/step, tensors-retained`
    fn what(&self, it: &Finding) -> String {
        let what = match (it.kind, it.resource) {
            (Kind::Growth, Some(resource)) => {
                format!("{} {}", resource.name(), it.slope().unwrap_or_else(|| cells::UNKNOWN.to_owned()))
            }
            (kind, Some(resource)) => format!("{} of {}", kind.name(), resource.name()),
            (kind, None) => kind.name().to_owned(),
        };
        let cause = Some(it.cause.id()).filter(|id| *id != what).map_or_else(String::new, |id| format!(", {id}"));
        format!("{}: {what}{cause}{}", verdict::whose(it, self.look), it.aside())
    }

    fn below(&self, lines: &mut Vec<Line<'static>>, words: &str, role: Role) {
        let indent = self.indent();
        for it in cells::wrapped(words, self.width.saturating_sub(indent)) {
            lines.push(Line::from(vec![Span::raw(" ".repeat(indent)), Span::styled(it, self.look.style(role))]));
        }
    }

    fn indent(&self) -> usize {
        if self.width < NARROW { 3 } else { SEVERITY }
    }

    fn none(&self) -> Vec<Line<'static>> {
        let session = self.look.session;
        let devices = || session.processes.iter().flat_map(|it| &it.devices);
        let words = if session.processes.is_empty() {
            "none: without a probe nothing can be judged; gpuwatch run -- python train.py starts a job with one"
        } else if devices().all(|it| it.growth.watched() < it.growth.enough()) {
            "none so far: too few steps were seen to judge growth"
        } else {
            "none: nothing was found that grows or wastes memory"
        };
        let wrapped = cells::wrapped(words, self.width.saturating_sub(1));
        wrapped.into_iter().map(|it| Line::styled(format!(" {it}"), self.look.style(Role::Text))).collect()
    }
}

/// The figures of the two ends of an interval.
const ENDS: [&str; 2] = ["interval_low", "interval_high"];

/// What it rests on: in words where it has them, else the figures, the two ends of the interval as one.
fn figures(it: &Finding) -> String {
    if it.kind != Kind::Growth && !it.account.is_empty() {
        return it.account.join("; ");
    }
    let ends = it.evidence.get(ENDS[0]).zip(it.evidence.get(ENDS[1]));
    let interval = ends.map(|(low, high)| format!("95 % {} to {}", cells::rate(low), cells::rate(high)));
    let others = it.evidence.figures.iter().filter(|it| !ENDS.contains(&it.name)).map(ToString::to_string);
    interval.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

/// When it began and when it was told, which for what happened at once is the same.
fn when(it: &Finding) -> String {
    let told = it.place(it.first_alert_step);
    if it.since_step < it.first_alert_step {
        format!("since {}, told at {told}", it.place(it.since_step))
    } else {
        format!("at {told}")
    }
}

//! All findings: open ones in detail, worst first, then allowed ones, then resolved ones, latest first.

use super::{
    RenderContext, Scrolled, cells, culprit, put,
    scroll::{Spot, scrolled, select},
    title, verdict,
};
use crate::{
    facts::{event::Replayed, units},
    model::{
        alerts,
        analysis::{episode::Resource, severity::Severity},
        findings::{Finding, Identity, Kind, names},
        session::process::Process,
    },
    screen::{
        keys,
        theme::Role,
        ui::{Command, Focus, HostCommand, Screen, mouse::Target},
        view::columns::first_row,
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The column of the severity; on narrow screens the text begins below it.
const SEVERITY: usize = 10;
const NARROW: usize = 60;

/// Most source lines shown of a culprit.
const SOURCE: usize = 3;

/// Draws the visible part, and returns how far it can be scrolled.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> Scrolled {
    let all = context.ui.alerts(context.findings, context.session);
    let (open, ended): (Vec<&Finding>, Vec<_>) = all.iter().partition(|it| context.ui.is_open(it, context.session));
    let expected = open.iter().filter(|it| it.is_allowed()).count();
    let of_them = if expected > 0 { format!("{expected} expected, ") } else { String::new() };
    let count = format!("{} open, {of_them}{} ended", open.len() - expected, ended.len());
    title(buffer, area, "alerts", vec![Span::styled(count, context.style(Role::Dim))], context);
    let list = List { width: usize::from(area.width).saturating_sub(1), context };
    let mut lines: Vec<Line> = if open.is_empty() { list.none() } else { Vec::new() };
    let mut spots = Vec::new();
    for it in &all {
        let is_open = context.ui.is_open(it, context.session);
        // A gap separates the resolved ones.
        if !is_open && spots.len() == open.len() && !spots.is_empty() {
            lines.push(Line::default());
        }
        let begin = lines.len();
        lines.extend(if is_open { list.open(it) } else { list.ended(it) });
        spots.push((Target::Alert(it.identity()), begin..lines.len()));
    }
    let devices = || context.session.processes.iter().flat_map(|it| &it.devices);
    let forgotten = devices().fold(0_u64, |sum, it| sum.saturating_add(it.growth.forgotten()));
    if forgotten > 0 {
        lines.push(Line::styled(format!(" and {forgotten} that are no longer remembered"), context.style(Role::Dim)));
    }
    scrolled(buffer, area, &lines, &spots, context)
}

/// A line of the short list, and its alert.
type Row = (Line<'static>, Option<Identity>);

/// Returns the line of one in the short list.
fn row(it: &Finding, width: usize, context: &RenderContext) -> Row {
    let list = List { width: usize::MAX, context };
    let word = Span::styled(
        format!(" {}", cells::left(it.severity.name(), SEVERITY - 1)),
        context.style(verdict::role(it.severity)),
    );
    let line = it.culprit.as_ref().map_or_else(String::new, |culprit| format!(", {}", culprit.leading().place()));
    let who = whose(it, context);
    let what = match &it.sentence {
        _ if it.follows.is_some() => list.what(it),
        Some(sentence) => format!("{who}: {sentence}"),
        None => {
            let figures = it.comparison().map_or_else(String::new, |it| format!(", {it}"));
            format!("{}{figures}{line}", list.what(it))
        }
    };
    // The time is more useful than the number of steps.
    let left = verdict::left(it, context);
    let soon = left.as_ref().map(|time| format!("full in {time}"));
    let forecast = it.forecast().filter(|_| left.is_some() == it.left().is_some());
    // The line of the source is more useful than the cause.
    let brief = it.slope().filter(|_| !line.is_empty()).map(|it| format!("{who}: {it}{line}"));
    let mut shown: Vec<String> = forecast.iter().chain(&soon).map(|when| format!("{what}; {when}")).collect();
    shown.extend(brief.iter().flat_map(|what| soon.iter().map(move |when| format!("{what}; {when}"))));
    shown.push(what.clone());
    shown.extend(brief);
    let room = width.saturating_sub(SEVERITY);
    let fitting = shown.iter().find(|it| cells::width(it) <= room).or(shown.last());
    let rest = cells::elide(fitting.unwrap_or(&what), room);
    (Line::from(vec![word, Span::styled(rest, context.style(Role::Text))]), Some(it.identity()))
}

/// Returns the open ones, a line each, worst first, with the number of the rest; includes the selected one.
pub(super) fn brief(most: usize, width: usize, context: &RenderContext) -> Vec<Row> {
    let open = context.ui.alerts(context.findings, context.session);
    let shown = if open.len() > most { most.saturating_sub(1) } else { open.len() };
    let place = if context.ui.is_among_alerts() { context.ui.alert_place(&open) } else { 0 };
    let first = first_row(place, open.len(), shown.max(1));
    let mut rows: Vec<Row> = open.iter().skip(first).take(shown).map(|it| row(it, width, context)).collect();
    if shown < open.len() {
        let more = format!(" and {} more: a", open.len() - shown);
        rows.push((Line::styled(more, context.style(Role::Dim)), None));
    }
    rows
}

/// Returns the line of the worst open one, if it is at least this severe, with the number of the rest.
pub(super) fn worst(least: Severity, width: usize, context: &RenderContext) -> Option<Row> {
    let open = context.ui.alerts(context.findings, context.session);
    let first = open.first().filter(|it| it.severity >= least && !it.is_allowed())?;
    let more = if open.len() > 1 { format!("  +{}", open.len() - 1) } else { String::new() };
    let (mut line, alert) = row(first, width.saturating_sub(more.len()), context);
    line.push_span(Span::styled(more, context.style(Role::Dim)));
    Some((line, alert))
}

/// Draws it.
pub(super) fn draw_worst(buffer: &mut Buffer, area: Rect, (line, alert): &Row, context: &RenderContext) {
    put(buffer, area, 0, line);
    if let Some(alert) = alert {
        context.claim(area, Target::Alert(*alert));
    }
}

/// Draws the short list below its title.
pub(super) fn draw_brief(buffer: &mut Buffer, area: Rect, rows: &[Row], context: &RenderContext) {
    context.claim(area, Target::Box(Focus::Alerts));
    title(buffer, area, "alerts", Vec::new(), context);
    let selected = context.selected_alert();
    for ((line, alert), row) in rows.iter().zip(area.rows().skip(1)) {
        put(buffer, row, 0, line);
        if let Some(alert) = alert {
            context.claim(row, Target::Alert(*alert));
        }
        if selected.is_some() && *alert == selected {
            select(buffer, row, context);
        }
    }
}

/// Returns the open alerts of a device or a process, each with its remedy, and each one's range of lines.
pub(super) fn listed(width: usize, context: &RenderContext) -> (Vec<Line<'static>>, Vec<Spot>) {
    let (mut lines, mut spots) = (Vec::new(), Vec::new());
    for it in context.ui.alerts(context.findings, context.session) {
        let begin = lines.len();
        let mut add_line = |words: &str, indent: usize, role| {
            let wrapped = cells::wrapped(words, width.saturating_sub(indent + 1));
            let line =
                |words| Line::from(vec![Span::raw(" ".repeat(indent)), Span::styled(words, context.style(role))]);
            lines.extend(wrapped.into_iter().map(line));
        };
        let what = if context.ui.screen == Screen::Process {
            let growth = it.slope().map_or_else(String::new, |it| format!(" {it}"));
            let cause = it.because().map_or_else(String::new, |it| format!(", {it}"));
            format!("{}{growth}{cause}{}", verdict::what(it), it.aside())
        } else {
            List { width: usize::MAX, context }.what(it)
        };
        let role = if it.is_allowed() { Role::Dim } else { verdict::role(it.severity) };
        add_line(&format!("{}: {what}", it.severity.name()), 1, role);
        let is_device = context.ui.screen != Screen::Process;
        if let Some(words) = it.following().filter(|_| !is_device).or_else(|| it.sentence.clone()) {
            add_line(&words, 3, Role::Text);
        }
        // The culprit's advice is already above, as is that of the causing finding.
        let is_shown = it.culprit.as_ref().is_some_and(|culprit| culprit.cause == it.cause) && !is_device;
        if it.follows.is_none() && !is_shown {
            add_line(&format!("→ {}", it.remedy()), 3, Role::Good);
        }
        for words in &it.saving {
            add_line(words, 3, Role::Dim);
        }
        // The answer and the line to export; the alert's own screen has the rest.
        for (words, role) in it.replay_words().iter().zip(replay_roles(it.replayed.as_deref())).take(2) {
            add_line(words, 3, role);
        }
        if let Some(words) = allow(it, context).filter(|_| it.follows.is_none()) {
            add_line(&words, 3, Role::Dim);
        }
        spots.push((Target::Alert(it.identity()), begin..lines.len()));
    }
    (lines, spots)
}

/// Returns `rank 1 on GPU 1`, or `2 ranks` with the same leak.
fn whose(it: &Finding, context: &RenderContext) -> String {
    match context.ui.sharing(it, context.findings, context.session).len() {
        0..=1 => verdict::whose(it, context),
        count => format!("{count} ranks"),
    }
}

/// Returns `rank 0 on GPU 0, rank 1 on GPU 1` of ranks with the same leak.
fn ranks(it: &Finding, context: &RenderContext) -> Option<String> {
    let all = context.ui.sharing(it, context.findings, context.session);
    names(all.iter().map(|it| verdict::whose(it, context))).filter(|_| all.len() > 1)
}

/// Returns how to make it expected, or, if it is, by which names, and how to undo that.
fn allow(it: &Finding, context: &RenderContext) -> Option<String> {
    let key = keys::BINDINGS
        .iter()
        .find(|it| it.command == Command::Host(HostCommand::Allow) && context.ui.no_allow.is_none());
    // Nobody means a job to die.
    if it.kind == Kind::Oom && !it.is_allowed() {
        return None;
    }
    if !it.is_allowed() {
        let who = key.map_or_else(|| "add".to_owned(), |it| format!("{} adds", it.keys));
        return Some(format!("meant to be so? {who} allow = [\"{}\"] to the config", alerts::name(it)));
    }
    let undo = key.map_or_else(String::new, |it| format!("; {} undoes it", it.keys));
    let by = context.ui.policy.allowing(it, context.session);
    let by = names(by.iter().map(|it| format!("\"{}\"", cells::raw(it.text()))))?;
    Some(format!("expected by allow = [{by}]{undo}"))
}

struct List<'a> {
    width: usize,
    context: &'a RenderContext<'a>,
}

impl List<'_> {
    /// ```text
    /// warning   rank 1 on GPU 1: allocated +4.00 MiB/step, tensors-retained
    ///           of several ranks with one leak: which ones
    ///           since step 12, noticed at step 31; full in 20739 steps, 43 min
    ///           after a capture: the line that allocates the growing memory, and its holder
    ///           → what to do
    ///           what a replay under other allocator settings shows
    ///           the figures it rests on
    /// ```
    fn open(&self, it: &Finding) -> Vec<Line<'static>> {
        let (severity, rest) =
            if it.is_allowed() { (Role::Dim, Role::Dim) } else { (verdict::role(it.severity), Role::Text) };
        let mut lines = self.head(it, it.severity.name(), severity, rest);
        let process = it.process(self.context.session);
        let continues = process.is_some_and(|process| verdict::continues(process, self.context));
        let pace = if continues { "" } else { "at that pace " };
        let forecast = it.forecast().map_or_else(String::new, |it| format!("; {pace}{it}"));
        let ago = units::duration(self.context.session.now.since(it.first_alert_at));
        if let Some(words) = ranks(it, self.context) {
            self.below(&mut lines, &words, rest);
        }
        self.below(&mut lines, &format!("{}, {ago} ago{forecast}", when(it)), rest);
        if it.follows.is_some() {
            return lines;
        }
        for sentence in it.sentence.iter().chain(it.culprit.as_ref().map(|it| &it.sentence)) {
            self.below(&mut lines, sentence, rest);
        }
        self.below(&mut lines, &format!("→ {}", it.remedy()), Role::Good);
        for words in it.saving.iter().filter(|_| !it.is_allowed()) {
            self.below(&mut lines, words, Role::Dim);
        }
        for (words, role) in it.replay_words().iter().zip(replay_roles(it.replayed.as_deref())) {
            self.below(&mut lines, words, role);
        }
        if let Some(words) = allow(it, self.context) {
            self.below(&mut lines, &words, Role::Dim);
        }
        lines.extend(self.source(it));
        let figures = figures(it);
        if !figures.is_empty() {
            self.below(&mut lines, &figures, Role::Dim);
        }
        lines
    }

    /// Returns the lines around the culprit's, or why there was no capture and how to request one.
    fn source(&self, it: &Finding) -> Vec<Line<'static>> {
        if let Some(it) = &it.culprit {
            return culprit::source(it, SOURCE, self.indent(), self.width, self.context);
        }
        let mut lines = Vec::new();
        let process = it.process(self.context.session);
        let on = process.and_then(|process| process.devices.iter().find(|on| Some(on.ordinal) == it.ordinal));
        let own = process.zip(on).filter(|_| it.kind == Kind::Growth && it.resource == Some(Resource::Allocated));
        if let Some(hint) = own.and_then(|(process, on)| culprit::hint(process, on, self.context)) {
            self.below(&mut lines, &hint, Role::Dim);
        }
        lines
    }

    fn ended(&self, it: &Finding) -> Vec<Line<'static>> {
        let word = if it.is_active() { "ended" } else { "resolved" };
        let mut lines = self.head(it, word, Role::Good, Role::Dim);
        let end = it.resolved_step.map(|step| format!("over at {}", it.place(step)));
        let has_left = it.process(self.context.session).is_some_and(Process::has_left);
        let end = end.unwrap_or_else(|| format!("until its {} ended", if has_left { "probe" } else { "process" }));
        self.below(&mut lines, &format!("{}, {end}", when(it)), Role::Dim);
        if let Some(culprit) = it.culprit.as_ref().filter(|_| it.follows.is_none()) {
            self.below(&mut lines, &culprit.sentence, Role::Dim);
        }
        lines
    }

    fn head(&self, it: &Finding, word: &str, role: Role, rest: Role) -> Vec<Line<'static>> {
        let words = self.what(it);
        let mut lines = Vec::new();
        self.below(&mut lines, &words, rest);
        let word = Span::styled(format!(" {}", cells::left(word, SEVERITY - 1)), self.context.style(role));
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

    /// Returns `rank 1 on GPU 1: allocated +4.00 MiB/step, tensors-retained`.
    fn what(&self, it: &Finding) -> String {
        let what = match (it.kind, it.resource) {
            (Kind::Growth, Some(resource)) => {
                format!("{} {}", resource.name(), it.slope().unwrap_or_else(|| cells::UNKNOWN.to_owned()))
            }
            (kind, Some(resource)) => format!("{} of {}", kind.name(), resource.name()),
            (kind, None) => kind.name().to_owned(),
        };
        if let Some(following) = it.following() {
            return format!("{}: {what}, {following}{}", whose(it, self.context), it.aside());
        }
        let cause = it.because().map_or_else(String::new, |id| format!(", {id}"));
        format!("{}: {what}{cause}{}", whose(it, self.context), it.aside())
    }

    fn below(&self, lines: &mut Vec<Line<'static>>, words: &str, role: Role) {
        let indent = self.indent();
        for it in cells::wrapped(words, self.width.saturating_sub(indent)) {
            lines.push(Line::from(vec![Span::raw(" ".repeat(indent)), Span::styled(it, self.context.style(role))]));
        }
    }

    fn indent(&self) -> usize {
        if self.width < NARROW { 3 } else { SEVERITY }
    }

    fn none(&self) -> Vec<Line<'static>> {
        let session = self.context.session;
        let devices = || session.processes.iter().flat_map(|it| &it.devices);
        let words = if session.processes.is_empty() {
            "none: without a probe nothing can be judged; gpuwatch run -- python train.py starts a job with one, gpuwatch \
             attach PID gives a running job one"
                .to_owned()
        } else if devices().all(|it| it.growth.watched() < it.growth.enough()) {
            let longest = devices().max_by_key(|it| it.growth.watched());
            let progress = longest.map_or_else(|| "no step".to_owned(), |it| it.growth.progress());
            format!("none so far: growth is not judged yet ({progress} were seen)")
        } else if self.context.findings.all.iter().any(|it| !self.context.ui.is_open(it, session)) {
            "none is open".to_owned()
        } else {
            "none: nothing was found that grows or wastes memory".to_owned()
        };
        let wrapped = cells::wrapped(&words, self.width.saturating_sub(1));
        wrapped.into_iter().map(|it| Line::styled(format!(" {it}"), self.context.style(Role::Text))).collect()
    }
}

/// Returns the role of each line of a replay: a better setting, the line to export, then the basis and the cost.
pub(super) fn replay_roles(it: Option<&Replayed>) -> impl Iterator<Item = Role> + use<> {
    let result = it.and_then(|it| it.result.as_ref().ok());
    let is_better = result.is_some_and(|it| it.best.is_some());
    let first = if is_better { Role::Good } else { Role::Dim };
    [first, first].into_iter().chain(std::iter::repeat(Role::Dim))
}

/// Returns its evidence in words.
fn figures(it: &Finding) -> String {
    let words = match it.kind {
        Kind::Stall | Kind::IdleMemory => [it.account.clone(), it.evidence.words()].concat(),
        kind if kind != Kind::Growth && !it.account.is_empty() => it.account.clone(),
        _ => it.evidence.words(),
    };
    words.join("; ")
}

/// Returns when it began and when it was raised, which is the same for instantaneous events.
fn when(it: &Finding) -> String {
    let shown = it.place(it.first_alert_step);
    if it.since_step < it.first_alert_step {
        format!("since {}, noticed at {shown}", it.since())
    } else {
        format!("at {shown}")
    }
}

//! The screen of many machines: jobs and their findings, machines as rows or ranks as a map, and what is selected.
//! Pure, for every size down to 0×0.

/// The machines as rows.
mod nodes;
/// The past of a rank.
mod rank_history;

use crate::{
    facts::units::{self, counted},
    model::{
        analysis::severity::Severity,
        cluster::{
            Answers, Link, NOTHING,
            overview::{JobRow, NodeRow, Overview, RankRow, figure::RankFigure, spread::Spread},
        },
        findings::Findings,
        session::Session,
    },
    screen::{
        theme::{Role, Theme},
        ui::{
            Chart, Command, Motion,
            cluster_ui::{ClusterCommand, ClusterUi, Shape},
        },
        view::{self, Drawn, RenderContext, cells, footer, header, heading, help, put, take, title, verdict},
    },
    sources::focus,
    storage::replay::Progress,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use std::cell::RefCell;

/// Rows from which on the selected item has lines of its own.
const DETAILED: u16 = 12;

/// The input of every box.
struct Scene<'a> {
    overview: &'a Overview,
    ui: &'a ClusterUi,
    /// The store that the rows come from, if they do.
    answers: Option<&'a Answers>,
    /// The figure over all running ranks.
    spread: Option<Spread>,
    /// Styles, keys, regions: what all screens have.
    context: RenderContext<'a>,
}

/// Draws the whole screen.
pub fn paint(
    buffer: &mut Buffer,
    overview: &Overview,
    ui: &ClusterUi,
    theme: &Theme,
    progress: Option<&Progress>,
) -> Drawn {
    painted(buffer, overview, ui, theme, progress, None)
}

/// The same with the rows of a store of figures, and the past of a rank in their place while it is open.
pub fn paint_store(
    buffer: &mut Buffer,
    overview: &Overview,
    ui: &ClusterUi,
    theme: &Theme,
    answers: &Answers,
) -> Drawn {
    painted(buffer, overview, ui, theme, None, Some(answers))
}

fn painted(
    buffer: &mut Buffer,
    overview: &Overview,
    ui: &ClusterUi,
    theme: &Theme,
    progress: Option<&Progress>,
    answers: Option<&Answers>,
) -> Drawn {
    let area = buffer.area;
    // The boxes of one machine are not here.
    let (session, findings) = (Session::default(), Findings::default());
    let regions = RefCell::default();
    let context = RenderContext { session: &session, findings: &findings, ui: &ui.base, theme, progress, regions };
    let scene = Scene { overview, ui, answers, spread: overview.spread(ui.figure, None), context };
    buffer.set_style(area, scene.context.style(Role::Text));
    let columns = arrange(buffer, area, &scene);
    let help_most = if ui.base.help { help::draw(buffer, area, &scene.context) } else { 0 };
    if theme.is_ascii() {
        view::draw_ascii(buffer, area);
    }
    Drawn { help_most, columns, regions: scene.context.regions.take(), focus: focus::Focus::None, ..Drawn::default() }
}

/// Arranges the boxes; returns the columns of the map:
///
/// ```text
/// header     what needs attention, what is up
/// trouble    why a store of figures does not answer, only while it does not
/// jobs       a line for each, with its findings; at most a third of the rows
/// machines   a row each, or the ranks as a map
/// detail     what is selected, in full
/// footer     the keys; of recordings, where they stand
/// ```
///
/// Below 8 rows there is no footer, below 12 neither jobs nor detail. The past of a rank, or why a store has no rows,
/// takes the place of what is between trouble and footer.
fn arrange(buffer: &mut Buffer, area: Rect, scene: &Scene) -> usize {
    let mut rest = area;
    let footed = area.height >= 8 || footer::has_text(&scene.context);
    top_line(buffer, take(&mut rest, 1), scene, footed);
    if scene.context.progress.is_some() {
        let keys = |buffer: &mut Buffer, row| footer::draw_with(buffer, row, keys(scene), &scene.context);
        header::draw_playback(buffer, &mut rest, area.height, &scene.context, keys);
    } else if footed {
        let bottom = Rect { y: rest.bottom().saturating_sub(1), height: rest.height.min(1), ..rest };
        rest.height = rest.height.saturating_sub(1);
        footer::draw_with(buffer, bottom, keys(scene), &scene.context);
    }
    if scene.answers.is_some_and(|it| draw_store(buffer, &mut rest, it, scene)) {
        return 0;
    }
    if area.height >= DETAILED {
        draw_jobs(buffer, &mut rest, usize::from(area.height / 3), scene);
        let height = detail_height(area.height).min(rest.height);
        let bottom = Rect { y: rest.bottom() - height, height, ..rest };
        rest.height -= height;
        draw_detail(buffer, bottom, scene);
    }
    match scene.ui.shape(scene.overview) {
        Shape::Machines => {
            nodes::draw(buffer, rest, scene);
            0
        }
        Shape::Map => nodes::draw_map(buffer, rest, scene),
    }
}

/// `gpuwatch  2 need attention  64 machines  62 up  2 jobs  512 ranks`; of a store, its address and the age of its
/// figures instead of the links.
fn top_line(buffer: &mut Buffer, area: Rect, scene: &Scene, footed: bool) {
    let overview = scene.overview;
    let severities = || overview.nodes.iter().filter_map(NodeRow::severity);
    let urgent = severities().filter(|it| *it >= Severity::Warning).count();
    let up = overview.nodes.iter().filter(|it| it.link == Link::Up).count();
    let ranks = overview.ranks.iter().filter(|it| !it.ended).count();
    let mut pieces = vec![("gpuwatch".to_owned(), Role::Title)];
    if scene.ui.base.frozen {
        pieces.push(("FROZEN".to_owned(), Role::Warning));
    }
    pieces.extend(scene.answers.into_iter().flat_map(store_status));
    if urgent > 0 {
        let verb = if urgent == 1 { "needs" } else { "need" };
        let role = severities().max().map_or(Role::Text, verdict::role);
        pieces.push((format!("{urgent} {verb} attention"), role));
    }
    pieces.push((counted(overview.nodes.len() as u64, "machine"), Role::Dim));
    if scene.answers.is_none() {
        pieces.push((format!("{up} up"), Role::Dim));
    }
    pieces.push((counted(overview.jobs.len() as u64, "job"), Role::Dim));
    pieces.push((counted(ranks as u64, "rank"), Role::Dim));
    let leave = if footed { "" } else { "q quit" };
    let width = usize::from(area.width).saturating_sub(if footed { 0 } else { 8 });
    let (spans, _) = header::fitting(pieces, width, &scene.context);
    put(buffer, area, 0, &Line::from(spans));
    if !footed {
        put(buffer, area, 0, &Line::styled(leave, scene.context.style(Role::Dim)).right_aligned());
    }
}

/// The keys worth a place in the last line.
fn keys(scene: &Scene) -> &'static [footer::Hint] {
    const QUIT: footer::Hint = (&[Command::Quit], "quit");
    const HELP: footer::Hint = (&[Command::Help], "help");
    const BACK: footer::Hint = (&[Command::Back], "back");
    const OPEN: footer::Hint = (&[Command::Open], "open");
    const MOVE: footer::Hint = (&[Command::Move(Motion::Up), Command::Move(Motion::Down)], "move");
    const FIGURE: footer::Hint =
        (&[Command::Cluster(ClusterCommand::PreviousFigure), Command::Cluster(ClusterCommand::NextFigure)], "figure");
    const ORDER: footer::Hint = (&[Command::Order], "order");
    const FILTER: footer::Hint = (&[Command::Filter], "filter");
    const FREEZE: footer::Hint = (&[Command::Freeze], "freeze");
    const MAP: footer::Hint = (&[Command::Cluster(ClusterCommand::Map)], "map of ranks");
    const MACHINES: footer::Hint = (&[Command::Cluster(ClusterCommand::Map)], "machines");
    const PAST: footer::Hint = (&[Command::Open], "history");
    const RANK: footer::Hint = (&[Command::Move(Motion::Up), Command::Move(Motion::Down)], "rank");
    const SPAN: footer::Hint = (&[Command::Chart(Chart::Minus), Command::Chart(Chart::Plus)], "span");
    match scene.ui.shape(scene.overview) {
        _ if scene.ui.base.help => &[BACK, QUIT, MOVE],
        _ if scene.ui.is_past() => &[BACK, QUIT, HELP, FIGURE, SPAN, RANK],
        Shape::Machines if scene.answers.is_some() => &[QUIT, HELP, PAST, MAP, FIGURE, ORDER, FILTER, MOVE, FREEZE],
        Shape::Map if scene.answers.is_some() => &[QUIT, HELP, PAST, MACHINES, FIGURE, ORDER, FILTER, MOVE, FREEZE],
        Shape::Machines => &[QUIT, HELP, OPEN, MAP, FIGURE, ORDER, FILTER, MOVE, FREEZE],
        Shape::Map => &[QUIT, HELP, OPEN, MACHINES, FIGURE, ORDER, FILTER, MOVE, FREEZE],
    }
}

/// Returns `worst 97 % on node03, median 84 %, 2 outliers`: the figure over all ranks.
fn summary(scene: &Scene) -> Option<String> {
    let (figure, spread) = (scene.ui.figure, scene.spread?);
    let is_worst = |it: &&RankRow| !it.ended && it.figures.get(figure) == Some(spread.worst);
    let host = scene.overview.ranks.iter().find(is_worst).and_then(|it| scene.overview.nodes.get(it.node));
    let host = host.map_or_else(String::new, |node| format!(" on {}", cells::foreign(&node.host)));
    let outliers = scene.overview.outliers(figure).len();
    let outliers = if outliers > 0 { format!(", {}", counted(outliers as u64, "outlier")) } else { String::new() };
    let (worst, median) = (figure.format(spread.worst), figure.format(spread.median));
    Some(format!("worst {worst}{host}, median {median}{outliers}"))
}

/// Returns the cell of a rank: how bad its figure is as a digit, and the role of its colour.
fn cell(it: &RankRow, scene: &Scene) -> (char, Role) {
    let is_up = scene.overview.nodes.get(it.node).is_some_and(|node| node.link == Link::Up);
    if it.ended {
        return ('x', Role::Dim);
    }
    let level = it.figures.get(scene.ui.figure).zip(scene.spread).map(|(value, spread)| spread.level(value));
    let Some(level) = level.filter(|_| is_up) else { return (if is_up { '-' } else { '?' }, Role::Dim) };
    let role = match level {
        ..0.5 => Role::Good,
        ..0.75 => Role::Spark,
        ..0.9 => Role::Warning,
        _ => Role::Bad,
    };
    let tenth = DIGITS.iter().zip(1_u32..).find(|(_, end)| level * 10.0 < f64::from(*end));
    (tenth.map_or('9', |it| *it.0), role)
}

const DIGITS: [char; 10] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];

/// Returns the mark of a rank with a finding.
fn mark(severity: Option<Severity>) -> Option<(char, Role)> {
    match severity? {
        Severity::Critical => Some(('!', Role::Bad)),
        Severity::Warning => Some(('+', Role::Warning)),
        Severity::Info => None,
    }
}

/// Returns the rows that it has on a screen of this height.
fn detail_height(screen: u16) -> u16 {
    if screen < 20 { 2 } else { 4 }
}

/// Draws a heading and as many lines as fit.
fn draw_detail(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let width = usize::from(area.width);
    let Some((name, text, role)) = words(scene) else { return };
    put(buffer, area, 0, &heading(&cells::elide(&name, width.saturating_sub(6)), width, &scene.context));
    for (row, words) in cells::wrapped(&text, width.saturating_sub(2)).into_iter().enumerate() {
        put(buffer, area, row + 1, &Line::from(Span::styled(format!(" {words}"), scene.context.style(role))));
    }
}

/// Returns the name of what is selected, its description, and the description's role.
fn words(scene: &Scene) -> Option<(String, String, Role)> {
    let overview = scene.overview;
    match scene.ui.shape(overview) {
        Shape::Machines => {
            let node = overview.nodes.get(scene.ui.selected(overview)?.node)?;
            let state: String =
                nodes::state(node, |it| scene.context.style(it)).iter().map(|it| it.content.as_ref()).collect();
            let role = node.severity().map_or(Role::Dim, verdict::role);
            let state = if state.is_empty() { "nothing needs attention".to_owned() } else { state };
            Some((format!("{}: {}", cells::foreign(&node.host), node.link.name()), state, role))
        }
        Shape::Map => {
            let listed = scene.ui.ranks(overview);
            let rank = overview.ranks.get(*listed.get(scene.ui.rank_place(&listed, overview))?)?;
            let role = rank.worst.as_ref().map_or(Role::Dim, |worst| verdict::role(worst.severity));
            Some((name(rank, scene), detail_figures(rank), role))
        }
    }
}

/// Returns `rank 5 on node03, pid 4242, slurm 7`.
fn name(it: &RankRow, scene: &Scene) -> String {
    let overview = scene.overview;
    let host = overview.nodes.get(it.node).map_or_else(String::new, |node| cells::foreign(&node.host));
    let rank = it.rank.map_or_else(|| "a process".to_owned(), |rank| format!("rank {rank}"));
    let pid = it.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    let job = it.job.and_then(|job| overview.jobs.get(job));
    let job = job.map_or_else(String::new, |job| format!(", {}", cells::foreign(&job.name)));
    let ended = if it.ended { ", ended" } else { "" };
    format!("{rank} on {host}{pid}{job}{ended}")
}

/// Returns the worst finding, and every known figure with its label.
fn detail_figures(it: &RankRow) -> String {
    let worst = it.worst.as_ref().map(|worst| format!("{}: {}", worst.severity.name(), cells::raw(&worst.title)));
    let step = it.step.map(|step| format!("step {step}"));
    let known = RankFigure::TABLE.iter().filter_map(|row| {
        let value = it.figures.get(row.figure)?;
        Some(format!("{} {}", row.label, row.figure.format(value)))
    });
    worst.into_iter().chain(step).chain(known).collect::<Vec<_>>().join(" · ")
}

/// Findings of a job that are listed.
const FINDINGS: usize = 3;

/// Draws the title and as many lines as there are, at most `most` rows, and cuts them off the rest.
fn draw_jobs(buffer: &mut Buffer, rest: &mut Rect, most: usize, scene: &Scene) {
    let order = scene.overview.job_order();
    let jobs = order.iter().filter_map(|it| scene.overview.jobs.get(*it)).filter(|it| is_listed(it));
    let mut lines: Vec<Line> = jobs.flat_map(|it| lines(it, scene)).collect();
    if lines.is_empty() || most < 2 {
        return;
    }
    if lines.len() + 1 > most {
        lines.truncate(most.saturating_sub(2));
        lines.push(Line::styled(" …", scene.context.style(Role::Dim)));
    }
    let area = take(rest, lines.len() + 1);
    title(buffer, area, "jobs", Vec::new(), &scene.context);
    lines.iter().enumerate().for_each(|(row, line)| put(buffer, area, row + 1, line));
}

/// Whether a job is more than a process on its own.
fn is_listed(it: &JobRow) -> bool {
    it.present > 1 || it.expected.is_some() || !it.findings.is_empty()
}

/// Returns ` slurm 4242  512 of 512 ranks on 64 machines, steps 10200 to 10204`, and a line for each finding.
fn lines<'a>(it: &'a JobRow, scene: &'a Scene) -> impl Iterator<Item = Line<'static>> + 'a {
    let style = |role| scene.context.style(role);
    let ranks = match it.expected {
        Some(expected) => format!("{} of {}", it.present, counted(expected, "rank")),
        None => counted(it.present, "rank"),
    };
    let machines = counted(it.nodes, "machine");
    let steps = match it.steps {
        Some((last, first)) if last == first => format!(", step {first}"),
        Some((last, first)) => format!(", steps {last} to {first}"),
        None => String::new(),
    };
    let head = Line::from(vec![
        Span::styled(format!(" {}", cells::foreign(&it.name)), style(Role::Text)),
        Span::styled(format!("  {ranks} on {machines}{steps}"), style(Role::Dim)),
    ]);
    let found = it.findings.iter().take(FINDINGS).map(move |found| {
        Line::from(vec![
            Span::styled(format!("   {}: ", found.severity.name()), style(verdict::role(found.severity))),
            Span::styled(cells::raw(&found.title), style(Role::Text)),
        ])
    });
    std::iter::once(head).chain(found)
}

/// Figures that are older than this are late, in µs.
const LATE_US: u64 = 30_000_000;

/// The most columns of an address.
const ADDRESS: usize = 40;

/// Returns what the first line has of a store: `http://127.0.0.1:9090  3 s old`.
fn store_status(answers: &Answers) -> [(String, Role); 2] {
    let age = match answers.age_us {
        Some(us) => (format!("{} old", units::duration(us)), if us >= LATE_US { Role::Warning } else { Role::Dim }),
        None => ("no answer yet".to_owned(), Role::Dim),
    };
    [(cells::elide(&cells::foreign(&answers.store), ADDRESS), Role::Key), age]
}

/// Draws the trouble, and what takes the place of rows; returns whether something does.
fn draw_store(buffer: &mut Buffer, rest: &mut Rect, answers: &Answers, scene: &Scene) -> bool {
    if let Some(why) = &answers.trouble {
        let style = scene.context.style(Role::Warning);
        put(buffer, take(rest, 1), 0, &Line::styled(format!(" {}", cells::foreign(why)), style));
    }
    if scene.ui.is_past() {
        rank_history::draw(buffer, *rest, answers, scene);
        return true;
    }
    let is_empty = scene.overview.nodes.is_empty();
    let store = cells::foreign(&answers.store);
    let words = match answers {
        _ if !is_empty => return false,
        Answers { age_us: Some(_), .. } => format!("{store} {NOTHING}"),
        Answers { trouble: Some(_), .. } => "gpuwatch asks again".to_owned(),
        _ => format!("asking {store}"),
    };
    let style = scene.context.style(Role::Dim);
    for (row, words) in cells::wrapped(&words, usize::from(rest.width).saturating_sub(2)).iter().enumerate() {
        put(buffer, *rest, row + 1, &Line::styled(format!(" {words}"), style));
    }
    true
}

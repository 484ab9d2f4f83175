//! The state of the user interface for many machines: what is listed, by which figure, and what is selected.

pub use crate::screen::ui::command::ClusterCommand;
use crate::{
    model::cluster::overview::{NodeRow, Overview, RankId, RankRow, figure::RankFigure},
    screen::ui::{
        Answer, Chart, Command, Motion, Request, Screen, Source, Ui,
        mouse::{Mouse, Regions, Target},
        moved,
        rows::Filter,
    },
};

/// From so many ranks on, the screen begins with a map of them.
const MANY: usize = 100;

/// Rows of a map that a page key moves by.
const PAGE_ROWS: usize = 5;

/// What the screen lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// A row for each machine.
    #[default]
    Machines,
    /// A cell for each rank.
    Map,
}

/// The order of machines and ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Those that need attention first.
    #[default]
    Attention,
    /// Those with the worst figure first.
    Figure,
    /// Machines as the user lists them, ranks by their number.
    Name,
}

impl Order {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Attention, "what needs attention first"), (Self::Figure, "the worst first"), (Self::Name, "by name")];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|it| it.0 == self).map_or("", |it| it.1)
    }

    fn next(self) -> Self {
        let here = Self::ALL.iter().position(|it| it.0 == self).unwrap_or(0);
        Self::ALL.get((here + 1) % Self::ALL.len()).map(|it| it.0).unwrap_or_default()
    }
}

/// A machine to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Its place in the overview.
    pub node: usize,
    /// The place of the rank to select there.
    pub rank: Option<usize>,
}

/// The state of the user interface for many machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterUi {
    /// Help, filter, message, freeze, and the request to the loop.
    pub base: Ui,
    /// The figure by which ranks are compared.
    pub figure: RankFigure,
    /// What the screen lists; `None` before the user chooses.
    pub shape: Option<Shape>,
    /// The order.
    pub order: Order,
    /// The selected machine, by its place in the overview; `None` is the first of the list.
    pub node: Option<usize>,
    /// The selected rank; `None` is the first of the map.
    pub rank: Option<RankId>,
    /// Cells in a row of the latest map.
    pub columns: usize,
    /// How long the past of a rank is.
    pub span: HistoryLength,
    /// The machine that the last command opens.
    pub opening: Option<Opening>,
}

impl ClusterUi {
    /// Creates the state around the one that all screens have.
    pub fn new(base: Ui) -> Self {
        Self { base: Ui { source: Source::Cluster, ..base }, ..Self::default() }
    }

    /// Creates the same for the machines' recordings.
    pub fn of_recordings(base: Ui) -> Self {
        Self { base: Ui { source: Source::Recordings, ..base }, ..Self::default() }
    }

    /// Creates the same for the ranks that a store of figures has.
    pub fn of_store(base: Ui) -> Self {
        Self { base: Ui { source: Source::Store, ..base }, ..Self::default() }
    }

    /// Returns what the screen lists.
    pub fn shape(&self, overview: &Overview) -> Shape {
        let usual = || if overview.ranks.len() >= MANY { Shape::Map } else { Shape::Machines };
        self.shape.unwrap_or_else(usual)
    }

    /// Handles a command.
    pub fn update(&mut self, command: Command, overview: &Overview) {
        self.base.status = None;
        match command {
            Command::Quit => self.base.quit = true,
            Command::Suspend => self.base.request = Some(Request::Suspend),
            Command::Redraw => self.base.request = Some(Request::Redraw),
            Command::Theme => self.base.request = Some(Request::Theme),
            command if self.base.filter.typing => self.type_filter(command.answer(), overview),
            Command::Help => (self.base.help, self.base.help_scroll) = (!self.base.help, 0),
            Command::Back if self.base.help => self.base.help = false,
            Command::Move(it) if self.base.help => self.base.help_scroll = moved(it, self.base.help_scroll),
            _ if self.base.help => self.base.help_scroll = 0,
            Command::Back if self.is_past() => self.base.screen = Screen::Overview,
            Command::Back => self.base.filter = Filter::default(),
            Command::Cluster(it) => self.update_own(it, overview),
            Command::Replay(it) => self.base.request = Some(Request::Replay(it)),
            Command::Freeze => self.base.frozen = !self.base.frozen,
            Command::Filter => self.base.filter.typing = true,
            Command::Order => {
                self.order = self.order.next();
                self.base.show_message(self.order.name());
            }
            Command::Copy => self.copy(overview),
            Command::Move(it) => self.travel(it, overview),
            Command::Open => self.open(overview),
            Command::Chart(it) => self.change_span(it),
            // Only the screens of one machine have these.
            Command::Host(_)
            | Command::NextBox
            | Command::PreviousBox
            | Command::Device(_)
            | Command::Edit(_)
            | Command::Invert
            | Command::Limit(_)
            | Command::Yes
            | Command::Snapshot(_) => {}
        }
    }

    fn update_own(&mut self, command: ClusterCommand, overview: &Overview) {
        match command {
            ClusterCommand::NextFigure | ClusterCommand::PreviousFigure => {
                self.figure = self.next_figure(command == ClusterCommand::NextFigure, overview);
                let row = self.figure.row();
                self.base.show_message(format!("{}: {}", row.label, row.meaning));
            }
            ClusterCommand::Map => {
                self.shape = Some(match self.shape(overview) {
                    Shape::Machines => Shape::Map,
                    Shape::Map => Shape::Machines,
                });
            }
        }
    }

    /// Returns the next figure, or the one before; of a store, one that it has.
    fn next_figure(&self, forward: bool, overview: &Overview) -> RankFigure {
        let is_known = |figure| overview.ranks.iter().any(|it| it.figures.get(figure).is_some());
        let mut figure = self.figure.next(forward);
        while self.base.source == Source::Store && figure != self.figure && !is_known(figure) {
            figure = figure.next(forward);
        }
        figure
    }

    fn type_filter(&mut self, answer: Answer, overview: &Overview) {
        let filter = &mut self.base.filter;
        match answer {
            Answer::Edit(it) => filter.edit(it),
            Answer::Accept => filter.typing = false,
            Answer::Cancel => *filter = Filter::default(),
            Answer::Up => self.travel(Motion::Up, overview),
            Answer::Down => self.travel(Motion::Down, overview),
            Answer::Yes | Answer::Limit(_) | Answer::Other => {}
        }
    }

    /// Moves the selection: by a cell or a row of the map, by a row of the machines.
    fn travel(&mut self, motion: Motion, overview: &Overview) {
        let (here, columns) = match self.shape(overview) {
            _ if self.is_past() => (self.rank_place(&self.ranks(overview), overview), Some(1)),
            Shape::Machines => (self.node_place(&self.nodes(overview)), None),
            Shape::Map => (self.rank_place(&self.ranks(overview), overview), Some(self.columns.max(1))),
        };
        let there = match (motion, columns) {
            (Motion::Left, Some(_)) => here.saturating_sub(1),
            (Motion::Right, Some(_)) => here.saturating_add(1),
            (Motion::Up, Some(columns)) => here.checked_sub(columns).unwrap_or(here),
            (Motion::Down, Some(columns)) => here.saturating_add(columns),
            (Motion::PageUp, Some(columns)) => here.saturating_sub(PAGE_ROWS * columns),
            (Motion::PageDown, Some(columns)) => here.saturating_add(PAGE_ROWS * columns),
            (Motion::Left | Motion::Right, None) => here,
            (motion, _) => moved(motion, here),
        };
        self.select(there, overview);
    }

    /// Selects by the place in the list, at most the last.
    fn select(&mut self, place: usize, overview: &Overview) {
        match self.shape(overview) {
            Shape::Machines if !self.is_past() => {
                let listed = self.nodes(overview);
                self.node = listed.get(place.min(listed.len().saturating_sub(1))).copied();
            }
            Shape::Machines | Shape::Map => {
                let listed = self.ranks(overview);
                let rank = listed.get(place.min(listed.len().saturating_sub(1)));
                self.rank = rank.and_then(|it| overview.ranks.get(*it)).map(RankRow::id);
            }
        }
    }

    /// Returns the selected machine, and the rank that is selected with it.
    pub fn selected(&self, overview: &Overview) -> Option<Opening> {
        match self.shape(overview) {
            Shape::Machines => {
                let listed = self.nodes(overview);
                listed.get(self.node_place(&listed)).map(|node| Opening { node: *node, rank: None })
            }
            Shape::Map => {
                let listed = self.ranks(overview);
                let place = *listed.get(self.rank_place(&listed, overview))?;
                Some(Opening { node: overview.ranks.get(place)?.node, rank: Some(place) })
            }
        }
    }

    fn open(&mut self, overview: &Overview) {
        self.opening = self.selected(overview);
        if self.opening.is_none() {
            self.base.show_message("nothing is selected that could be opened");
        }
    }

    fn copy(&mut self, overview: &Overview) {
        let node = self.selected(overview).and_then(|it| overview.nodes.get(it.node));
        match node {
            Some(it) => self.base.request = Some(Request::Copy(it.host.to_string())),
            None => self.base.show_message("nothing is selected that could be copied"),
        }
    }
}

impl ClusterUi {
    /// Returns the places of the machines that match the filter, in the chosen order.
    pub fn nodes(&self, overview: &Overview) -> Vec<usize> {
        let mut order = match self.order {
            Order::Attention => overview.node_order(),
            Order::Figure | Order::Name => (0..overview.nodes.len()).collect(),
        };
        if self.order == Order::Figure {
            let mut worst = vec![f64::NEG_INFINITY; overview.nodes.len()];
            for it in overview.ranks.iter().filter(|it| !it.ended) {
                let bad = it.figures.get(self.figure).map(|value| self.figure.badness(value));
                if let Some((worst, bad)) = worst.get_mut(it.node).zip(bad) {
                    *worst = worst.max(bad);
                }
            }
            let bad = |place: &usize| worst.get(*place).copied().unwrap_or(f64::NEG_INFINITY);
            order.sort_by(|one, other| bad(other).total_cmp(&bad(one)));
        }
        let wanted = self.wanted();
        order.retain(|it| overview.nodes.get(*it).is_some_and(|row| matches(&wanted, || of_node(row))));
        order
    }

    /// Returns the places of the ranks that match the filter, in the chosen order.
    pub fn ranks(&self, overview: &Overview) -> Vec<usize> {
        let row = |place: &usize| overview.ranks.get(*place);
        let mut order = match self.order {
            Order::Attention => overview.rank_order(self.figure),
            Order::Figure | Order::Name => (0..overview.ranks.len()).collect(),
        };
        match self.order {
            Order::Attention => {}
            Order::Figure => {
                let value = |it: &RankRow| it.figures.get(self.figure).filter(|_| !it.ended);
                let bad = |place: &usize| row(place).and_then(value).map(|it| self.figure.badness(it));
                let bad = |place: &usize| bad(place).unwrap_or(f64::NEG_INFINITY);
                order.sort_by(|one, other| bad(other).total_cmp(&bad(one)));
            }
            Order::Name => order.sort_by_key(|place| row(place).map(|it| (it.job, it.rank, it.node))),
        }
        let wanted = self.wanted();
        order.retain(|it| row(it).is_some_and(|row| matches(&wanted, || of_rank(row, overview))));
        order
    }

    /// Returns the place of the selected machine in the list.
    pub fn node_place(&self, listed: &[usize]) -> usize {
        listed.iter().position(|it| Some(*it) == self.node).unwrap_or(0)
    }

    /// Returns the place of the selected rank in the list.
    pub fn rank_place(&self, listed: &[usize], overview: &Overview) -> usize {
        let is_selected = |it: &usize| overview.ranks.get(*it).map(RankRow::id) == self.rank;
        listed.iter().position(is_selected).unwrap_or(0)
    }

    fn wanted(&self) -> String {
        self.base.filter.text.trim().to_lowercase()
    }
}

/// Whether the words of a row contain a text.
fn matches(wanted: &str, words: impl FnOnce() -> String) -> bool {
    wanted.is_empty() || words().to_lowercase().contains(wanted)
}

fn of_node(it: &NodeRow) -> String {
    let why = it.link.why().map_or("", |why| why.raw());
    let worst = it.worst.as_ref().map_or_else(String::new, |it| format!("{} {}", it.severity.name(), it.title));
    format!("{} {} {why} {worst}", it.host.raw(), it.link.name())
}

fn of_rank(it: &RankRow, overview: &Overview) -> String {
    let host = overview.nodes.get(it.node).map_or("", |node| node.host.raw());
    let job = it.job.and_then(|job| overview.jobs.get(job)).map_or("", |job| job.name.raw());
    let rank = it.rank.map_or_else(String::new, |rank| format!("rank {rank}"));
    let pid = it.pid.map_or_else(String::new, |pid| format!("pid {pid}"));
    let worst = it.worst.as_ref().map_or_else(String::new, |it| format!("{} {}", it.severity.name(), it.title));
    format!("{host} {rank} {pid} {job} {worst}")
}

impl ClusterUi {
    /// Handles a mouse event in a frame.
    pub fn mouse(&mut self, mouse: Mouse, regions: &Regions, overview: &Overview) {
        let (Mouse::Press(at) | Mouse::Double(at) | Mouse::Drag(at) | Mouse::Wheel(at, _)) = mouse;
        match (mouse, regions.at(at).next().map(|it| it.1.clone())) {
            (Mouse::Wheel(_, true), _) => self.update(Command::Move(Motion::Up), overview),
            (Mouse::Wheel(_, false), _) => self.update(Command::Move(Motion::Down), overview),
            (Mouse::Drag(_), _) => {}
            (_, None) => (self.base.help, self.base.filter.typing) = (false, false),
            _ if self.base.help => self.base.help = false,
            (_, Some(Target::Key(command))) => self.update(command, overview),
            (_, Some(Target::Line(line))) => {
                self.base.status = None;
                self.select(line, overview);
                if matches!(mouse, Mouse::Double(_)) {
                    self.update(Command::Open, overview);
                }
            }
            // The screens of one machine have the others.
            (_, Some(_)) => {}
        }
    }
}

/// How long a past is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table has words for each")]
pub enum HistoryLength {
    QuarterHour,
    #[default]
    Hour,
    QuarterDay,
    Day,
    Week,
}

impl HistoryLength {
    const ALL: [(Self, u64, &'static str); 5] = [
        (Self::QuarterHour, 900, "15 minutes"),
        (Self::Hour, 3600, "hour"),
        (Self::QuarterDay, 6 * 3600, "6 hours"),
        (Self::Day, 86_400, "day"),
        (Self::Week, 7 * 86_400, "week"),
    ];

    fn place(self) -> usize {
        Self::ALL.iter().position(|it| it.0 == self).unwrap_or(0)
    }

    /// Returns its length in seconds.
    pub fn seconds(self) -> u64 {
        Self::ALL.get(self.place()).map_or(0, |it| it.1)
    }

    /// Returns its name, as in `the last hour`.
    pub fn name(self) -> &'static str {
        Self::ALL.get(self.place()).map_or("", |it| it.2)
    }

    /// Returns the next longer or shorter one, or the same if there is none.
    fn next(self, is_longer: bool) -> Self {
        let place = if is_longer { Some(self.place() + 1) } else { self.place().checked_sub(1) };
        place.and_then(|it| Self::ALL.get(it)).map_or(self, |it| it.0)
    }
}

impl ClusterUi {
    /// Returns whether the past of a rank is open.
    pub fn is_past(&self) -> bool {
        self.base.source == Source::Store && self.base.screen == Screen::Timeline
    }

    /// Opens the past of a rank, or of the worst rank of a machine.
    pub fn open_past(&mut self, opening: Opening, overview: &Overview) {
        let of_machine = || {
            let is_there = |it: &usize| overview.ranks.get(*it).is_some_and(|row| row.node == opening.node);
            overview.rank_order(self.figure).into_iter().find(is_there)
        };
        if let Some(row) = opening.rank.or_else(of_machine).and_then(|it| overview.ranks.get(it)) {
            (self.rank, self.base.screen) = (Some(row.id()), Screen::Timeline);
        } else if let Some(node) = overview.nodes.get(opening.node) {
            self.base
                .show_message(format!("{} has no rank with figures: `ssh -t HOST gpuwatch` shows more", node.host));
        }
    }

    /// Returns the place of the rank that the user selected.
    pub fn chosen(&self, overview: &Overview) -> Option<usize> {
        overview.ranks.iter().position(|it| Some(it.id()) == self.rank)
    }

    /// Keeps the selection in the rows of another answer, where places differ; `rank` is the place of the selected rank
    /// there.
    pub fn follow(&mut self, before: &Overview, now: &Overview, rank: Option<usize>) {
        let host = self.node.and_then(|it| before.nodes.get(it)).map(|it| &it.host);
        self.node = host.and_then(|host| now.nodes.iter().position(|it| it.host == *host));
        let row = rank.and_then(|it| now.ranks.get(it));
        // A rank that is gone stays selected, so that its past does not become another one's.
        let gone = |it| RankId { node: usize::MAX, ..it };
        self.rank = self.rank.map(|it| row.map_or(gone(it), RankRow::id));
    }

    fn change_span(&mut self, chart: Chart) {
        match chart {
            Chart::Plus | Chart::Minus => self.span = self.span.next(chart == Chart::Minus),
            Chart::Reset | Chart::Axis | Chart::Scale => {}
        }
    }
}

#[cfg(test)]
mod tests;

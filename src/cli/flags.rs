//! Flags that several subcommands share: of screens and screenshots, and of what they show of other machines.

use crate::{
    hosts::{
        list,
        plan::{self, Plan, Transport},
        prometheus::{Store, query::Matcher},
    },
    net::token::Token,
    screen::{
        effects::Options,
        event_loop::End,
        term,
        theme::{AUTO, Background, Choice, ColorDepth, Fault, Graph, Theme},
        ui::{preset::Preset, snapshot_ui::Page},
    },
    storage::input,
};
use anyhow::{Context, Result};
use clap::{ValueEnum, builder::FalseyValueParser};
use std::{env, ops::Deref, path::PathBuf, str::FromStr};

/// Why there is a text in place of a screen.
pub(crate) const NO_SCREEN: &str = "no terminal for the live view (stdin, stdout or TERM): the same as `gpuwatch once`";

/// Why a read-only view sends nothing.
pub(crate) const NO_SIGNALS: &str = "this view is --readonly: no signals are sent from here";

/// Why a read-only view writes nothing.
pub(crate) const READONLY: &str = "this view is --readonly: it writes no config";

/// The background where no terminal has one.
const DARK: Option<Background> = Some(Background::Dark);

/// Options of every screen.
#[derive(Debug, clap::Args)]
pub(crate) struct ScreenOptions<W: ValueEnum + Default + Send + Sync + 'static = ScreenChoice> {
    /// Colours: auto (dusk or paper, as the terminal's background is), dusk (for dark terminals), paper (for light
    /// ones), contrast, colorblind, colorblind-light, neutral (for any background), plain (the terminal's sixteen),
    /// mono; one of your own in `$XDG_CONFIG_HOME/gpuwatch/themes/NAME.toml`; or a file's path.
    #[arg(long, env = "GPUWATCH_THEME", value_name = "NAME", default_value = AUTO)]
    pub(crate) theme: String,
    /// How many colours to use; by default, COLORTERM, TERM and `NO_COLOR` decide.
    #[arg(long, env = "GPUWATCH_COLOR", value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: Colors,
    /// The characters of graphs; by default block, or ascii where the locale is not UTF-8.
    #[arg(long, env = "GPUWATCH_GRAPH", value_name = "KIND", value_enum)]
    pub(crate) graph: Option<Graph>,
    /// Send no signals and no requests to jobs; for shared machines and demonstrations.
    #[arg(long, env = "GPUWATCH_READONLY", value_parser = FalseyValueParser::new())]
    pub(crate) readonly: bool,
    /// Leave the mouse to the terminal, for example to select text.
    #[arg(long, env = "GPUWATCH_NO_MOUSE", value_parser = FalseyValueParser::new())]
    pub(crate) no_mouse: bool,
    #[command(flatten)]
    pub(crate) shot: ScreenshotFlags<W>,
}

/// Options of the screens of jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct OverviewOptions {
    #[command(flatten)]
    pub(crate) screen: ScreenOptions,
    /// What the overview shows at first; the key v changes it.
    #[arg(long, env = "GPUWATCH_PRESET", value_name = "NAME", value_enum, default_value_t)]
    pub(crate) preset: Preset,
}

/// How many colours are drawn with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colors {
    /// As many as the terminal reports.
    #[default]
    Auto,
    /// None.
    Never,
    /// The terminal's own sixteen.
    #[value(name = "16")]
    Ansi16,
    /// The 256 of xterm.
    #[value(name = "256")]
    Ansi256,
    /// 24 bits.
    Truecolor,
}

impl Deref for OverviewOptions {
    type Target = ScreenOptions;

    fn deref(&self) -> &ScreenOptions {
        &self.screen
    }
}

impl<W: ValueEnum + Default + Send + Sync + 'static> ScreenOptions<W> {
    /// Returns the theme, with the colours and characters that the terminal has.
    pub(crate) fn theme(&self) -> Result<Choice, Fault> {
        let depth = match self.color {
            Colors::Auto => term::color_depth(),
            Colors::Never => ColorDepth::None,
            Colors::Ansi16 => ColorDepth::Ansi16,
            Colors::Ansi256 => ColorDepth::Ansi256,
            Colors::Truecolor => ColorDepth::TrueColor,
        };
        let choice = self.themed(depth)?;
        // Without colours, the terminal's background makes no difference.
        Ok(if depth == ColorDepth::None { choice.on(DARK).clone().into() } else { choice })
    }

    /// Returns the theme for a picture, which has all colours by default, and a background of its own.
    pub(crate) fn theme_of_pictures(&self) -> Result<Theme, Fault> {
        let choice = if self.color == Colors::Auto { self.themed(ColorDepth::TrueColor)? } else { self.theme()? };
        Ok(choice.on(DARK).clone())
    }

    fn themed(&self, depth: ColorDepth) -> Result<Choice, Fault> {
        let graph = if term::is_ascii_only() { Graph::Ascii } else { Graph::default() };
        let graph = self.graph.unwrap_or(graph);
        Ok(Choice::find(&self.theme)?.map(|it| it.at(depth).drawn_in(graph)))
    }

    /// Returns the permissions of a view, and its initial appearance.
    pub(crate) fn options(&self, theme: Choice) -> Options {
        let config = Err("the demo writes no config: its alerts are simulated");
        let preset = Preset::default();
        Options {
            theme,
            preset,
            mouse: !self.no_mouse,
            no_signals: None,
            config,
            pace: None,
            focus: None,
            asks: None,
            machines: None,
        }
    }
}

/// Returns the exit code of a view.
pub(crate) fn exit_code(end: End) -> u8 {
    match end {
        End::Quit => 0,
        End::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
    }
}

/// The largest picture in columns and rows; larger ones are unreadable.
const PICTURE_MAX: u16 = 500;

/// A separate heading in the help.
const HEADING: &str = "Pictures";

/// A picture instead of a view.
#[derive(Debug, clap::Args)]
pub(crate) struct ScreenshotFlags<W: ValueEnum + Default + Send + Sync + 'static> {
    /// Write the screen into FILE as SVG, and end; it must not be there yet (- is standard output).
    #[arg(long, value_name = "FILE.svg", help_heading = HEADING)]
    pub(crate) screenshot: Option<PathBuf>,
    /// How many columns and rows it has.
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "120x40", requires = "screenshot", help_heading = HEADING)]
    pub(crate) size: PictureSize,
    /// Which screen it shows, of what needs attention most.
    #[arg(long, value_enum, default_value_t, requires = "screenshot", help_heading = HEADING)]
    pub(crate) screen: W,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PictureSize {
    pub(crate) width: u16,
    pub(crate) height: u16,
}

impl FromStr for PictureSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
        let fits = |it: u16| (1..=PICTURE_MAX).contains(&it);
        match numbers {
            Some((width, height)) if fits(width) && fits(height) => Ok(Self { width, height }),
            Some(_) => Err(format!("a picture has 1 to {PICTURE_MAX} columns and rows")),
            None => Err("write columns and rows, as in 120x40".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ScreenChoice {
    #[default]
    Overview,
    Ranks,
    Device,
    Process,
    Timeline,
    Alerts,
    Help,
}

/// The screens of a snapshot.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum SnapshotScreen {
    #[default]
    Overview,
    /// The segments of the device.
    Map,
    /// Live blocks by call stack.
    Blocks,
    /// The same as a flame graph.
    Flame,
    /// Memory over the events of the trace.
    Trace,
    Help,
}

impl SnapshotScreen {
    pub(crate) fn page(self) -> Page {
        match self {
            Self::Overview | Self::Help => Page::Overview,
            Self::Map => Page::Segments,
            Self::Blocks => Page::Stacks,
            Self::Flame => Page::Flame,
            Self::Trace => Page::Trace,
        }
    }
}

/// Most bytes of a list of machines: each of the most that it may name takes less than a thousand.
const HOSTS_FILE_MAX: u64 = 4 << 20;

/// Which hosts to reach, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HostFlags {
    /// Other machines, as in `node[01-16],login`: gpuwatch there streams through ssh.
    #[arg(long, value_name = "LIST")]
    hosts: Vec<String>,
    /// The same from a file: a list in each line, comments after #.
    #[arg(long, value_name = "FILE")]
    hosts_file: Option<PathBuf>,
    /// The machines of a running Slurm job.
    #[arg(long, value_name = "JOB")]
    slurm: Option<String>,
    /// The command that reaches a machine, with {} for its name, as in `kubectl exec -i {} --`; by default, ssh.
    #[arg(long, value_name = "COMMAND")]
    transport: Option<Transport>,
    /// The gpuwatch to start on the machines.
    #[arg(long, value_name = "PATH", default_value = "gpuwatch", value_parser = plan::program)]
    remote_program: String,
    /// Copy this gpuwatch into the user's cache on machines that lack it, and start that one.
    #[arg(long, conflicts_with = "remote_program")]
    push: bool,
}

/// Which store of figures to ask.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PrometheusFlags {
    /// Ask Prometheus, or what has its API, for all ranks whose figures `gpuwatch serve` exports, as in
    /// `http://127.0.0.1:9090`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["hosts", "hosts_file", "slurm", "transport", "push"])]
    prometheus: Option<Store>,
    /// Only ranks with this label, as in `scheduler_job=4242`; repeatable.
    #[arg(long = "match", value_name = "LABEL=VALUE", requires = "prometheus")]
    pub(crate) matchers: Vec<Matcher>,
    /// The file with the bearer token in its first line; by default the variable `GPUWATCH_PROMETHEUS_TOKEN`.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    prometheus_token: Option<PathBuf>,
}

impl PrometheusFlags {
    /// Returns the store with its token; `None` if no flag names any.
    pub(crate) fn store(&self) -> Result<Option<Store>> {
        let Some(store) = self.prometheus.clone() else { return Ok(None) };
        let token = match &self.prometheus_token {
            Some(path) => Some(Token::read(path)?),
            None => env::var(TOKEN).ok().map(|it| Token::new(&it)).transpose().with_context(|| format!("${TOKEN}"))?,
        };
        token.map_or(Ok(store.clone()), |it| store.with_token(it)).map(Some)
    }
}

/// The variable with a token. No flag takes it, because every user of the machine sees a process's arguments.
const TOKEN: &str = "GPUWATCH_PROMETHEUS_TOKEN";

impl HostFlags {
    /// Returns the hosts and how to reach them; `None` if no flag names any.
    pub(crate) fn plan(&self) -> Result<Option<Plan>> {
        let mut lists = self.hosts.clone();
        if let Some(path) = &self.hosts_file {
            let text =
                input::small_text(path, HOSTS_FILE_MAX).with_context(|| format!("cannot read {}", path.display()))?;
            lists.extend(list::expand_lines(&text)?);
        }
        if let Some(job) = &self.slurm {
            lists.extend(plan::of_slurm(job)?);
        }
        if lists.is_empty() {
            return Ok(None);
        }
        let hosts = list::expand(&lists.join(","))?;
        let transport = self.transport.clone().unwrap_or_default();
        Ok(Some(Plan { hosts, transport, program: self.remote_program.clone(), push: self.push }))
    }
}

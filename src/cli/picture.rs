//! Screenshots, written to a file.

use super::flags::{OverviewOptions, ScreenChoice, ScreenOptions, SnapshotScreen};
use crate::{
    facts::text::Foreign,
    hosts::prometheus::Store,
    model::{
        alerts::Policy,
        cluster::{Answers, Cluster, overview::Overview},
        session::Session,
        snapshot::Snapshot,
    },
    screen::{
        picture,
        theme::Theme,
        ui::{
            Focus, Scope, Screen, Ui,
            cluster_ui::{ClusterUi, Shape},
            snapshot_ui::SnapshotUi,
        },
        view,
    },
    storage::{output, replay::Progress},
};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use ratatui::{buffer::Buffer, layout::Rect};
use std::path::Path;

/// Draws the ranks that a store knows.
pub(crate) fn of_store(store: &Store, overview: &Overview, options: &OverviewOptions, file: &Path) -> Result<u8> {
    let answers = Answers { store: Foreign::new(store.to_string()), age_us: Some(0), ..Answers::default() };
    let ui = of_many(ClusterUi::of_store(Ui::default()), options);
    drawn(options, file, |buffer, theme| {
        view::cluster::paint_store(buffer, overview, &ui, theme, &answers);
    })
}

/// Draws the screen of several hosts; `progress` is that of their recordings.
///
/// # Errors
/// As [`of_session`].
pub(crate) fn of_cluster(
    cluster: &Cluster,
    policy: &Policy,
    progress: Option<&Progress>,
    options: &OverviewOptions,
    file: &Path,
) -> Result<u8> {
    let overview = Overview::of(cluster, &policy.found(cluster));
    let base = Ui::default();
    let ui = if progress.is_some() { ClusterUi::of_recordings(base) } else { ClusterUi::new(base) };
    let ui = of_many(ui, options);
    drawn(options, file, |buffer, theme| {
        view::cluster::paint(buffer, &overview, &ui, theme, progress);
    })
}

/// Returns the state of the screen of several hosts for the picture that the flags name.
fn of_many(mut ui: ClusterUi, options: &OverviewOptions) -> ClusterUi {
    ui.base.help = matches!(options.shot.screen, ScreenChoice::Help);
    ui.shape = matches!(options.shot.screen, ScreenChoice::Ranks).then_some(Shape::Map);
    ui
}

/// Draws a snapshot, which was read from a file of this name.
pub(crate) fn of_snapshot(
    snapshot: &Snapshot,
    name: Foreign,
    request: Option<u64>,
    options: &ScreenOptions<SnapshotScreen>,
    file: &Path,
) -> Result<u8> {
    let mut ui = SnapshotUi::new(name, None, request);
    (ui.page, ui.base.help) = (options.shot.screen.page(), matches!(options.shot.screen, SnapshotScreen::Help));
    ui.refresh(snapshot);
    drawn(options, file, |buffer, theme| {
        view::snapshot::paint(buffer, snapshot, &ui, theme);
    })
}

/// Draws a session; `progress` is that of its recording.
///
/// # Errors
/// Fails if the file exists, does not end in .svg, or cannot be written.
pub(crate) fn of_session(
    session: &Session,
    policy: &Policy,
    progress: Option<&Progress>,
    options: &OverviewOptions,
    file: &Path,
) -> Result<u8> {
    let findings = policy.findings(session);
    // Nor does it show a key for them.
    let no_signals = Some("a screenshot sends no signals");
    let mut ui = Ui {
        screen: screen(options.shot.screen),
        policy: policy.clone(),
        no_signals,
        no_allow: no_signals,
        ..Ui::default()
    };
    ui.show_preset(options.preset);
    if matches!(options.shot.screen, ScreenChoice::Ranks) {
        (ui.scope, ui.focus) = (Scope::All, Focus::Processes);
    }
    ui.help = matches!(options.shot.screen, ScreenChoice::Help);
    if ui.screen != Screen::Overview {
        ui.back_stack.push((Screen::Overview, Focus::Devices));
    }
    ui.attend(session, &findings);
    drawn(options, file, |buffer, theme| {
        view::paint(buffer, session, &findings, &ui, theme, progress);
    })
}

/// Writes what is drawn into a file.
fn drawn<W: ValueEnum + Default + Send + Sync + 'static>(
    options: &ScreenOptions<W>,
    file: &Path,
    draw: impl FnOnce(&mut Buffer, &Theme),
) -> Result<u8> {
    let name = Foreign::new(file.to_string_lossy());
    let is_stdout = output::is_stdout(file);
    if !is_stdout && !file.extension().is_some_and(|it| it.eq_ignore_ascii_case("svg")) {
        bail!("{name}: a picture is written as SVG; name the file so, as in screen.svg");
    }
    let theme = options.theme_of_pictures()?;
    let mut buffer = Buffer::empty(Rect::new(0, 0, options.shot.size.width, options.shot.size.height));
    draw(&mut buffer, &theme);
    let about = "gpuwatch: where a GPU's memory goes";
    let svg = picture::svg(&buffer, &theme, about);
    if is_stdout {
        output::print(&svg)?;
        return Ok(0);
    }
    output::save(file, &svg).with_context(|| format!("cannot make {name}"))?;
    output::message(format_args!("wrote {name}"));
    Ok(0)
}

fn screen(which: ScreenChoice) -> Screen {
    match which {
        ScreenChoice::Overview | ScreenChoice::Ranks | ScreenChoice::Help => Screen::Overview,
        ScreenChoice::Device => Screen::Device,
        ScreenChoice::Process => Screen::Process,
        ScreenChoice::Timeline => Screen::Timeline,
        ScreenChoice::Alerts => Screen::Alerts,
    }
}

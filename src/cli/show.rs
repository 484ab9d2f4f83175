//! The screens: live, of the demo, of a recording.

use super::{
    flags::Live,
    picture,
    screen_options::{OverviewOptions, ScreenOptions},
};
use crate::{
    commands::{alert_outputs::AlertOutputs, demo, live, once, player, recordings::nodes},
    config::{File, When},
    facts::text::Foreign,
    model::alerts::Policy,
    screen::{effects::Options, event_loop::End, term, theme::Choice, ui::preset::Preset},
    sources::Sources,
    storage::{output, replay::nodes::Recorded, sink::delivery::Delivery},
};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::{path::PathBuf, time::Duration};

/// How long an alert program may still run after the view is closed.
const HOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Why there is a text in place of a screen.
pub(super) const NO_SCREEN: &str = "no terminal for the live view (stdin, stdout or TERM): the same as `gpuwatch once`";

/// Why a read-only view sends nothing.
pub(super) const NO_SIGNALS: &str = "this view is --readonly: no signals are sent from here";

/// Why a read-only view writes nothing.
pub(super) const READONLY: &str = "this view is --readonly: it writes no config";

/// Shows the live view; without a suitable terminal, prints the state once, as text.
pub(super) fn view(live: &Live, policy: Policy) -> Result<u8> {
    let theme = theme(&live.screen)?;
    if let Some(file) = &live.screen.shot.screenshot {
        let of_now = picture::of_now(live.watching.sources(), &policy, &live.screen, file);
        return super::runtime()?.block_on(of_now);
    }
    super::runtime()?.block_on(async {
        let mut sources = Sources::start(live.watching.sources());
        if !term::is_screen() {
            refuse_hook(live)?;
            output::message(format_args!("{NO_SCREEN}"));
            once::print(&mut sources.events, 0, once::Form::Text).await?;
            return Ok(0);
        }
        let ask = live.asking.sites == When::Auto && !live.screen.readonly;
        let delivery = Delivery::new(live.on_alert.hook()?, ask.then(|| sources.asks.clone()));
        let mut outputs = AlertOutputs { bell: live.bell, notify: live.notify, delivery };
        let no_signals = live.screen.readonly.then_some(NO_SIGNALS);
        let asks = Some(sources.asks.clone());
        let config = if live.screen.readonly { Err(READONLY) } else { Ok(live.config.clone()) };
        let (pace, focus) = (sources.pace.take(), Some(sources.focus.clone()));
        let preset = live.screen.preset;
        let options = Options { preset, no_signals, config, pace, focus, asks, ..options(&live.screen, theme) };
        let end = live::watch(sources.feed(), options, policy, &mut outputs).await?;
        finish(outputs);
        Ok(code(end))
    })
}

/// Refuses to start no program at alerts.
pub(super) fn refuse_hook(live: &Live) -> Result<()> {
    if live.on_alert.on_alert.is_some() {
        bail!("no terminal for the live view (stdin, stdout or TERM); `gpuwatch run --on-alert` needs none");
    }
    Ok(())
}

/// Waits for the alert program, and prints its problems.
pub(super) fn finish(outputs: AlertOutputs) {
    if let Some(complaint) = outputs.delivery.finish(HOOK_PATIENCE) {
        output::message(format_args!("{}", Foreign::new(complaint)));
    }
}

pub(super) fn demo(seed: u64, screen: &OverviewOptions) -> Result<u8> {
    if let Some(file) = &screen.shot.screenshot {
        return picture::of_demo(seed, screen, file);
    }
    let theme = theme(screen)?;
    super::runtime()?.block_on(async {
        let mut demo = demo::Demo::start(seed).context("cannot start the demo")?;
        if !term::is_screen() {
            output::message(format_args!("no terminal for the live view (stdin, stdout or TERM): the demo as text"));
            once::print(&mut demo.events, demo::RANKS.len(), once::Form::Text).await?;
            return Ok(0);
        }
        // Simulated alerts are not sent.
        let no_signals = Some("the demo's jobs are its own: no signals are sent to them from here");
        let (preset, pace) = (screen.preset, demo.pace.take());
        let options = Options { preset, no_signals, pace, ..options(screen, theme) };
        Ok(code(live::watch(demo.feed(), options, Policy::default(), &mut AlertOutputs::default()).await?))
    })
}

pub(super) fn replay(files: &[PathBuf], screen: &OverviewOptions, config: &File, policy: Policy) -> Result<u8> {
    let theme = theme(screen)?;
    if let Some(recorded) = super::of_nodes(files)? {
        return replay_nodes(recorded, screen, config, policy);
    }
    let found = super::named(files)?;
    found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
    if let Some(file) = &screen.shot.screenshot {
        return picture::of_recordings(found.recordings, &policy, screen, file);
    }
    if !term::is_screen() {
        bail!(
            "a replay needs a terminal (stdin, stdout and TERM); `zstdcat FILE | jq .` reads a recording without one"
        );
    }
    let options = of_recordings(screen, config, theme);
    super::runtime()?.block_on(async { Ok(code(player::play(found.recordings, options, policy).await?)) })
}

/// Shows the recordings of several machines; without a suitable terminal, prints the command that opens each.
fn replay_nodes(recorded: Recorded, screen: &OverviewOptions, config: &File, policy: Policy) -> Result<u8> {
    let theme = theme(screen)?;
    if let Some(file) = &screen.shot.screenshot {
        return picture::of_nodes(recorded, &policy, screen, file);
    }
    if !term::is_screen() {
        output::print(&nodes::list(&recorded))?;
        return Ok(0);
    }
    recorded.notes.iter().for_each(|it| output::message(format_args!("{}", Foreign::new(it.as_str()))));
    let options = of_recordings(screen, config, theme);
    super::runtime()?.block_on(async { Ok(code(player::nodes::play(recorded, options, policy).await?)) })
}

/// Returns the permissions of a view of recordings, and its initial appearance.
fn of_recordings(screen: &OverviewOptions, config: &File, theme: Choice) -> Options {
    let no_signals = Some("these processes belong to a recording: no signals are sent to them");
    let config = if screen.readonly { Err(READONLY) } else { Ok(config.clone()) };
    Options { preset: screen.preset, no_signals, config, ..options(screen, theme) }
}

/// Returns the permissions of a view, and its initial appearance.
pub(super) fn options<W: ValueEnum + Default + Send + Sync + 'static>(
    screen: &ScreenOptions<W>,
    theme: Choice,
) -> Options {
    let config = Err("the demo writes no config: its alerts are simulated");
    let preset = Preset::default();
    Options {
        theme,
        preset,
        mouse: !screen.no_mouse,
        no_signals: None,
        config,
        pace: None,
        focus: None,
        asks: None,
        machines: None,
    }
}

pub(super) fn theme(screen: &OverviewOptions) -> Result<Choice> {
    Ok(screen.theme()?)
}

/// Returns the exit code of a view.
pub(super) fn code(end: End) -> u8 {
    match end {
        End::Quit => 0,
        End::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
    }
}

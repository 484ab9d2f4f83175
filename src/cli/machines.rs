//! The screen of many machines.

use super::{flags::Live, picture, show};
use crate::{
    commands::{cluster, once},
    hosts::{link::Links, plan::Plan},
    model::alerts::Policy,
    screen::{effects::Options, term},
};
use anyhow::Result;
use std::time::Duration;

/// How long a picture, and a text in place of a screen, wait for the machines.
const WAIT: Duration = Duration::from_secs(10);

/// Why the screens of other machines send nothing to processes.
const NO_SIGNALS: &str = "this view sends nothing to other machines: run gpuwatch there, as in `ssh -t HOST gpuwatch`";

/// Shows the screen of many machines; without a suitable terminal, prints their state once, as text.
pub(super) fn watch(plan: &Plan, live: &Live, policy: Policy) -> Result<u8> {
    let theme = show::theme(&live.screen)?;
    super::runtime()?.block_on(async {
        let mut links = Links::start(plan);
        if let Some(file) = &live.screen.shot.screenshot {
            let cluster = once::hosts::collect(&mut links, &plan.hosts, WAIT).await;
            return picture::of_cluster(&cluster, &policy, &live.screen, file);
        }
        if !term::is_screen() {
            super::print_message(format_args!(
                "no terminal for the live view (stdin, stdout or TERM): the same as `gpuwatch once`"
            ));
            once::hosts::print(&mut links, &plan.hosts, WAIT, false).await?;
            return Ok(0);
        }
        let config = if live.screen.readonly { Err(show::READONLY) } else { Ok(live.config.clone()) };
        let (preset, no_signals) = (live.screen.preset, Some(NO_SIGNALS));
        let options = Options { preset, no_signals, config, ..show::options(&live.screen, theme) };
        Ok(show::code(cluster::watch(&mut links, &plan.hosts, options, policy).await?))
    })
}

//! The screen of many machines, reached by links or known to a store.

use super::{flags::Live, picture, show};
use crate::{
    commands::{alert_outputs::AlertOutputs, cluster, once},
    hosts::{
        link::Links,
        plan::Plan,
        prometheus::{self, Store},
    },
    model::alerts::Policy,
    screen::{effects::Options, term},
    storage::{output, sink::delivery::Delivery},
};
use anyhow::Result;
use std::time::Duration;

/// How long a picture, and a text in place of a screen, wait for the machines.
const WAIT: Duration = Duration::from_secs(10);

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
            show::refuse_hook(live)?;
            output::message(format_args!("{}", show::NO_SCREEN));
            once::hosts::print(&mut links, &plan.hosts, WAIT, false).await?;
            return Ok(0);
        }
        let config = if live.screen.readonly { Err(show::READONLY) } else { Ok(live.config.clone()) };
        let no_signals = live.screen.readonly.then_some(show::NO_SIGNALS);
        let (preset, machines) = (live.screen.preset, links.requests.take());
        let options = Options { preset, no_signals, config, machines, ..show::options(&live.screen, theme) };
        let delivery = Delivery::new(live.on_alert.hook()?, None);
        let mut outputs = AlertOutputs { bell: live.bell, notify: live.notify, delivery };
        let end = cluster::watch(&mut links, &plan.hosts, options, policy, &mut outputs).await?;
        show::finish(outputs);
        Ok(show::code(end))
    })
}

/// Shows the screen of the ranks that a store knows; without a suitable terminal, prints them once, as text.
pub(super) fn watch_store(store: Store, live: &Live) -> Result<u8> {
    let theme = show::theme(&live.screen)?;
    let matchers = live.fleet.matchers.clone();
    let runtime = super::runtime()?;
    let code = runtime.block_on(async {
        if let Some(file) = &live.screen.shot.screenshot {
            let fleet = prometheus::fleet(&store, &matchers).await?;
            return picture::of_store(&store, &fleet.overview, &live.screen, file);
        }
        if !term::is_screen() {
            output::message(format_args!("{}", show::NO_SCREEN));
            once::fleet::print(&store, &matchers, false).await?;
            return Ok(0);
        }
        let options = show::options(&live.screen, theme);
        Ok(show::code(cluster::fleet::watch(store, matchers, live.prometheus_interval, options).await?))
    });
    // A question that has no answer yet does not delay the end.
    runtime.shutdown_background();
    code
}

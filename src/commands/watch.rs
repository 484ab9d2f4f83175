//! `gpuwatch` without a subcommand: the screen of this host, of other hosts, or of the ranks that Prometheus knows.
//! Without a suitable terminal, it prints the state once, as text.

use super::{Invocation, Subcommand, cluster, live, once};
use crate::{
    cli::{
        alert_outputs::AlertOutputs,
        flags::{HostFlags, PrometheusFlags},
        flags::{NO_SCREEN, NO_SIGNALS, OverviewOptions, READONLY, exit_code},
        picture, runtime,
    },
    config::{self, AlertProgramFlags, CaptureFlags, CaptureWhen, WatchFlags},
    hosts::{
        link::Links,
        plan::Plan,
        prometheus::{self, Store},
    },
    model::alerts::Policy,
    screen::{effects::Options, term},
    sources::Sources,
    storage::{output, sink::delivery::Delivery},
};
use anyhow::{Result, bail};
use std::time::Duration;

/// How long a picture, and a text in place of a screen, wait for the machines.
const WAIT: Duration = Duration::from_secs(10);

/// The arguments of `gpuwatch` without a subcommand.
#[derive(Debug, clap::Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    hosts: HostFlags,
    #[command(flatten)]
    prometheus: PrometheusFlags,
    /// How often to ask Prometheus.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = config::duration, requires = "prometheus")]
    prometheus_interval: Duration,
    #[command(flatten)]
    pub(super) watching: WatchFlags,
    #[command(flatten)]
    pub(super) screen: OverviewOptions,
    #[command(flatten)]
    pub(super) config: config::File,
    /// Ring the terminal's bell, once for each alert from warning on.
    #[arg(long)]
    pub(super) bell: bool,
    /// Let the terminal show a notification (OSC 9) of each alert from warning on; tmux passes only the bell on.
    #[arg(long)]
    pub(super) notify: bool,
    #[command(flatten)]
    pub(super) on_alert: AlertProgramFlags,
    #[command(flatten)]
    pub(super) asking: CaptureFlags,
}

impl Subcommand for WatchArgs {
    fn answers(&self) -> bool {
        self.screen.shot.screenshot.is_none()
    }

    fn run(&self, invocation: &Invocation) -> Result<u8> {
        if let Some(store) = self.prometheus.store()? {
            return watch_ranks(store, self);
        }
        match self.hosts.plan()? {
            Some(plan) => watch_hosts(&plan, self, &invocation.policy),
            None => watch_this_host(self, &invocation.policy),
        }
    }
}

/// Shows the live view; without a suitable terminal, prints the state once, as text.
fn watch_this_host(args: &WatchArgs, policy: &Policy) -> Result<u8> {
    let theme = args.screen.theme()?;
    if let Some(file) = &args.screen.shot.screenshot {
        let sources = args.watching.sources();
        return runtime()?.block_on(async {
            let session = once::collect(&mut Sources::start(sources).events, 0).await;
            picture::of_session(&session, policy, None, &args.screen, file)
        });
    }
    runtime()?.block_on(async {
        let mut sources = Sources::start(args.watching.sources());
        if !term::is_screen() {
            refuse_hook(args)?;
            output::message(format_args!("{NO_SCREEN}"));
            once::print(&mut sources.events, 0, once::OnceForm::Text).await?;
            return Ok(0);
        }
        let ask = args.asking.sites == CaptureWhen::Auto && !args.screen.readonly;
        let delivery = Delivery::new(args.on_alert.hook()?, ask.then(|| sources.asks.clone()));
        let mut outputs = AlertOutputs { bell: args.bell, notify: args.notify, delivery };
        let no_signals = args.screen.readonly.then_some(NO_SIGNALS);
        let asks = Some(sources.asks.clone());
        let config = if args.screen.readonly { Err(READONLY) } else { Ok(args.config.clone()) };
        let (pace, focus) = (sources.pace.take(), Some(sources.focus.clone()));
        let preset = args.screen.preset;
        let options = Options { preset, no_signals, config, pace, focus, asks, ..args.screen.options(theme) };
        let end = live::watch(sources.feed(), options, policy.clone(), &mut outputs).await?;
        outputs.finish();
        Ok(exit_code(end))
    })
}

/// Refuses to start no program at alerts.
fn refuse_hook(args: &WatchArgs) -> Result<()> {
    if args.on_alert.on_alert.is_some() {
        bail!("no terminal for the live view (stdin, stdout or TERM); `gpuwatch run --on-alert` needs none");
    }
    Ok(())
}

/// Shows the screen of several hosts; without a suitable terminal, prints their state once, as text.
fn watch_hosts(plan: &Plan, args: &WatchArgs, policy: &Policy) -> Result<u8> {
    let theme = args.screen.theme()?;
    runtime()?.block_on(async {
        let mut links = Links::start(plan);
        if let Some(file) = &args.screen.shot.screenshot {
            let cluster = once::cluster_once::collect(&mut links, &plan.hosts, WAIT).await;
            return picture::of_cluster(&cluster, policy, None, &args.screen, file);
        }
        if !term::is_screen() {
            refuse_hook(args)?;
            output::message(format_args!("{NO_SCREEN}"));
            once::cluster_once::print(&mut links, plan, WAIT, false).await?;
            return Ok(0);
        }
        let config = if args.screen.readonly { Err(READONLY) } else { Ok(args.config.clone()) };
        let no_signals = args.screen.readonly.then_some(NO_SIGNALS);
        let (preset, machines) = (args.screen.preset, links.requests.take());
        let options = Options { preset, no_signals, config, machines, ..args.screen.options(theme) };
        let delivery = Delivery::new(args.on_alert.hook()?, None);
        let mut outputs = AlertOutputs { bell: args.bell, notify: args.notify, delivery };
        let end = cluster::watch(&mut links, &plan.hosts, options, policy.clone(), &mut outputs).await?;
        outputs.finish();
        Ok(exit_code(end))
    })
}

/// Shows the screen of the ranks that a store knows; without a suitable terminal, prints them once, as text.
fn watch_ranks(store: Store, args: &WatchArgs) -> Result<u8> {
    let theme = args.screen.theme()?;
    let matchers = args.prometheus.matchers.clone();
    let runtime = runtime()?;
    let code = runtime.block_on(async {
        if let Some(file) = &args.screen.shot.screenshot {
            let fleet = prometheus::fleet(&store, &matchers).await?;
            return picture::of_store(&store, &fleet.overview, &args.screen, file);
        }
        if !term::is_screen() {
            output::message(format_args!("{NO_SCREEN}"));
            once::prometheus_once::print(&store, &matchers, false).await?;
            return Ok(0);
        }
        let options = args.screen.options(theme);
        Ok(exit_code(cluster::prometheus_view::watch(store, matchers, args.prometheus_interval, options).await?))
    });
    // A question that has no answer yet does not delay the end.
    runtime.shutdown_background();
    code
}

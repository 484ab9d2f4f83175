//! The driver's answers, and the probes that are found within about a second.

use super::Check;
use crate::{
    commands::once::collect,
    config::{Driver, WatchFlags},
    facts::{
        event::{DriverState, ReadError, wire::PROTOCOL},
        maker::Maker,
        text::Foreign,
        units::counted,
    },
    jobs::attach,
    model::{
        first_contact::{contact, locked},
        session::{Session, device::Device, process::ProbeState},
    },
    sources::{Sources, makers::gives_memory},
};
use std::{env, fmt::Write as _, io, net::TcpListener, time::Duration};

pub(super) fn checks(driver: Driver) -> io::Result<Vec<Check>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let watching = WatchFlags { driver, interval: Duration::from_millis(100) };
    let session = runtime.block_on(async { collect(&mut Sources::start(watching.sources()).events, 0).await });
    Ok(vec![driver_state(&session), devices(&session), figures(&session), probes(&session), attach(), hosts(), serve()])
}

fn driver_state(session: &Session) -> Check {
    const NAME: &str = "driver";
    let shown = session.driver_shown();
    let maker = shown.map_or(Maker::Nvidia, |it| it.0).row();
    match shown.map(|it| it.1) {
        Some(DriverState::Up { .. }) => Check::ok(NAME, answering(session).join("; ")),
        Some(DriverState::Absent { why }) => {
            let (what, mut advice) = why
                .raw()
                .split_once(": ")
                .map_or((why.raw(), String::new()), |(what, next)| (what, format!("{next}; ")));
            if let Some(it) = contact(session) {
                let _ = write!(advice, "`{}` {}; ", it.next, it.does);
            }
            Check::fail(NAME, what, advice + "without it, gpuwatch shows only what probes report")
        }
        Some(DriverState::Stalled { .. }) | None => Check::fail(
            NAME,
            format!("the {} driver does not answer", maker.name),
            format!("a call of it hangs: see `{}` and `dmesg`; gpuwatch shows probes all the same", maker.tool),
        ),
        Some(DriverState::Off) => {
            Check::warn(NAME, "GPUWATCH_NO_NVML switches the driver off", "unset GPUWATCH_NO_NVML")
        }
    }
}

/// Describes each driver that answers.
fn answering(session: &Session) -> Vec<String> {
    let of = |version: &Option<Foreign>| {
        version.as_ref().map_or_else(|| "of unknown version".to_owned(), |it| it.raw().to_owned())
    };
    let library = env::var("GPUWATCH_NVML_PATH").unwrap_or_else(|_unset| "libnvidia-ml.so.1".to_owned());
    let mut out = Vec::new();
    if let Some(DriverState::Up { version }) = &session.driver {
        out.push(format!("NVIDIA driver {} answers through {library}", of(version)));
    }
    for (maker, state) in &session.kernel_drivers {
        if let DriverState::Up { version } = state {
            out.push(format!("{} driver {} answers through /sys/class/drm", maker.row().name, of(version)));
        }
    }
    out
}

fn devices(session: &Session) -> Check {
    const NAME: &str = "devices";
    let listed: Vec<_> = session.devices.iter().filter(|it| it.index.is_some()).collect();
    // One that sleeps is as it should be.
    let awake = listed.iter().filter(|it| !is_suspended(it));
    let troubles: Vec<_> = awake.filter_map(|it| Some((*it, it.memory.as_ref()?.value.as_ref().err()?))).collect();
    let asleep = listed.iter().filter(|it| is_suspended(it)).count();
    match (listed.len(), troubles.first()) {
        (0, _) => {
            Check::warn(NAME, "the driver lists none", "in a container, ask for them: `--gpus all`, or the job's own")
        }
        (count, Some((device, first))) => {
            let each: Vec<String> =
                troubles.iter().map(|(it, why)| format!("{}: {}", number(it), words(it.maker, why).0)).collect();
            let what = format!("the driver does not report the memory of {} of {count}: ", troubles.len());
            let what = what + &each.join("; ");
            // A driver that never reports it is no fault of the machine.
            if troubles.iter().all(|it| !gives_memory(it.0.maker)) {
                let advice = "this driver has no file with it; what each process has there is known";
                return Check::warn(NAME, what, advice);
            }
            Check::fail(NAME, what, words(device.maker, first).1)
        }
        (count, None) if asleep > 0 => Check::ok(NAME, format!("{count} listed; {asleep} suspended to save power")),
        (count, None) => Check::ok(NAME, format!("{count} listed, each with its memory")),
    }
}

/// Whether a device sleeps, which is no trouble.
fn is_suspended(device: &Device) -> bool {
    device.memory.as_ref().is_some_and(|it| it.value == Err(ReadError::Suspended))
}

/// Returns the number that users know a device by: `GPU 3`.
fn number(device: &Device) -> String {
    let part = if device.parent.is_some() { "a MIG device of " } else { "" };
    format!("{part}GPU {}", device.index.map_or_else(|| "?".to_owned(), |it| it.to_string()))
}

/// Shows each process's memory, as the driver reports it.
fn figures(session: &Session) -> Check {
    const NAME: &str = "processes";
    let lists: Vec<_> = session.devices.iter().filter_map(|it| it.processes.as_ref()).collect();
    let trouble = |it: &Device| it.processes.as_ref()?.value.as_ref().err().cloned().map(|why| (it.maker, why));
    let awake = || session.devices.iter().filter(|it| !is_suspended(it));
    if let Some((maker, trouble)) = awake().find_map(trouble) {
        let (what, advice) = words(maker, &trouble);
        return Check::warn(NAME, format!("the driver does not list them: {what}"), advice);
    }
    let all: Vec<_> = lists.iter().filter_map(|it| it.value.as_ref().ok()).flatten().collect();
    let silent = all.iter().filter(|it| it.used.is_none()).count();
    if lists.is_empty() {
        Check::warn(
            NAME,
            "no driver reports which processes use a device",
            "jobs with a probe still report their own memory",
        )
    } else if silent > 0 {
        let advice = "WSL and some drivers have no figures of processes; jobs with a probe report their own";
        Check::warn(NAME, format!("the driver does not report the memory of {silent} of {}", all.len()), advice)
    } else {
        Check::ok(NAME, format!("{} on devices, each with what it uses", all.len()))
    }
}

/// The driver's trouble, and the next step.
fn words(maker: Maker, trouble: &ReadError) -> (String, String) {
    let (what, next) = trouble.parts(maker);
    let tool = || format!("see `{}`; a newer driver may have it", maker.row().tool);
    (what, next.map_or_else(tool, str::to_owned))
}

fn probes(session: &Session) -> Check {
    const NAME: &str = "probes";
    let protocol =
        |it: &ProbeState| if let ProbeState::Incompatible { protocol } = it { Some(*protocol) } else { None };
    let living = session.processes.iter().filter(|it| it.is_alive()).count();
    if let Some(other) = session.processes.iter().find_map(|it| protocol(&it.life)) {
        let what = format!("one of {living} speaks protocol {other}, and this gpuwatch {PROTOCOL}");
        return Check::fail(NAME, what, "start the job with the same gpuwatch, or update the older one");
    }
    if living == 0 {
        let what = format!("no job with a probe runs now (protocol {PROTOCOL})");
        if let Some(others) = session.surroundings.as_deref().and_then(locked) {
            return Check { advice: Some(others), ..Check::ok(NAME, what) };
        }
        return Check::ok(
            NAME,
            what + "; `gpuwatch run -- python train.py` starts one, `gpuwatch attach PID` gives a running job one",
        );
    }
    Check::ok(NAME, format!("{} with a probe, of protocol {PROTOCOL}", counted(living as u64, "job")))
}

/// Reports whether running jobs may be attached to.
fn attach() -> Check {
    const NAME: &str = "attach";
    match attach::permission() {
        Ok(what) => Check::ok(NAME, what),
        Err((what, advice)) => Check::warn(NAME, what, advice),
    }
}

/// Whether other machines can be reached in the usual way.
fn hosts() -> Check {
    const NAME: &str = "hosts";
    let places = env::var_os("PATH").unwrap_or_default();
    match env::split_paths(&places).map(|it| it.join("ssh")).find(|it| it.is_file()) {
        Some(ssh) => Check::ok(NAME, format!("`--hosts` reaches other machines through {}", ssh.display())),
        None => Check::warn(
            NAME,
            "there is no ssh on PATH: `--hosts` reaches no other machine",
            "install OpenSSH's client, or name another command with `--transport`",
        ),
    }
}

/// Whether an exporter could listen on this machine.
fn serve() -> Check {
    const NAME: &str = "serve";
    match TcpListener::bind(("127.0.0.1", 0)) {
        Ok(_) => Check::ok(NAME, "`gpuwatch serve` can listen on 127.0.0.1"),
        Err(why) => Check::warn(
            NAME,
            format!("`gpuwatch serve` cannot listen on 127.0.0.1: {why}"),
            "let it listen on a socket (`--metrics unix:PATH`), or write a file (`--textfile PATH`)",
        ),
    }
}

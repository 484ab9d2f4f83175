//! Which findings other allocator settings may help, and what a replay shows for them, in words.

use super::{Finding, Kind};
use crate::{
    facts::{
        event::{
            Replayed,
            replayed::{About, Comparison, Cost, Outcome, Window},
        },
        text::{self, Foreign},
        units::{self, Bytes, counted},
    },
    model::{
        analysis::{cause::Cause, episode::Resource},
        session::Session,
    },
};
use std::time::Duration;

/// The variable that holds PyTorch's allocator settings.
pub const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// Most bytes of a line to export.
const LINE_MAX: usize = 600;

/// Attaches the replays of a session to its findings.
pub(super) fn attach(all: &mut [Finding], session: &Session) {
    for it in all.iter_mut().filter(|it| it.may_need_other_settings()) {
        let process = it.process(session);
        let about = it.about();
        let own = |device| process?.replayed(device, Some(&about));
        // Viewers that joined the job at different times may raise a finding at different steps.
        let alike = |device| process?.replayed_alike(device, &about);
        let is_alike = it.is_active() && it.kind != Kind::Oom;
        let found = it.ordinal.and_then(|device| own(device).or_else(|| alike(device).filter(|_| is_alike)));
        it.replayed = found.cloned().map(Box::new);
        let fits = it.would_have_fit();
        it.account.extend(fits);
    }
}

/// Returns settings under which a run fits that fails now.
fn fits_instead(it: &Replayed) -> Option<&Foreign> {
    let it = it.result.as_ref().ok().filter(|it| it.window.is_none() && it.current.fails_at.is_some())?;
    it.best.as_ref().filter(|best| best.fails_at.is_none()).map(|best| &best.settings)
}

impl Finding {
    /// Returns what a replay's answer names it by.
    pub fn about(&self) -> About {
        let resource = self.resource.map(|it| Foreign::new(it.id()));
        About { kind: Foreign::new(self.kind.name()), resource, step: self.first_alert_step }
    }

    /// Returns whether other allocator settings may help. A request that exceeds the device fails under any.
    pub fn may_need_other_settings(&self) -> bool {
        if self.follows.is_some() {
            return false;
        }
        match self.kind {
            Kind::Fragmentation | Kind::Pressure | Kind::Retries => true,
            Kind::Growth => self.resource == Some(Resource::Reserved) && self.cause == Cause::Fragmentation,
            Kind::Oom => {
                let both = self.evidence.get("tried").zip(self.evidence.get("total"));
                both.is_none_or(|(tried, total)| tried <= total)
            }
            _ => false,
        }
    }

    /// Returns that an out-of-memory error has settings that avoid it: `` `expandable_segments:True` would have fit ``.
    pub fn would_have_fit(&self) -> Option<String> {
        let settings = self.replayed.as_deref().filter(|_| self.kind == Kind::Oom).and_then(fits_instead)?;
        Some(format!("`{settings}` would have fit"))
    }

    /// Describes what a replay shows: the answer, the line to export, the basis and the cost. Empty without a replay.
    pub fn replay_words(&self) -> Vec<String> {
        self.replayed.as_deref().map(replay_words).unwrap_or_default()
    }
}

/// Describes an answer as [`Finding::replay_words`] does.
pub fn replay_words(Replayed { result, cost, .. }: &Replayed) -> Vec<String> {
    match result {
        Err(why) => vec![format!("no replay under other allocator settings: {why}")],
        Ok(it) => {
            let export = it.best.as_ref().map(export);
            [Some(answer(it)), export, Some(basis(it)), expense(cost)].into_iter().flatten().collect()
        }
    }
}

/// `with expandable_segments:True the run reserves 5.10 GiB at its peak (9.80 GiB now) and fits`
fn answer(it: &Comparison) -> String {
    if let Some(window) = &it.window {
        return answer_of(window, it);
    }
    let now = Bytes(it.current.peak_reserved);
    let Some(best) = &it.best else {
        let tried = counted(it.tried, "setting");
        return match it.current.fails_at {
            Some(_) => format!("the run fits under none of {tried} that were replayed"),
            None => format!("the run reserves {now} at its peak, and less under none of {tried} that were replayed"),
        };
    };
    let (name, peak) = (&best.settings, Bytes(best.peak_reserved));
    if it.current.fails_at.is_some() {
        return format!("with {name} the run fits and reserves {peak} at its peak; now it runs out of memory");
    }
    let fits = if it.device_bytes.is_some() && best.fails_at.is_none() { " and fits" } else { "" };
    format!("with {name} the run reserves {peak} at its peak ({now} now){fits}")
}

/// What a part of the run shows: which setting is better, and only roughly by how much.
fn answer_of(window: &Window, it: &Comparison) -> String {
    let part = window.steps.map_or_else(|| "a part of the run".to_owned(), |it| counted(it, "step"));
    let now = Bytes(it.current.peak_reserved);
    let next = "trace the next run with `gpuwatch run --trace` for the whole run's figures";
    let Some(best) = &it.best else {
        return format!("{}; {next}", Window::without_advice(window.steps));
    };
    let (name, peak) = (&best.settings, Bytes(best.peak_reserved));
    format!(
        "with {name} the job reserves less at its peak: in a replay of {part} about {peak} instead of {now}; {next}"
    )
}

/// The line to export, quoted for a shell.
fn export(best: &Outcome) -> String {
    let value = format!("{VARIABLE}={}", best.settings.raw());
    text::command(["export", &value].into_iter(), LINE_MAX)
}

/// What the answer rests on, and what the settings cost in time.
fn basis(it: &Comparison) -> String {
    let until = it.until_step.map_or_else(String::new, |step| format!(" up to step {step}"));
    let device = it.device_bytes.map_or_else(String::new, |it| format!(" on a device of {}", Bytes(it)));
    let replayed = format!("replayed {}{until}{device}", counted(it.events, "event"));
    let off = format!("off by {:.2} % as recorded", it.error_ppm as f64 / 1e4);
    let failure = it.current.fails_at.as_ref().map(|it| {
        let place = it.step.as_ref().or(it.line.as_ref()).map_or_else(String::new, |place| format!(", {place}"));
        format!("with the run's own settings memory runs out at event {}{place}", it.event + 1)
    });
    let difference = it.best.as_ref().map(|best| difference(&it.current, best));
    let smallest = it.best.as_ref().filter(|_| it.window.is_none()).and_then(|it| it.smallest_device);
    let smallest = smallest.map(|it| format!("fits on devices from {}", Bytes(it)));
    let all = [Some(replayed), Some(off), failure, difference, smallest];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// `74 cudaMallocs instead of 81, 0 retries instead of 3`
fn difference(now: &Outcome, best: &Outcome) -> String {
    let mallocs = format!("{} instead of {}", counted(best.cuda_mallocs, "cudaMalloc"), now.cuda_mallocs);
    if best.retries.max(now.retries) == 0 {
        return mallocs;
    }
    let retries = if best.retries == 1 { "retry" } else { "retries" };
    format!("{mallocs}, {} {retries} instead of {}", best.retries, now.retries)
}

/// What the trace and the replay cost; `None` if nothing is known of it.
fn expense(it: &Cost) -> Option<String> {
    let time = |us: u64| match us {
        0..1_000_000 => units::pause(Duration::from_micros(us)),
        _ => format!("{:.1} s", us as f64 / 1e6),
    };
    let trace = match (it.trace_bytes, it.trace_cpu_us) {
        (Some(bytes), Some(us)) => Some(format!("{} of trace, {} of the job's CPU time", Bytes(bytes), time(us))),
        (Some(bytes), None) => Some(format!("{} of trace", Bytes(bytes))),
        (None, us) => us.map(|us| format!("{} of the job's CPU time", time(us))),
    };
    let longest = it.longest_pause_us.map_or_else(String::new, |us| format!(" (longest pause {})", time(us)));
    let paused = it.paused_us.map(|us| format!("paused the job for {} in total{longest}", time(us)));
    let replays = it.cpu_us.map(|us| format!("{} of CPU time for the replays", time(us)));
    let all: Vec<String> = [trace, paused, replays].into_iter().flatten().collect();
    (!all.is_empty()).then(|| format!("cost: {}", all.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::replayed::Failure;

    fn outcome(settings: &str, mib: u64) -> Outcome {
        Outcome { settings: settings.into(), peak_reserved: mib << 20, ..Outcome::default() }
    }

    fn compared() -> Comparison {
        let (current, best) = (outcome("", 2872), Some(outcome("expandable_segments:True", 1946)));
        Comparison { current, best, tried: 9, ..Comparison::default() }
    }

    #[test]
    fn an_answer_promises_no_more_than_the_replay_shows() {
        let it = Comparison { device_bytes: Some(4 << 30), ..compared() };
        let words = "with expandable_segments:True the run reserves 1.90 GiB at its peak (2.80 GiB now) and fits";
        assert_eq!(answer(&it), words);
        assert_eq!(format!("{} and fits", answer(&compared())), words, "without a device nothing is known to fit");
        let window = Comparison { window: Some(Window { steps: Some(40) }), ..it };
        let words = answer(&window);
        assert!(words.contains("in a replay of 40 steps about 1.90 GiB") && !words.contains("fits"), "{words}");
        let none = answer(&Comparison { best: None, ..window });
        assert!(
            none.starts_with("no setting saves 10 % or more in 40 steps without ") && none.contains("run --trace"),
            "{none}"
        );
        let none = Comparison { best: None, ..compared() };
        assert_eq!(
            answer(&none),
            "the run reserves 2.80 GiB at its peak, and less under none of 9 settings that were replayed"
        );
        let fails = Outcome { fails_at: Some(Failure::default()), ..Outcome::default() };
        let none = Comparison { current: fails, ..none };
        assert_eq!(answer(&none), "the run fits under none of 9 settings that were replayed");
    }

    #[test]
    fn only_settings_that_fit_would_have_fit() {
        let fails = |mib| Outcome { fails_at: Some(Failure::default()), ..outcome("x:1", mib) };
        let of = |it| Replayed {
            probe: crate::facts::event::ProbeId(0),
            device: 0,
            finding: None,
            result: Ok(Box::new(it)),
            cost: Cost::default(),
        };
        let fitting = Comparison { current: fails(9), ..compared() };
        assert_eq!(fits_instead(&of(fitting.clone())).map(Foreign::raw), Some("expandable_segments:True"));
        assert_eq!(fits_instead(&of(compared())), None, "the run fits as it is");
        assert_eq!(fits_instead(&of(Comparison { best: Some(fails(9)), ..fitting.clone() })), None);
        assert_eq!(fits_instead(&of(Comparison { window: Some(Window::default()), ..fitting })), None);
    }

    #[test]
    fn a_line_to_export_is_safe_to_paste_and_the_cost_is_shown() {
        assert_eq!(export(&outcome("a:1", 1)), "export PYTORCH_CUDA_ALLOC_CONF=a:1");
        assert!(export(&outcome("a:$(rm x)", 1)).contains('\''));
        let cost =
            Cost { cpu_us: Some(4_000_000), trace_bytes: Some(1 << 20), trace_cpu_us: Some(30_000), ..Cost::default() };
        assert_eq!(
            expense(&cost).as_deref(),
            Some("cost: 1.00 MiB of trace, 30 ms of the job's CPU time; 4.0 s of CPU time for the replays")
        );
        assert_eq!(expense(&Cost::default()), None);
    }
}

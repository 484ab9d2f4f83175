//! Requests for a window: a trace of the allocations of some steps. The job's Python writes it to a file next to the
//! socket, and the atomic value here is how it receives the request.

use crate::sys;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Steps to trace without a number in the request, and the most.
const STEPS: u64 = 20;
const STEPS_MAX: u64 = (1 << 20) - 1;

/// Seconds after which a trace ends however many steps there were, and the most.
const SECONDS: u64 = 60;
const SECONDS_MAX: u64 = 600;

/// The bits of a request for call stacks, and of one that allows long pauses for them.
const WITH_STACKS: u64 = 1 << 31;
const LONG_PAUSES: u64 = 1 << 30;

/// Shortest time between two windows that no user requested, in µs.
const BETWEEN_US: u64 = 600 * 1_000_000;

/// The open request.
#[derive(Debug, Default)]
pub(crate) struct WindowRequest {
    /// Steps in 20 bits, seconds in 10, [`LONG_PAUSES`], [`WITH_STACKS`], and the request's own number in 32; 0 without
    /// a request.
    bits: AtomicU64,
    /// Whether the job takes requests at all.
    is_served: AtomicBool,
}

impl WindowRequest {
    /// Returns the open request, 0 without one: for the job, which takes requests by calling this.
    pub(crate) fn bits(&self) -> u64 {
        self.is_served.store(true, Ordering::Relaxed);
        self.bits.load(Ordering::Acquire)
    }

    /// Ends a request, unless another has taken its place.
    pub(crate) fn end(&self, bits: u64) {
        let _ = self.bits.compare_exchange(bits, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Limits how often windows are traced.
#[derive(Debug, Default)]
pub(crate) struct WindowLimit {
    /// The last windows that no user requested, without call stacks and with them.
    traced_us: [Option<u64>; 2],
}

impl WindowLimit {
    /// Parses `window id=N [steps=N] [seconds=N] [with=stacks] [pauses=long] [why=alert]` and opens the request;
    /// returns its bits.
    pub(crate) fn ask<'a>(
        &mut self,
        arguments: impl Iterator<Item = &'a str>,
        request: &WindowRequest,
    ) -> Result<u64, String> {
        let (bits, is_of_alert) = parsed(arguments)?;
        if !request.is_served.load(Ordering::Relaxed) {
            return Err("this probe traces no allocations: the one of PyTorch jobs does".to_owned());
        }
        let now_us = sys::monotonic_us();
        let traced_us = &mut self.traced_us[usize::from(bits & WITH_STACKS > 0)];
        let ago = traced_us.map(|it| now_us.saturating_sub(it)).filter(|it| is_of_alert && *it < BETWEEN_US);
        if let Some(ago) = ago {
            let seconds = ago / 1_000_000;
            return Err(format!("it was traced {seconds} s ago: once in ten minutes, unless a person asks"));
        }
        if request.bits.compare_exchange(0, bits, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err("its allocations are being traced for another viewer: ask again in a minute".to_owned());
        }
        if is_of_alert {
            *traced_us = Some(now_us);
        }
        Ok(bits)
    }
}

/// Encodes a request, and returns whether an alert is its reason.
fn parsed<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<(u64, bool), String> {
    let (mut id, mut steps, mut seconds, mut is_of_alert) = (None, STEPS, SECONDS, false);
    let mut with = 0;
    let number = |name: &str, text: &str, most: u64| match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("{name} is a number from 1 to {most}")),
    };
    for argument in arguments {
        match argument.split_once('=') {
            Some(("id", it)) => id = Some(number("id", it, u32::MAX.into())?),
            Some(("steps", it)) => steps = number("steps", it, STEPS_MAX)?,
            Some(("seconds", it)) => seconds = number("seconds", it, SECONDS_MAX)?,
            Some(("why", "alert")) => is_of_alert = true,
            Some(("with", "stacks")) => with |= WITH_STACKS,
            Some(("pauses", "long")) => with |= LONG_PAUSES,
            _ => return Err("window takes id=N, steps=N, seconds=N, with=stacks, pauses=long and why=alert".to_owned()),
        }
    }
    let id = id.ok_or("window needs id=N, which names its file")?;
    Ok((id << 32 | with | seconds << 20 | steps, is_of_alert))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(limit: &mut WindowLimit, line: &str, request: &WindowRequest) -> Result<u64, String> {
        limit.ask(line.split_ascii_whitespace(), request)
    }

    #[test]
    fn a_request_is_open_until_the_job_or_its_viewer_ends_it() {
        let (mut limit, request) = (WindowLimit::default(), WindowRequest::default());
        assert!(ask(&mut limit, "id=7", &request).unwrap_err().contains("traces no allocations"));
        assert_eq!(request.bits(), 0);
        let bits = ask(&mut limit, "id=7 steps=5 seconds=9", &request).unwrap();
        assert_eq!((bits, request.bits()), (7 << 32 | 9 << 20 | 5, bits));
        assert!(ask(&mut limit, "id=8", &request).unwrap_err().contains("another viewer"));
        request.end(bits + 1);
        assert_eq!(request.bits(), bits, "another request's end");
        request.end(bits);
        assert_eq!(request.bits(), 0);
        assert_eq!(
            ask(&mut limit, "id=9 steps=5 seconds=9 with=stacks", &request),
            Ok(9 << 32 | 1 << 31 | 9 << 20 | 5)
        );
    }

    #[test]
    fn alerts_request_one_window_in_ten_minutes() {
        let (mut limit, request) = (WindowLimit::default(), WindowRequest::default());
        assert_eq!(request.bits(), 0);
        let bits = ask(&mut limit, "id=1 why=alert", &request).unwrap();
        request.end(bits);
        assert!(ask(&mut limit, "id=2 why=alert", &request).unwrap_err().contains("ten minutes"));
        let bits = ask(&mut limit, "id=3", &request).expect("a person may");
        request.end(bits);
        let bits = ask(&mut limit, "id=4 with=stacks why=alert", &request).expect("of another kind");
        request.end(bits);
        assert!(ask(&mut limit, "id=5 with=stacks why=alert", &request).unwrap_err().contains("ten minutes"));
    }

    #[test]
    fn an_invalid_request_is_refused_with_the_reason() {
        let (mut limit, request) = (WindowLimit::default(), WindowRequest::default());
        assert_eq!(request.bits(), 0);
        for line in ["", "id=0", "id=4294967296", "id=1 steps=0", "id=1 seconds=601", "id=1 why=fun", "id=1 more"] {
            ask(&mut limit, line, &request).unwrap_err();
        }
        assert_eq!(request.bits(), 0);
    }
}

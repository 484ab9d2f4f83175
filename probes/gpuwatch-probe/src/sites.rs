//! Requests for sites: their limits, and the atomic values by which the job's thread receives them.

use crate::{sys, wire::Hello};
use std::sync::atomic::{AtomicU64, Ordering};

/// The default number of steps to compare.
const STEPS: u64 = 8;

/// Longer captures are refused.
const STEPS_MAX: u64 = 10_000;

/// Captures that no user requested, in this many µs: a job may fill a buffer before it leaks, and each growth has lines
/// of its own.
const CAPTURES: usize = 3;
const WITHIN_US: u64 = 600 * 1_000_000;

/// The value of [`Hello::sites`] if the job accepts requests.
pub(crate) const READY: &str = "ready";

const COLLECT: u64 = 1 << 32;
const GROWTH: u64 = 1 << 33;

/// Limits of the fields in the second value: steps between two rises, and how far a rise may be from its step.
const EVERY_MAX: u64 = (1 << 24) - 1;
const SLACK_MAX: u64 = (1 << 16) - 1;

/// The open request. The job reads it when it pushes a sample, and its answer goes to all viewers.
#[derive(Debug, Default)]
pub(crate) struct SitesRequest {
    /// Steps in the low 32 bits, and two flags; 0 without a request.
    bits: AtomicU64,
    /// When the next rises are expected; 0 if unknown.
    rises: AtomicU64,
}

impl SitesRequest {
    pub(crate) fn bits(&self) -> u64 {
        self.bits.load(Ordering::Acquire)
    }

    /// Returns the period of rises in steps (24 bits), the remainder of a rise's step divided by it (24), and by how
    /// many steps a rise may come early or late (16).
    pub(crate) fn rises(&self) -> u64 {
        self.rises.load(Ordering::Relaxed)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.bits() != 0
    }

    pub(crate) fn answered(&self) {
        self.bits.store(0, Ordering::Relaxed);
    }
}

/// Limits how often captures run.
#[derive(Debug, Default)]
pub(crate) struct SitesLimit {
    /// When the latest captures began that no user requested, the oldest first.
    captured_us: [Option<u64>; CAPTURES],
}

impl SitesLimit {
    /// Parses `sites [steps=N] [every=N rise=N [slack=N]] [collect=1] [why=growth]`. A request during a capture joins
    /// it; but a user does not wait for rises that a viewer waits for.
    pub(crate) fn ask<'a>(
        &mut self,
        arguments: impl Iterator<Item = &'a str>,
        hello: &Hello,
        request: &SitesRequest,
    ) -> Result<(), String> {
        let (bits, rises) = parsed(arguments)?;
        match hello.sites.as_deref() {
            Some(READY) => {}
            Some(why) => return Err(why.to_owned()),
            None => return Err("this probe keeps no sites".to_owned()),
        }
        let waits = request.bits() & GROWTH != 0 && request.rises() != 0;
        if request.is_open() && (bits & GROWTH != 0 || !waits) {
            return Ok(());
        }
        if bits & GROWTH != 0 {
            let now_us = sys::monotonic_us();
            let oldest = self.captured_us.first().copied().flatten();
            if oldest.is_some_and(|it| now_us.saturating_sub(it) < WITHIN_US) {
                return Err(format!(
                    "lines were looked for {CAPTURES} times within ten minutes, the most unless a person asks: \
                     gpuwatch sites {}",
                    hello.pid
                ));
            }
            self.captured_us.rotate_left(1);
            if let Some(latest) = self.captured_us.last_mut() {
                *latest = Some(now_us);
            }
        }
        request.rises.store(rises, Ordering::Relaxed);
        request.bits.store(bits, Ordering::Release);
        Ok(())
    }
}

/// Encodes a request in two integers: the bits of the request, and when rises are expected.
fn parsed<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<(u64, u64), String> {
    let mut bits = STEPS;
    let (mut every, mut rise, mut slack) = (0, None, 0);
    let number = |name: &str, text: &str, from: u64, to: u64| match text.parse() {
        Ok(number) if (from..=to).contains(&number) => Ok(number),
        _ => Err(format!("{name} is a number from {from} to {to}")),
    };
    for argument in arguments {
        match argument.split_once('=') {
            Some(("steps", it)) => bits = bits & !u64::from(u32::MAX) | number("steps", it, 1, STEPS_MAX)?,
            Some(("every", it)) => every = number("every", it, 1, EVERY_MAX)?,
            Some(("rise", it)) => rise = Some(number("rise", it, 0, u64::MAX)?),
            Some(("slack", it)) => slack = number("slack", it, 0, SLACK_MAX)?,
            Some(("collect", "1")) => bits |= COLLECT,
            Some(("why", "growth")) => bits |= GROWTH,
            _ => return Err("sites takes steps=N, every=N, rise=N, slack=N, collect=1 and why=growth".to_owned()),
        }
    }
    let rises = rise.filter(|_| every > 0).map_or(0, |it| every << 40 | (it % every) << 16 | slack);
    Ok((bits, rises))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(limit: &mut SitesLimit, line: &str, request: &SitesRequest) -> Result<(), String> {
        let hello = Hello { sites: Some(READY.to_owned()), ..Hello::default() };
        limit.ask(line.split_ascii_whitespace(), &hello, request)
    }

    #[test]
    fn a_request_fits_into_one_integer() {
        let (mut limit, request) = (SitesLimit::default(), SitesRequest::default());
        assert!(!request.is_open());
        ask(&mut limit, "collect=1 steps=20", &request).unwrap();
        assert_eq!(request.bits(), 20 + COLLECT);
        // A request during the capture joins it.
        ask(&mut limit, "", &request).unwrap();
        assert_eq!(request.bits(), 20 + COLLECT);
        request.answered();
        ask(&mut limit, "", &request).unwrap();
        assert_eq!(request.bits(), STEPS);
    }

    #[test]
    fn within_ten_minutes_only_a_person_starts_a_fourth_capture() {
        let (mut limit, request) = (SitesLimit::default(), SitesRequest::default());
        for _ in 0..CAPTURES {
            ask(&mut limit, "why=growth", &request).unwrap();
            assert_eq!(request.bits(), STEPS + GROWTH);
            ask(&mut limit, "why=growth", &request).expect("the same capture");
            request.answered();
        }
        assert!(ask(&mut limit, "why=growth", &request).unwrap_err().contains("ten minutes"));
        assert!(!request.is_open());
        ask(&mut limit, "", &request).unwrap();
    }

    #[test]
    fn a_person_does_not_wait_for_the_rises_that_a_viewer_waits_for() {
        let (mut limit, request) = (SitesLimit::default(), SitesRequest::default());
        ask(&mut limit, "why=growth every=5000 rise=15003 slack=2", &request).unwrap();
        assert_eq!((request.bits(), request.rises()), (STEPS + GROWTH, 5000 << 40 | 3 << 16 | 2));
        ask(&mut limit, "steps=20", &request).unwrap();
        assert_eq!((request.bits(), request.rises()), (20, 0));
        ask(&mut limit, "steps=30", &request).unwrap();
        assert_eq!(request.bits(), 20, "what a person asked serves others as well");
    }

    #[test]
    fn an_invalid_request_is_refused_with_the_reason() {
        let (mut limit, request) = (SitesLimit::default(), SitesRequest::default());
        for line in
            ["steps=0", "steps=10001", "steps=x", "steps", "collect=2", "why=fun", "every=0", "slack=65536", "more"]
        {
            ask(&mut limit, line, &request).unwrap_err();
        }
        assert_eq!(limit.ask([].into_iter(), &Hello::default(), &request), Err("this probe keeps no sites".to_owned()));
        let forbidden = Hello { sites: Some("forbidden".to_owned()), ..Hello::default() };
        assert_eq!(limit.ask([].into_iter(), &forbidden, &request), Err("forbidden".to_owned()));
        assert!(!request.is_open());
    }
}

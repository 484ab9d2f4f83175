//! Stream capture: the work of streams becomes a graph instead of running, and calls that would have to wait for it are
//! refused, as the CUDA runtime's documentation specifies for each call.

use super::{
    abi::{Answer, Fault},
    capture_state::{Capture, Graph, Node, Place, Work},
    process::{Process, current, process},
    queues::{is_legacy, key},
    watch,
};
use std::{cell::Cell, collections::BTreeSet, mem, thread};

/// `cudaStreamCaptureMode`: which calls a capture forbids, and to whom; a thread has one too.
const GLOBAL: i32 = 0;
const RELAXED: i32 = 2;

thread_local! {
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

/// The state of a stream's capture.
pub(super) struct Info {
    pub(super) id: u64,
    pub(super) graph: usize,
    pub(super) broken: bool,
    /// The address of the nodes that the next node depends on, and their number.
    pub(super) after: (usize, usize),
}

/// Sets how this thread's calls are judged; gives how they were until now.
pub(super) fn exchange_mode(mode: i32) -> Result<i32, Fault> {
    if (GLOBAL..=RELAXED).contains(&mode) { Ok(MODE.replace(mode)) } else { Err(Fault::InvalidValue) }
}

/// Submits work to a stream: it runs now or, while the stream captures, whenever its graph is launched.
pub(super) fn submit(stream: usize, work: Work) -> Answer {
    if matches!(work, Work::Kernel) {
        watch::launched();
    }
    let device = current();
    let mut process = process();
    process.context(device)?;
    if process.captured(stream, device, &work)? {
        return Ok(());
    }
    match work {
        Work::Nothing => {}
        Work::Kernel => {
            process.copies.launched();
            process.queues.work(stream, device)?;
        }
        Work::Allocate(base) => process.take_captured(base)?,
        Work::Free(base) => {
            process.free_captured(base);
        }
        Work::Act(act) => {
            drop(process);
            act();
        }
    }
    Ok(())
}

impl Process {
    /// Refuses a call that may be unsafe while streams capture, unless the modes of the thread and of the captures let
    /// it pass.
    pub(super) fn permit(&mut self) -> Answer {
        let mode = MODE.get();
        if mode == RELAXED || self.captures.open.is_empty() {
            return Ok(());
        }
        let here = thread::current().id();
        self.captures.refuse(Fault::CaptureUnsupported, |_, it| {
            if it.thread == here { it.mode != RELAXED } else { mode == GLOBAL && it.mode == GLOBAL }
        })
    }

    /// Refuses to wait for a stream, or to ask whether it is done, while it captures.
    pub(super) fn permit_stream(&mut self, stream: usize, device: usize) -> Answer {
        let Some(place) = &self.queues.stream(stream, device)?.place else { return self.permit() };
        let captured = place.capture;
        self.captures.refuse(Fault::CaptureUnsupported, |it, _| it == captured)
    }

    /// The same of an event that was last recorded in a capture.
    pub(super) fn permit_event(&mut self, event: usize) -> Answer {
        let Some(place) = &self.queues.event(event)?.place else { return self.permit() };
        let captured = place.capture;
        self.captures.refuse(Fault::CapturedEvent, |it, _| it == captured).and(Err(Fault::CapturedEvent))
    }

    /// The same of a whole device.
    pub(super) fn permit_device(&mut self, device: usize) -> Answer {
        let captured: BTreeSet<usize> = self.queues.places(device).map(|(_, it)| it.capture).collect();
        self.captures.refuse(Fault::CaptureUnsupported, |it, _| captured.contains(&it))?;
        self.permit()
    }

    /// The captures that the legacy stream would have to wait for.
    fn implicit(&mut self, stream: usize, device: usize) -> BTreeSet<usize> {
        if self.captures.open.is_empty() || !is_legacy(stream) {
            return BTreeSet::new();
        }
        self.queues.places(device).filter(|(blocking, _)| *blocking).map(|(_, it)| it.capture).collect()
    }

    /// Makes a node of work, where a stream captures; false where it does not, and the work is to be done.
    pub(super) fn captured(&mut self, stream: usize, device: usize, work: &Work) -> Result<bool, Fault> {
        let implicit = self.implicit(stream, device);
        self.captures.refuse(Fault::CaptureImplicit, |it, _| implicit.contains(&it))?;
        let node = self.queues.handle();
        let Some(place) = &mut self.queues.stream(stream, device)?.place else { return Ok(false) };
        let graph = self.captures.whole(place)?.graph;
        let graph = self.captures.graphs.get_mut(&graph).ok_or(Fault::InvalidValue)?;
        let after = mem::replace(&mut place.after, vec![node]);
        graph.nodes.insert(node, Node { after, work: work.clone() });
        Ok(true)
    }

    /// Begins to capture a stream's work.
    pub(super) fn begin_capture(&mut self, stream: usize, device: usize, mode: i32) -> Answer {
        if is_legacy(stream) {
            return Err(Fault::CaptureUnsupported);
        }
        if !(GLOBAL..=RELAXED).contains(&mode) {
            return Err(Fault::InvalidValue);
        }
        let (id, graph) = (self.queues.handle(), self.queues.handle());
        let request = self.queues.stream(stream, device)?;
        if request.place.is_some() {
            return Err(Fault::IllegalState);
        }
        request.place = Some(Place { capture: id, after: Vec::new() });
        let origin = key(stream, device);
        let (thread, returned) = (thread::current().id(), Vec::new());
        self.captures.graphs.insert(graph, Graph::default());
        self.captures.open.insert(id, Capture { origin, graph, mode, thread, broken: false, returned });
        Ok(())
    }

    /// Ends a capture on the stream where it began: gives its graph, or what went wrong in it.
    pub(super) fn end_capture(&mut self, stream: usize, device: usize) -> Result<usize, Fault> {
        let place = self.queues.stream(stream, device)?.place.clone().ok_or(Fault::IllegalState)?;
        let id = place.capture;
        let capture = self.captures.open.get_mut(&id).ok_or(Fault::IllegalState)?;
        if capture.origin != key(stream, device) {
            capture.broken = true;
            return Err(Fault::CaptureUnmatched);
        }
        if capture.mode != RELAXED && capture.thread != thread::current().id() {
            return Err(Fault::CaptureWrongThread);
        }
        let (graph, broken) = (capture.graph, capture.broken);
        self.captures.open.remove(&id);
        self.queues.leave(|it| it.capture == id);
        let joined = self.captures.graphs.get(&graph).is_some_and(|it| it.ends_in(&place.after));
        if joined && !broken {
            return Ok(graph);
        }
        self.captures.graphs.remove(&graph);
        Err(if broken { Fault::CaptureInvalidated } else { Fault::CaptureUnjoined })
    }

    /// Returns the state of a stream's capture; `None` if the stream does not capture.
    pub(super) fn capture_of(&mut self, stream: usize, device: usize) -> Result<Option<Info>, Fault> {
        if !self.implicit(stream, device).is_empty() {
            return Err(Fault::CaptureImplicit);
        }
        let Some(place) = &self.queues.stream(stream, device)?.place else { return Ok(None) };
        let Some(capture) = self.captures.open.get_mut(&place.capture) else { return Ok(None) };
        capture.returned.clone_from(&place.after);
        let after = (capture.returned.as_ptr() as usize, capture.returned.len());
        Ok(Some(Info { id: place.capture as u64, graph: capture.graph, broken: capture.broken, after }))
    }

    /// Has what a capturing stream does next come after these nodes, besides what it comes after already or instead.
    pub(super) fn follow(&mut self, stream: usize, device: usize, nodes: &[usize], instead: bool) -> Answer {
        let place = self.queues.stream(stream, device)?.place.as_mut().ok_or(Fault::IllegalState)?;
        let graph = self.captures.graphs.get(&self.captures.whole(place)?.graph).ok_or(Fault::InvalidValue)?;
        if !nodes.iter().all(|it| graph.nodes.contains_key(it)) {
            return Err(Fault::InvalidValue);
        }
        if instead {
            place.after.clear();
        }
        place.add(nodes);
        Ok(())
    }

    /// Has an event stand for a stream's place in its capture; false where the stream does not capture.
    pub(super) fn record_captured(&mut self, event: usize, stream: usize, device: usize) -> Result<bool, Fault> {
        let place = self.queues.stream(stream, device)?.place.clone();
        if let Some(place) = &place {
            self.captures.whole(place)?;
        }
        let event = self.queues.event(event)?;
        event.place = place;
        Ok(event.place.is_some())
    }

    /// Has what a stream does next come after an event, where one of the two is part of a capture; false where neither
    /// is. A stream that waits for a captured event is captured from then on.
    pub(super) fn wait_captured(&mut self, stream: usize, device: usize, event: usize) -> Result<bool, Fault> {
        let (recorded, place) = self.queues.event(event).map(|it| (it.until.is_some(), it.place.clone()))?;
        let waiting = &mut self.queues.stream(stream, device)?.place;
        match (waiting, place) {
            (None, None) => return Ok(false),
            (None, Some(_)) if is_legacy(stream) => return Err(Fault::CaptureImplicit),
            (waiting @ None, Some(place)) => {
                // A stream cannot wait for an event of a capture that has ended.
                self.captures.open.get(&place.capture).ok_or(Fault::CapturedEvent)?;
                self.captures.whole(&place)?;
                *waiting = Some(place);
            }
            (Some(waiting), None) => {
                let captured = waiting.capture;
                // An event that was never recorded is nothing to wait for.
                if recorded {
                    self.captures.refuse(Fault::CaptureIsolation, |it, _| it == captured)?;
                }
            }
            (Some(waiting), Some(place)) if waiting.capture == place.capture => {
                self.captures.whole(&place)?;
                waiting.add(&place.after);
            }
            (Some(waiting), Some(place)) => {
                let both = [waiting.capture, place.capture];
                self.captures.refuse(Fault::CaptureMerge, |it, _| both.contains(&it))?;
            }
        }
        Ok(true)
    }
}

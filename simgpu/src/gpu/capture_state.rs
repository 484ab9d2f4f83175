//! The parts of captures: work of streams, graphs of it, and the open captures.

use super::abi::{Answer, Fault};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    thread::ThreadId,
};

/// A stream's work.
#[derive(Clone)]
pub(super) enum Work {
    /// Waits for what came before, and nothing else.
    Nothing,
    Kernel,
    /// Takes the memory of a captured allocation, or gives it back.
    Allocate(usize),
    Free(usize),
    /// A copy, a fill, a function of the host's.
    Act(Arc<dyn Fn() + Send + Sync>),
}

impl Work {
    pub(super) fn act(act: impl Fn() + Send + Sync + 'static) -> Self {
        Self::Act(Arc::new(act))
    }
}

/// A piece of work in a graph, and the nodes that it comes after.
pub(super) struct Node {
    pub(super) after: Vec<usize>,
    pub(super) work: Work,
}

/// What ends a value of the program's.
pub(super) type Destructor = extern "C" fn(usize);

/// A value and what ends it. The destructor may call back, so the last reference is dropped without the process's lock.
pub(super) struct UserObject {
    value: usize,
    destructor: Destructor,
}

impl UserObject {
    pub(super) fn new(value: usize, destructor: Destructor) -> Self {
        Self { value, destructor }
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        (self.destructor)(self.value);
    }
}

/// References by the object's handle.
#[derive(Clone, Default)]
pub(super) struct References(BTreeMap<usize, (Arc<UserObject>, u32)>);

impl References {
    pub(super) fn add(&mut self, handle: usize, object: Arc<UserObject>, count: u32) {
        self.0.entry(handle).or_insert((object, 0)).1 += count;
    }

    /// Returns the object if these were the last ones here, to be dropped without the lock.
    pub(super) fn remove(&mut self, handle: usize, count: u32) -> Result<Option<Arc<UserObject>>, Fault> {
        let held = self.0.get_mut(&handle).ok_or(Fault::InvalidValue)?;
        held.1 = held.1.checked_sub(count).ok_or(Fault::InvalidValue)?;
        Ok(if held.1 == 0 { self.0.remove(&handle).map(|it| it.0) } else { None })
    }

    pub(super) fn object(&self, handle: usize) -> Result<Arc<UserObject>, Fault> {
        self.0.get(&handle).map(|it| Arc::clone(&it.0)).ok_or(Fault::InvalidValue)
    }
}

/// Nodes by their handles, which are in the order of capture: what a node comes after has a lower one.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) nodes: BTreeMap<usize, Node>,
    pub(super) objects: References,
}

/// A graph that can be launched.
#[derive(Clone)]
pub(super) struct Ready {
    /// In order.
    pub(super) work: Arc<[Work]>,
    /// What lives as long as it does.
    pub(super) _objects: References,
}

impl Graph {
    /// Whether these nodes come after all others.
    pub(super) fn ends_in(&self, last: &[usize]) -> bool {
        let mut before: BTreeSet<usize> = last.iter().copied().collect();
        for (handle, node) in self.nodes.iter().rev() {
            if !before.contains(handle) {
                return false;
            }
            before.extend(&node.after);
        }
        true
    }
}

/// A place in a capture, of a stream or of an event that was recorded there: what follows comes after these nodes.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) capture: usize,
    pub(super) after: Vec<usize>,
}

impl Place {
    pub(super) fn add(&mut self, nodes: &[usize]) {
        self.after.extend(nodes);
        self.after.sort_unstable();
        self.after.dedup();
    }
}

pub(super) struct Capture {
    /// The stream that it began on.
    pub(super) origin: usize,
    pub(super) graph: usize,
    pub(super) mode: i32,
    pub(super) thread: ThreadId,
    /// Something was done that cannot be captured: it can only be ended.
    pub(super) broken: bool,
    /// The nodes that the last query returned. The caller may read them until its next call.
    pub(super) returned: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Captures {
    pub(super) open: BTreeMap<usize, Capture>,
    pub(super) graphs: HashMap<usize, Graph>,
    pub(super) ready: HashMap<usize, Ready>,
    /// The program's own references to objects that graphs may keep.
    pub(super) objects: References,
}

impl Captures {
    /// A place in a capture to which something can be added.
    pub(super) fn whole(&self, place: &Place) -> Result<&Capture, Fault> {
        self.open.get(&place.capture).filter(|it| !it.broken).ok_or(Fault::CaptureInvalidated)
    }

    /// Breaks the captures that something would harm, and refuses it if there are any.
    pub(super) fn refuse(&mut self, fault: Fault, harmed: impl Fn(usize, &Capture) -> bool) -> Answer {
        let mut answer = Ok(());
        for (id, capture) in &mut self.open {
            if harmed(*id, capture) {
                capture.broken = true;
                answer = Err(fault);
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_ends_where_all_of_it_was_waited_for() {
        let node = |after: &[usize]| Node { after: after.into(), work: Work::Kernel };
        // 2 and 3 come after 1; 4 comes after both.
        let fork = [(1, node(&[])), (2, node(&[1])), (3, node(&[1]))];
        let mut graph = Graph { nodes: fork.into(), objects: References::default() };
        assert!(graph.ends_in(&[2, 3]) && !graph.ends_in(&[2]) && !graph.ends_in(&[]));
        graph.nodes.insert(4, node(&[2, 3]));
        assert!(graph.ends_in(&[4]));
        assert!(Graph::default().ends_in(&[]));
    }
}

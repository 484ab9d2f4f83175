//! Live blocks as a tree of calls, outermost function first.

use super::{Block, BlockState, Segment, StackId, Trace};
use hashbrown::HashMap;
use std::cmp::Reverse;

/// One call, with everything allocated in it and below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The frame's number in [`Stacks::frames`]; `None` at the root, and for blocks without a stack.
    pub frame: Option<u32>,
    /// Bytes of its own blocks and of those below it.
    pub bytes: u64,
    /// Number of those blocks.
    pub blocks: u64,
    /// Bytes of its own blocks.
    pub own: u64,
    /// Its caller, by index in the tree; the root's is the root.
    pub caller: usize,
    /// The calls below it, by index in the tree, largest first.
    pub calls: Vec<usize>,
}

/// A tree of calls. The root has index 0; a call comes after its caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Each call, after its caller; the first is the root.
    pub calls: Vec<Call>,
}

impl Tree {
    /// Builds the tree of some shares. `frames` lists the frames of a stack that are shown, the one next to the root
    /// first.
    pub fn new(shares: &[StackShare], frames: impl Fn(StackId) -> Vec<u32>) -> Self {
        let mut tree = Self { calls: vec![Call::default()] };
        let mut known: HashMap<(usize, Option<u32>), usize> = HashMap::new();
        for share in shares {
            let mut path: Vec<Option<u32>> = frames(share.stack).into_iter().map(Some).collect();
            if path.is_empty() {
                path.push(None);
            }
            let mut at = 0;
            tree.add(at, share);
            for frame in path {
                let next = *known.entry((at, frame)).or_insert(tree.calls.len());
                if next == tree.calls.len() {
                    tree.calls.push(Call { frame, caller: at, ..Call::default() });
                    tree.calls[at].calls.push(next);
                }
                tree.add(next, share);
                at = next;
            }
            tree.calls[at].own = tree.calls[at].own.saturating_add(share.bytes);
        }
        let sizes: Vec<u64> = tree.calls.iter().map(|call| call.bytes).collect();
        for call in &mut tree.calls {
            call.calls.sort_by_key(|place| (Reverse(sizes[*place]), *place));
        }
        tree
    }

    /// Returns the call at an index.
    pub fn get(&self, place: usize) -> Option<&Call> {
        self.calls.get(place)
    }

    /// Returns every path from the outermost call to one with blocks of its own, with their bytes.
    pub fn paths(&self) -> Vec<(Vec<Option<u32>>, u64)> {
        let mut all = Vec::new();
        let mut waiting = vec![(0, Vec::new())];
        while let Some((place, path)) = waiting.pop() {
            let Some(call) = self.get(place) else { continue };
            if call.own > 0 {
                all.push((path.clone(), call.own));
            }
            for next in call.calls.iter().rev() {
                let frame = self.get(*next).and_then(|call| call.frame);
                waiting.push((*next, path.iter().copied().chain([frame]).collect()));
            }
        }
        all
    }

    fn add(&mut self, place: usize, share: &StackShare) {
        let call = &mut self.calls[place];
        call.bytes = call.bytes.saturating_add(share.bytes);
        call.blocks = call.blocks.saturating_add(share.blocks);
    }
}

/// Live blocks that one call stack requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackShare {
    /// The call stack; the empty one if it is unknown.
    pub stack: StackId,
    /// Their bytes.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// The live blocks after one event of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The event's index in the device's trace.
    pub event: usize,
    /// Its time, in µs since 1970.
    pub unix_us: Option<u64>,
    /// Requested bytes that are live.
    pub bytes: u64,
    /// Bytes in blocks that predate the trace.
    pub older: u64,
    /// The blocks by call stack, largest first.
    pub shares: Vec<StackShare>,
}

impl Trace {
    /// Returns a device's live blocks by call stack, the largest share first.
    pub fn live(&self, device: u32) -> Vec<StackShare> {
        self.live_in(self.segments_on(device))
    }

    /// Returns the live blocks of some segments by stack, the largest share first.
    pub fn live_in<'a>(&self, segments: impl Iterator<Item = &'a Segment>) -> Vec<StackShare> {
        self.shares(segments.flat_map(|it| self.blocks_of(it)).filter(|it| it.state == BlockState::Live))
    }

    /// Returns blocks by stack, the largest share first.
    pub fn shares<'a>(&self, blocks: impl Iterator<Item = &'a Block>) -> Vec<StackShare> {
        shares(blocks.map(|it| (it.stack, it.size)))
    }

    /// Returns the peak of a device's trace; `None` if nothing was allocated or freed.
    ///
    /// Counts requested bytes, because a trace lacks the blocks' sizes.
    pub fn peak(&self, device: u32) -> Option<Moment> {
        let history = self.history(device);
        history.moment(self, device, history.peak?)
    }

    /// Returns the live blocks after an event of a device's trace, by its place there: address, bytes asked for, stack.
    pub fn live_after(&self, device: u32, event: usize) -> Vec<(u64, u64, StackId)> {
        self.history(device).blocks(event).collect()
    }
}

/// Returns blocks by stack, the largest share first.
pub(super) fn shares(blocks: impl Iterator<Item = (StackId, u64)>) -> Vec<StackShare> {
    let mut sums: HashMap<StackId, StackShare> = HashMap::new();
    for (stack, bytes) in blocks {
        let share = sums.entry(stack).or_insert(StackShare { stack, ..StackShare::default() });
        share.bytes = share.bytes.saturating_add(bytes);
        share.blocks += 1;
    }
    let mut all: Vec<_> = sums.into_values().collect();
    all.sort_by_key(|it| (std::cmp::Reverse(it.bytes), it.stack));
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, Stacks};
    use super::*;

    #[test]
    fn calls_add_up_and_the_largest_stand_first() {
        let mut stacks = Stacks::default();
        let frame = |stacks: &mut Stacks, line| stacks.frames.id(Frame { line, ..Frame::default() });
        let [main, step, embed, native] = [1, 2, 3, 4].map(|line| frame(&mut stacks, line));
        let small = stacks.id(&[native, step, main]);
        let large = stacks.id(&[embed, main]);
        let shares = [(small, 10, 2), (large, 300, 1), (StackId::default(), 5, 1)]
            .map(|(stack, bytes, blocks)| StackShare { stack, bytes, blocks });
        let shown = |stack| stacks.numbers(stack).iter().rev().copied().filter(|it| *it != native).collect();
        let tree = Tree::new(&shares, shown);
        assert_eq!((tree.calls[0].bytes, tree.calls[0].blocks), (315, 4));
        let first = &tree.calls[tree.calls[0].calls[0]];
        assert_eq!((first.frame, first.bytes, first.own), (Some(main), 310, 0));
        assert_eq!(tree.calls[first.calls[0]].frame, Some(embed));
        let expected = [(vec![Some(main), Some(embed)], 300), (vec![Some(main), Some(step)], 10), (vec![None], 5)];
        assert_eq!(tree.paths(), expected);
    }
}

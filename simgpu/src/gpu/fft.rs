//! cuFFT: plans with the size of their work area; they transform nothing.

use super::{
    abi::{In, Out},
    capture,
    capture_state::Work,
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

const INVALID_PLAN: i32 = 1;
const INVALID_VALUE: i32 = 4;
const EXECUTION_FAILED: i32 = 6;

/// The stream of each plan.
static PLANS: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());

fn with(plan: i32, work: impl FnOnce(&mut usize) -> i32) -> i32 {
    PLANS.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&plan).map_or(INVALID_PLAN, work)
}

/// Bytes of a complex value with the precision of a `cudaDataType`.
fn width(kind: i32) -> usize {
    match kind {
        2 | 6 | 14 | 15 => 4,
        1 | 5 => 16,
        _ => 8,
    }
}

/// The library transforms out of place inside: it needs as much again as all of its complex values take.
fn work_area(lengths: impl Iterator<Item = i64>, batch: i64, kind: i32) -> Option<usize> {
    let sides = lengths.chain([batch]);
    sides.map(|it| usize::try_from(it).ok()).try_fold(width(kind), |size, it| size.checked_mul(it?))
}

entry_points! {
    fn cufftCreate(out: Out<i32>) -> i32 {
        let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = plans.last_key_value().map_or(1, |(last, _)| last + 1);
        plans.insert(plan, 0);
        out.put(plan);
        0
    }

    fn cufftDestroy(plan: i32) -> i32 {
        PLANS.lock().unwrap_or_else(PoisonError::into_inner).remove(&plan).map_or(INVALID_PLAN, |_| 0)
    }

    fn cufftSetStream(plan: i32, stream: usize) -> i32 {
        with(plan, |it| { *it = stream; 0 })
    }

    // A plan allocates nothing: PyTorch passes the work area.
    fn cufftSetAutoAllocation(plan: i32, _on: i32) -> i32 {
        with(plan, |_| 0)
    }

    fn cufftXtMakePlanMany(
        plan: i32, rank: i32, lengths: In<i64>, _in_embed: usize, _in_stride: i64, _in_distance: i64, kind: i32,
        _out_embed: usize, _out_stride: i64, _out_distance: i64, _out_kind: i32, batch: i64, work: Out<usize>,
        _computed: i32,
    ) -> i32 {
        let rank = usize::try_from(rank).unwrap_or(0);
        let size = work_area((0..rank).filter_map(|it| lengths.at(it)), batch, kind);
        with(plan, |_| size.map_or(INVALID_VALUE, |it| { work.put(it); 0 }))
    }

    fn cufftSetWorkArea(plan: i32, _at: usize) -> i32 {
        with(plan, |_| 0)
    }

    fn cufftXtExec(plan: i32, _from: usize, _to: usize, _direction: i32) -> i32 {
        with(plan, |stream| capture::submit(*stream, Work::Kernel).map_or(EXECUTION_FAILED, |()| 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_area_is_as_large_as_what_is_transformed() {
        assert_eq!(work_area([64, 32].into_iter(), 3, 4), Some(64 * 32 * 3 * 8));
        assert_eq!(work_area([64].into_iter(), 1, 1), Some(64 * 16));
        assert_eq!(work_area([-1].into_iter(), 1, 1), None);
    }
}

//! cuDNN's graph API as a bag of attributes: what was set is given back, a heuristics query has one engine
//! configuration, a plan needs the workspace that is known of its convolution (`convolution.rs`), and executing it
//! computes nothing. A fallback's configuration needs none.

use super::{
    abi::{In, Out},
    capture,
    capture_state::Work,
    convolution::{Convolution, Tensor, element},
    model::Model,
    process::{current, process},
    stubs::streams,
    sys,
    watch::{self, Seen},
    wheel::Wheel,
};
use std::{
    cell::Cell,
    collections::HashMap,
    ffi::c_char,
    sync::{LazyLock, Mutex, PoisonError},
};

const BAD_PARAM: i32 = 2000;
const EXECUTION_FAILED: i32 = 5000;

/// One attribute as it was set: its type, how many values, their bytes.
struct Attribute {
    kind: i32,
    count: i64,
    bytes: Vec<u8>,
}

type Descriptor = HashMap<i32, Attribute>;

static DESCRIPTORS: LazyLock<Mutex<HashMap<usize, Descriptor>>> = LazyLock::new(Mutex::default);

fn with<R>(descriptor: usize, work: impl FnOnce(&mut Descriptor) -> R) -> Option<R> {
    DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&descriptor).map(work)
}

/// Bytes of one value of a `cudnnBackendAttributeType_t`.
fn width(kind: i32) -> usize {
    match kind {
        2 | 24 => 1,
        0 | 3 | 5 | 6 | 15 => 8,
        26 => 16,
        _ => 4,
    }
}

fn length(count: i64, kind: i32) -> usize {
    usize::try_from(count).unwrap_or(0) * width(kind)
}

/// The attributes that matter here, by their public numbers.
mod attribute {
    pub(super) const HEURISTICS_MODE: i32 = 200;
    pub(super) const HEURISTICS_GRAPH: i32 = 201;
    pub(super) const HEURISTICS_RESULTS: i32 = 202;
    pub(super) const CONFIGURATION_ENGINE: i32 = 300;
    pub(super) const CONFIGURATION_WORKSPACE: i32 = 303;
    pub(super) const CONFIGURATION_SHARED_MEMORY: i32 = 304;
    pub(super) const PLAN_CONFIGURATION: i32 = 401;
    pub(super) const PLAN_WORKSPACE: i32 = 402;
    pub(super) const PLAN_JSON: i32 = 405;
    pub(super) const ENGINE_NOTES: i32 = 1301;
    /// Weights, input and output of a convolution, of the gradient of its input, and of that of its weights.
    pub(super) const CONVOLUTIONS: [[i32; 3]; 3] = [[703, 704, 705], [709, 710, 711], FOR_WEIGHTS];
    pub(super) const FOR_WEIGHTS: [i32; 3] = [715, 716, 717];
    pub(super) const GRAPH_OPERATIONS: i32 = 801;
    pub(super) const GRAPH_ENGINES: i32 = 802;
    pub(super) const TENSOR_TYPE: i32 = 901;
    pub(super) const TENSOR_DIMENSIONS: i32 = 902;
    pub(super) const TENSOR_STRIDES: i32 = 903;
}

/// `CUDNN_HEUR_MODE_FALLBACK`
const FALLBACK: u64 = 2;

/// `CUDNN_TYPE_INT64`
const INT64: i32 = 3;

/// `CUDNN_TYPE_BACKEND_DESCRIPTOR`: the attribute's value is a descriptor.
const DESCRIPTOR: i32 = 15;

thread_local! {
    /// Bytes of the tensors of the operations of this thread's latest graph, which its next plan is for.
    static GRAPH: Cell<u64> = const { Cell::new(0) };
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|it| it.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Returns the bytes of a tensor; 0 of any other descriptor.
fn tensor(it: &Descriptor) -> u64 {
    let Some(dimensions) = it.get(&attribute::TENSOR_DIMENSIONS) else { return 0 };
    let kind = it.get(&attribute::TENSOR_TYPE).and_then(|it| it.bytes.first()).map_or(0, |it| u64::from(*it));
    words(&dimensions.bytes).fold(element(kind), u64::saturating_mul)
}

/// The first value of an attribute: a number, or another descriptor.
fn value(it: &Descriptor, name: i32) -> Option<u64> {
    words(&it.get(&name)?.bytes).next()
}

/// The tensor that an operation names.
fn named(all: &HashMap<usize, Descriptor>, operation: &Descriptor, name: i32) -> Option<Tensor> {
    let it = all.get(&usize::try_from(value(operation, name)?).ok()?)?;
    let list = |name| it.get(&name).map(|it| words(&it.bytes).collect()).unwrap_or_default();
    Some(Tensor {
        kind: it.get(&attribute::TENSOR_TYPE).and_then(|it| it.bytes.first()).map_or(0, |it| u64::from(*it)),
        dimensions: list(attribute::TENSOR_DIMENSIONS),
        strides: list(attribute::TENSOR_STRIDES),
    })
}

/// The convolution that an operation is.
fn convolution(all: &HashMap<usize, Descriptor>, operation: &Descriptor) -> Option<Convolution> {
    attribute::CONVOLUTIONS.into_iter().find_map(|names| {
        let [weights, input, output] = names.map(|it| named(all, operation, it));
        let is_for_weights = names == attribute::FOR_WEIGHTS;
        Some(Convolution { weights: weights?, input: input?, output: output?, is_for_weights })
    })
}

/// Returns the bytes of the workspace for operations, while their tensors exist.
fn workspace(operations: &[u8]) -> u64 {
    let Ok(model) = process().card(current(), |it| Model::of(it.name())) else { return 0 };
    let all = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |handle: u64| convolution(&all, all.get(&usize::try_from(handle).ok()?)?);
    words(operations).filter_map(of).map(|it| it.workspace(model)).fold(0, u64::saturating_add)
}

/// Keeps the bytes of a workspace with a descriptor: a graph's, then its configuration's.
fn keep(descriptor: usize, workspace: u64) {
    let bytes = workspace.to_le_bytes().to_vec();
    with(descriptor, |it| it.insert(attribute::CONFIGURATION_WORKSPACE, Attribute { kind: INT64, count: 1, bytes }));
}

fn kept(descriptor: usize) -> u64 {
    with(descriptor, |it| value(it, attribute::CONFIGURATION_WORKSPACE)).flatten().unwrap_or(0)
}

/// The descriptor that an attribute of another names.
fn other(descriptor: usize, name: i32) -> usize {
    with(descriptor, |it| value(it, name)).flatten().and_then(|it| usize::try_from(it).ok()).unwrap_or(0)
}

/// Gives a configuration the workspace of the graph that was asked about; a fallback's has none.
fn configure(heuristics: usize, configuration: usize) {
    let mode = with(heuristics, |it| it.get(&attribute::HEURISTICS_MODE)?.bytes.first().copied()).flatten();
    if mode.map(u64::from) != Some(FALLBACK) {
        keep(configuration, kept(other(heuristics, attribute::HEURISTICS_GRAPH)));
    }
}

/// Returns the bytes of all tensors of operations.
fn tensors(operations: &[u8]) -> u64 {
    let all = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |handle: u64| all.get(&usize::try_from(handle).unwrap_or(0));
    let values = words(operations).filter_map(of).flat_map(|it| it.values()).filter(|it| it.kind == DESCRIPTOR);
    values.flat_map(|it| words(&it.bytes)).filter_map(of).map(tensor).fold(0, u64::saturating_add)
}

const PLAN: &[u8] = b"{\"simulated\":1}\0";

fn read(descriptor: usize, name: i32, kind: i32, capacity: i64, count: Out<i64>, out: usize) -> i32 {
    use attribute::{
        CONFIGURATION_ENGINE, CONFIGURATION_SHARED_MEMORY, CONFIGURATION_WORKSPACE, ENGINE_NOTES, GRAPH_ENGINES,
        HEURISTICS_RESULTS, PLAN_CONFIGURATION, PLAN_JSON, PLAN_WORKSPACE,
    };
    let wide = |value: i64| {
        count.put(1);
        Out::<i64>::from_address(out).put(value);
        0
    };
    match name {
        // The caller made the descriptors that these would fill; as they are they will do.
        HEURISTICS_RESULTS | CONFIGURATION_ENGINE => {
            count.put(1);
            if let Some(it) =
                In::<usize>::from_address(out).get().filter(|_| name == HEURISTICS_RESULTS && capacity > 0)
            {
                configure(descriptor, it);
            }
            return 0;
        }
        CONFIGURATION_WORKSPACE => return wide(i64::try_from(kept(descriptor)).unwrap_or(0)),
        PLAN_WORKSPACE => {
            watch::report(Seen::Convolution, || GRAPH.get().to_string());
            let workspace = kept(other(descriptor, PLAN_CONFIGURATION));
            return wide(i64::try_from(workspace).unwrap_or(0));
        }
        GRAPH_ENGINES => return wide(1),
        CONFIGURATION_SHARED_MEMORY => {
            count.put(1);
            Out::<i32>::from_address(out).put(0);
            return 0;
        }
        PLAN_JSON => {
            count.put(i64::try_from(PLAN.len()).unwrap_or(0));
            let len = PLAN.len().min(usize::try_from(capacity).unwrap_or(0));
            if out != 0 {
                sys::copy(out, PLAN.as_ptr() as usize, len);
            }
            return 0;
        }
        _ => {}
    }
    let known = with(descriptor, |it| {
        let set = it.get(&name)?;
        count.put(set.count);
        if out != 0 {
            sys::copy(out, set.bytes.as_ptr() as usize, set.bytes.len().min(length(capacity, kind)));
        }
        Some(())
    });
    match known {
        None => BAD_PARAM,
        Some(None) if name == ENGINE_NOTES => wide(0),
        Some(None) => {
            count.put(0);
            0
        }
        Some(Some(())) => 0,
    }
}

entry_points! {
    fn cudnnCreate(out: Out<usize>) -> i32 {
        let handle = process().queues.handle();
        streams().insert(handle, 0);
        out.put(handle);
        0
    }

    fn cudnnDestroy(handle: usize) -> i32 {
        streams().remove(&handle).map_or(BAD_PARAM, |_| 0)
    }

    fn cudnnSetStream(handle: usize, stream: usize) -> i32 {
        streams().get_mut(&handle).map_or(BAD_PARAM, |it| {
            *it = stream;
            0
        })
    }

    fn cudnnGetStream(handle: usize, out: Out<usize>) -> i32 {
        streams().get(&handle).map_or(BAD_PARAM, |it| {
            out.put(*it);
            0
        })
    }

    fn cudnnGetVersion() -> usize {
        Wheel::here().cudnn
    }

    fn cudnnGetCudartVersion() -> usize {
        usize::try_from(Wheel::here().runtime).unwrap_or(0)
    }

    fn cudnnGetProperty(kind: i32, out: Out<i32>) -> i32 {
        let version = i32::try_from(Wheel::here().cudnn).unwrap_or(0);
        out.put(match kind {
            0 => version / 10_000,
            1 => version / 100 % 100,
            _ => version % 100,
        });
        0
    }

    fn cudnnGetLastErrorString(out: Out<c_char>, capacity: usize) -> () {
        out.put_text("", capacity);
    }

    fn cudnnBackendCreateDescriptor(_kind: i32, out: Out<usize>) -> i32 {
        let handle = process().queues.handle();
        DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, HashMap::new());
        out.put(handle);
        0
    }

    fn cudnnBackendDestroyDescriptor(descriptor: usize) -> i32 {
        DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner).remove(&descriptor);
        0
    }

    fn cudnnBackendSetAttribute(descriptor: usize, name: i32, kind: i32, count: i64, from: In<u8>) -> i32 {
        let mut bytes = vec![0; length(count, kind)];
        sys::copy(bytes.as_mut_ptr() as usize, from.address(), bytes.len());
        if name == attribute::GRAPH_OPERATIONS {
            GRAPH.set(tensors(&bytes));
            keep(descriptor, workspace(&bytes));
        }
        with(descriptor, |it| it.insert(name, Attribute { kind, count, bytes })).map_or(BAD_PARAM, |_| 0)
    }

    fn cudnnBackendGetAttribute(
        descriptor: usize, name: i32, kind: i32, capacity: i64, count: Out<i64>, out: usize,
    ) -> i32 {
        read(descriptor, name, kind, capacity, count, out)
    }

    fn cudnnBackendFinalize(descriptor: usize) -> i32 {
        with(descriptor, |_| ()).map_or(BAD_PARAM, |()| 0)
    }

    fn cudnnBackendExecute(handle: usize, _plan: usize, _pack: usize) -> i32 {
        let stream = streams().get(&handle).copied();
        stream.map_or(BAD_PARAM, |it| capture::submit(it, Work::Kernel).map_or(EXECUTION_FAILED, |()| 0))
    }
}

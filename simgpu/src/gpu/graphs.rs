//! Graph capture, as far as PyTorch's allocator looks at it: no stream is ever capturing, and beginning a capture is
//! refused with the documented error, because a replay could not be simulated.

use super::{
    abi::{Fault, Out},
    process::{current, process},
    runtime::answer,
};

entry_points! {
    fn cudaStreamIsCapturing(stream: usize, out: Out<i32>) -> i32 {
        answer(process().queues.stream(stream, current()).map(|it| out.put(i32::from(it.capture.is_some()))))
    }

    fn cudaStreamGetCaptureInfo(
        stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, dependencies: Out<usize>, edges: Out<usize>,
        count: Out<usize>,
    ) -> i32 {
        answer(process().queues.stream(stream, current()).map(|it| {
            status.put(i32::from(it.capture.is_some()));
            id.put(it.capture.unwrap_or(0) as u64);
            graph.put(it.capture.unwrap_or(0));
            dependencies.put(0);
            edges.put(0);
            count.put(0);
        }))
    }

    // CUDA 12's, of graphs whose edges carry no data.
    fn cudaStreamGetCaptureInfo_v2(
        stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, dependencies: Out<usize>, count: Out<usize>,
    ) -> i32 {
        cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, Out::from_address(0), count)
    }

    fn cudaStreamBeginCapture(_stream: usize, _mode: i32) -> i32 {
        answer(Err(Fault::NotSupported))
    }

    fn cudaDeviceGetGraphMemAttribute(_device: i32, _attribute: i32, out: Out<u64>) -> i32 {
        out.put(0);
        0
    }
}

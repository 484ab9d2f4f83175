//! The table of causes: ids, titles, advice, and the texts of `gpuwatch explain`.
//!
//! The signatures were measured on PyTorch's own allocator.

use crate::model::analysis::cause::{Cause, Entry, host_texts};

pub(super) static ENTRIES: [Entry; 45] = [
    Entry {
        cause: Cause::ScalarsRetained,
        id: "scalars-retained",
        title: "single-number tensors are kept",
        advice: "append loss.item() (or loss.detach().cpu()) to the list, not the tensor itself",
        text: "\
Each step leaves one or a few live blocks of 512 bytes, the allocator's smallest: a loss, a norm or a
counter that is kept as a tensor.

It takes hundreds of millions of steps to fill a device that way, so this does not ring. It matters when
the tensor still has its graph: then host memory grows as well, with the graph's nodes.

Remedy: losses.append(loss.item()). If .item() in every step is too slow because it waits for the device,
keep loss.detach() in one preallocated tensor and read it now and then.

What is not the cause: `total_loss += loss` after backward() grows no device memory; backward() has
released what the graph held, and only a few small nodes in host memory stay.",
    },
    Entry {
        cause: Cause::TensorsRetained,
        id: "tensors-retained",
        title: "tensors are kept alive",
        advice: "find the list, dict or attribute that keeps them: clear it, move it .cpu(), reset the metric, remove the hook",
        text: "\
Live blocks and live bytes rise together: each step (or each few steps) leaves a tensor behind, and
something still refers to it.

Where to look: lists of outputs or predictions, also detached ones (detach() lets go of the graph, not of
the tensor); metric objects whose reset() is never called; forward hooks that append activations, or that
are registered again in every step and never removed; caches keyed by something that never repeats;
evaluation outputs kept on the device until the epoch's end.

Remedy: keep what you need as numbers or with .cpu(), clear the container, call metric.reset(), call
handle.remove(). Bytes a block (in the evidence) tell the tensor's size, and so which one it is.

What is not the cause: a missing zero_grad(). Dense gradients are accumulated in place, so that a missing
zero_grad() makes wrong updates and no growth. empty_cache() cures nothing here: what is referred to
cannot be given back.

Several tensors kept in one step and the graph of a single one have the same counters. If one of them has a
grad_fn, its graph may keep the others (see graph-retained). gpuwatch names a graph once the probe has found
one among the blocks.

Where the backend counts no blocks (cudaMallocAsync), one tensor that grows looks the same.",
    },
    Entry {
        cause: Cause::GraphRetained,
        id: "graph-retained",
        title: "autograd graphs are kept",
        advice: "detach() or .item() whatever outlives the step; run evaluation under torch.no_grad(); drop retain_graph=True",
        text: "\
A tensor that needs gradients is kept, and with it every activation that its graph saved for backward(). The
probe looked at the blocks that stay: autograd holds them, not Python.

Where to look: total += loss in a loop without backward() and without torch.no_grad() (evaluation, metrics);
outputs kept with their graph; hidden states carried from step to step without detach(); retain_graph=True
together with a loss that is kept; create_graph=True without zero_grad(), where the gradients themselves
carry a graph.

Remedy: .detach() or .item() before anything is kept; torch.no_grad() around evaluation; no retain_graph
unless a second backward() follows.

What is not the cause: a tensor that is kept after backward(). Its grad_fn stays, but backward() has released
what the graph held on the device: that is tensors-retained, and detach() does not shrink it.
retain_graph=True alone, with a new loss in each step, only lifts the peak.
`total_loss += loss` after backward() grows no device memory.",
    },
    Entry {
        cause: Cause::GrowingTensor,
        id: "growing-tensor",
        title: "one tensor grows",
        advice: "do not grow a tensor with torch.cat: allocate it once at its full size, or collect parts on the CPU",
        text: "\
Live bytes rise while the number of live blocks stays: each step replaces a tensor by a larger one.

Where to look: all = torch.cat([all, new]); key-value caches and replay buffers without a limit; sparse
gradients that are never zeroed (uncoalesced entries pile up; dense ones do not).

Remedy: allocate once at the size it will have and write into a slice; bound the buffer; with sparse
gradients call zero_grad() or coalesce(). Each torch.cat also holds the old and the new copy at once, so
that the peak is twice the tensor, and fragments the cache.",
    },
    Entry {
        cause: Cause::Fragmentation,
        id: "fragmentation",
        title: "the allocator's cache is fragmented",
        advice: "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or bucket and pad shapes so that sizes repeat",
        text: "\
Reserved memory rises or stays far above what is live: free pieces lie between live blocks, too small for
the next request, so that the allocator takes new segments from the driver.

Where to look: sequence lengths or image sizes that change from batch to batch, above all growing ones; a
few long-lived tensors made between short-lived ones; max_split_size_mb together with expandable segments.

Remedy: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad to a few sizes; run the largest batch first.
torch.cuda.empty_cache() returns whole free segments only (the part called releasable); what is stuck in
split segments stays, and calling it in each step costs more than it gives (see churn).

What other settings would bring: start the job with `gpuwatch run --trace`. The alert then shows the best
ones with the memory that the run would have reserved.

Under expandable segments the stuck part cannot be measured: its counter reads 0 by design.",
    },
    Entry {
        cause: Cause::CrossStreamPending,
        id: "cross-stream-pending",
        title: "freed blocks wait for another stream",
        advice: "avoid record_stream (FSDP: limit_all_gathers=True; NCCL: TORCH_NCCL_AVOID_RECORD_STREAMS=1), or synchronise streams",
        text: "\
The program has freed blocks that another stream still uses: active stays above allocated, the memory can
not be reused, and under pressure the allocator waits for the device.

Where to look: tensor.record_stream(); FSDP without limit_all_gathers; collectives of older releases;
prefetchers that run far ahead of the computation.

Remedy: TORCH_NCCL_AVOID_RECORD_STREAMS=1 (the default in newer releases), limit_all_gathers=True, a bound
on how far ahead a side stream may run, or wait_stream() before the tensor is let go.",
    },
    Entry {
        cause: Cause::StreamCaches,
        id: "stream-caches",
        title: "each new stream has a cache of its own",
        advice: "create the streams once and use them again: the allocator keeps a cache for each stream",
        text: "\
Reserved memory rises by segments of the same size, which stay free and whole, while live memory, its peak and
the requests stay as they are. A free segment of the right size would serve the next request, unless it
belongs to another stream: PyTorch's allocator gives a block only to the stream that first used its segment.

Where to look: torch.cuda.Stream() inside of the loop, or in a function that is called for each batch, each
synchronisation of weights, each checkpoint. PyTorch hands out 32 streams in turn, so the growth ends by
itself after 32 of them; until then each holds what it once needed.

It is not fragmentation, and it does not fill the device: before a request fails, the allocator gives free
segments back. But other processes cannot use the memory meanwhile, and giving it back stalls the device.

Remedy: create the streams once and keep them, or allocate on the current stream and use record_stream().",
    },
    Entry {
        cause: Cause::GraphPools,
        id: "graph-pools",
        title: "private pools of CUDA graphs grow",
        advice: "fix the shapes that are captured, share one pool between graphs, or mark dynamic dimensions (mark_dynamic)",
        text: "\
Private pools hold what CUDA graphs use. They are not shared with ordinary allocations and are not given
back by empty_cache() while their graph lives. A graph for every new shape means a pool's growth for every
new shape.

Where to look: torch.compile(mode=\"reduce-overhead\") with shapes that change; torch.cuda.graph() in a loop;
a MemPool of your own.

Remedy: pad to a few shapes, capture with pool=torch.cuda.graph_pool_handle() shared between graphs,
torch._dynamo.mark_dynamic, or compile without CUDA graphs where shapes vary.",
    },
    Entry {
        cause: Cause::DriverGrowth,
        id: "driver-growth",
        title: "device memory outside the framework's allocator grows",
        advice: "look at NCCL groups, other libraries' pools and own cudaMalloc calls: destroy_process_group(), free, or bound them",
        text: "\
The driver charges this process with more than its allocator reserved, and the difference rises.

Where to look: a new process group or communicator in every epoch (each holds hundreds of MB); other
libraries with pools of their own (CuPy, RAPIDS, ONNX Runtime, TensorRT, JAX); extensions that call
cudaMalloc; modules and kernels loaded one after another; compiled models that are made again and again.

Remedy: reuse process groups, or destroy_process_group() them; bound the other library's pool; free what
the extension takes. empty_cache() does nothing here: this memory is not in PyTorch's cache.",
    },
    Entry {
        cause: Cause::OtherProcess,
        id: "other-process",
        title: "another process takes the device's memory",
        advice: "find the other process (gpuwatch, nvidia-smi): end leftovers of earlier runs, or move one of the jobs",
        text: "\
The device loses free memory, and this process's own figures do not explain it.

After an out-of-memory error: the request would have fitted without the others, and no growth of the job's
own explains the error. The error's account says how much the others hold, and lists their processes.

Where to look: another user's job; a worker of an earlier run that never ended; a notebook kernel; one's
own helper processes (data loaders that touch CUDA, evaluation servers). Without the driver's list of
processes, memory that this process takes outside its allocator looks the same: then see driver-growth.

Remedy: end what is left over; CUDA_VISIBLE_DEVICES for each job; set_per_process_memory_fraction() where
two jobs must share.",
    },
    Entry {
        cause: Cause::PinnedGrowth,
        id: "pinned-growth",
        title: "page-locked host memory grows",
        advice: "reuse pinned buffers, lower prefetch_factor x num_workers, and drop references to pinned batches",
        text: "\
The host allocator holds more and more page-locked memory, which no swapping can relieve.

Where to look: pinned tensors kept in a list; pin_memory() for batches whose size always changes (sizes are
rounded up to a power of two and cached for each power); prefetching without a bound; CPU offloading.

Remedy: allocate pinned buffers once and copy into them; bound prefetching; let go of batches after their
copy to the device is done.",
    },
    Entry {
        cause: Cause::HostGrowth,
        id: "host-growth",
        title: "host memory grows",
        advice: "look for CPU copies, Python objects and tensors with a grad_fn that are kept; in datasets keep arrays, not lists of objects",
        text: "\
The process's resident memory rises while device memory does not: it will end at the kernel's OOM killer or
at the container's limit, without a CUDA error.

Where to look: results moved .cpu() and kept; losses kept with their graph's nodes; logs and histories in
lists; datasets as lists of Python objects, which each worker copies page by page as reference counts are
touched; decoded images in a cache without a bound.

Remedy: write results out as you go; keep numpy or Arrow arrays; fewer workers; bound the caches.",
    },
    Entry {
        cause: Cause::ReferenceCycle,
        id: "reference-cycle",
        title: "rises end in sudden releases",
        advice: "if nothing in your loop empties a container then, break the cycle: ctx.save_for_backward, weakref; gc.collect() proves it",
        text: "\
Live memory rises and falls back again and again. Two things look so: a container that the loop itself
empties (an epoch's predictions, a metric that is reset), which is fine as long as the top fits; and
reference cycles, whose tensors stay until Python's collector runs, which it does by its own count of
objects and not when the device is full.

The test: call gc.collect() once, at a step where memory is high. If live memory falls, it was cycles.

Where cycles come from: ctx.y = output in an autograd.Function (use ctx.save_for_backward); hooks that close
over their own module; an exception's traceback that is kept; objects that know their parent.

Remedy: break the cycle, weakref.ref for the way back, or gc.collect() every few hundred steps.",
    },
    Entry {
        cause: Cause::CacheFilling,
        id: "cache-filling",
        title: "a rise that ended by itself",
        advice: "nothing to do if the level it reached fits: a bounded buffer, a cache or a warm-up is full",
        text: "\
Memory rose for a while, then stayed. Caches keyed by shape, replay buffers and deques of fixed length,
optimizer state made at first use, and workspaces behave so.

It is shown so that the level is explained, and does not ring. If the level is too high, bound the cache
lower.",
    },
    Entry {
        cause: Cause::LargerInputs,
        id: "larger-inputs",
        title: "each step needs more memory than the one before",
        advice: "nothing to do if sequences or batches get larger by plan and the largest fits: run the largest one first to see",
        text: "\
The peak of each step rises several times as fast as what stays after it, and the number of live blocks does
not change: batches, sequences or images get larger, and with them an output that is alive between steps.

Where to look: a curriculum of lengths or resolutions; batches sorted by length; a buffer or memory bank that
each step computes with, and that has no limit (then it is a leak: bound it).

Remedy: run the largest batch first, to see whether it fits. Pad or bucket lengths so that sizes repeat.

It does not start a capture: no tensor is kept longer than before.",
    },
    Entry {
        cause: Cause::LargerModel,
        id: "larger-model",
        title: "the model grows",
        advice: "nothing to do if the model grows by plan and its last size fits; otherwise add parameters to it and its optimizer once, before training",
        text: "\
Weights, gradients or optimizer state grow, and not what else is kept: it is no leak of tensors. The last
lines of the finding say which of them.

Where to look: layers that are unfrozen in turn (gradients and optimizer state grow, weights do not);
optimizer.add_param_group, adapters or experts that are added in the loop; an embedding that gets more rows;
an optimizer that is made again while the former one, or its state, is kept (optimizer state alone grows).

Remedy: if the last size is known, begin a short run with it, or let `gpuwatch fit` find the card for it. If
parameters replace others, delete the former ones from the optimizer: optimizer.state keeps what it had for
them.

An average of the weights (EMA, SWA) is made once: it is retained memory, and no growth.",
    },
    Entry {
        cause: Cause::Pressure,
        id: "pressure",
        title: "the device is nearly full",
        advice: "lower the batch or sequence length, checkpoint activations, shard or offload optimizer state: this is not a leak",
        text: "\
What is in use fills nearly the whole device and does not grow: the next larger batch, an evaluation or a
neighbour can end the run. This is not a leak.

Remedy, in the order of their cost: set expandable_segments:True; a smaller batch with gradient
accumulation; activation checkpointing; lower precision; a smaller or sharded optimizer state (8-bit,
FSDP, ZeRO); offloading. `gpuwatch fit --advise -- CMD` measures what each of them saves in this job.
Missing zero_grad(set_to_none=True) keeps one copy of the gradients resident, once.",
    },
    Entry {
        cause: Cause::Thrashing,
        id: "thrashing",
        title: "the allocator flushes its cache to serve a request",
        advice: "leave more room: a smaller batch or expandable_segments:True; each retry flushes the cache and stalls the device",
        text: "\
A request did not fit, so the allocator gave its whole cache back to the driver and asked again (counter
num_alloc_retries). The run continues, slower, and is one larger request away from an out-of-memory error.

Remedy: what helps against pressure and fragmentation; above all expandable_segments:True where sizes vary,
and a smaller batch where they do not.",
    },
    Entry {
        cause: Cause::Churn,
        id: "churn",
        title: "segments are taken and given back in every step",
        advice: "remove torch.cuda.empty_cache() from the loop: it frees nothing that is live, and each call stalls the device",
        text: "\
In nearly every step segments are freed to the driver and taken from it again (counters num_device_free and
num_device_alloc). Each of these calls waits for the device.

Where to look: torch.cuda.empty_cache() in the training loop, called against a leak that it cannot cure; a
garbage_collection_threshold that is set too low; several processes that share one device at its limit.

Remedy: call empty_cache() at most where a phase ends (after evaluation, before another process needs the
device).",
    },
    Entry {
        cause: Cause::RankImbalance,
        id: "rank-imbalance",
        title: "one rank holds much more than the others",
        advice: "look for work done on that rank alone (gathering, logging, evaluation), or shard unevenly sized layers again",
        text: "\
Ranks of one run that do the same work hold the same memory, more or less. The fullest rank decides what
batch fits for all.

Where to look: gather() or all_gather_object() to rank 0; checkpoints loaded on every rank with
map_location=\"cuda\" (they all land on device 0); evaluation or logging on one rank; pipeline stages and
expert shards of different size; unsorted batches of different length.

Remedy: map_location=\"cpu\" or local_rank; gather on the CPU; balance stages by their measured memory.",
    },
    Entry {
        cause: Cause::ExtraContext,
        id: "extra-context",
        title: "a context on a device that is not trained on",
        advice: "call torch.cuda.set_device(local_rank) before anything else touches CUDA, or set CUDA_VISIBLE_DEVICES per rank",
        text: "\
A process holds memory on a device besides its own: a CUDA context of 200 to 900 MB, usually on device 0,
once for every rank.

Where to look: torch.load() without map_location; tensor.cuda() or torch.cuda.empty_cache() before
set_device(); a library that picks device 0; barrier() without device_ids.

Remedy: torch.cuda.set_device(local_rank) first; map_location=f\"cuda:{local_rank}\"; or one visible device
for each rank.",
    },
    OOM,
    FAILED_ATTEMPT,
    OUTPUTS_GATHERED,
    SIZE_SEARCH,
    super::THERMAL_THROTTLING,
    super::POWER_THROTTLING,
    super::POWER_BRAKE,
    super::DEGRADED_LINK,
    super::ROWS_PENDING,
    SLOWDOWN,
    STALLED_BUSY,
    STALLED_IDLE,
    SLOW_RANK,
    super::ENDED_PROCESS,
    super::ORPHANED_RANK,
    super::IDLE_NOTEBOOK,
    super::IDLE_PROCESS,
    host_texts::HOST_FULL,
    host_texts::HOST_SLOWED,
    host_texts::SHM_FULL,
    host_texts::ADDRESS_SPACE_FULL,
    host_texts::WORKERS_COPY,
    host_texts::OOM_KILLED,
    Entry {
        cause: Cause::Unknown,
        id: "unknown",
        title: "the figures do not show why",
        advice: "take a memory snapshot (torch.cuda.memory._record_memory_history) where it grows, and compare two steps",
        text: "\
Something grows, and the counters that would show why are missing or contradict each other: a backend that
does not report them, samples that were lost, or several causes at once.

Remedy: torch.cuda.memory._record_memory_history(), then two torch.cuda.memory._dump_snapshot() some steps
apart; what is in the later one alone is what grew, with the lines that made it. A longer recording often
helps as well.",
    },
];

const OOM: Entry = Entry {
    cause: Cause::Oom,
    id: "oom",
    title: "out of memory: the request is too large for the device",
    advice: "the request does not fit beside what is live: smaller batch or sequence, activation checkpointing, or sharding",
    text: "\
An allocation failed for good, and what is live is what fills the device: neither growth, nor a failed
attempt, nor fragmentation, nor another process explains it.

Remedy: a smaller batch or sequence, activation checkpointing, or sharding. `gpuwatch fit` finds the largest
batch that fits, and `gpuwatch fit --advise` measures what each technique would save in the job; where
one of them would help, the account of the error ends with its command.

After an out-of-memory error that is caught, let go of the exception (its traceback keeps every tensor of
the failed step) before trying again: see failed-attempt.",
};

const FAILED_ATTEMPT: Entry = Entry {
    cause: Cause::FailedAttempt,
    id: "failed-attempt",
    title: "an error's traceback keeps the attempt that failed before",
    advice: "leave the `except` block before you retry, and keep `str(error)`, not the error: its traceback keeps every tensor",
    text: "\
An allocation failed, the job caught the error and tried something smaller. The smaller attempt failed too,
because the memory of the first one was still live: a traceback refers to the frames of the calls that have
failed, and those to their variables. The error of an `except` block lives until the block ends, whether it
has a name or not. An error that is kept in a list or an attribute lives as long as that.

Remedy: set a flag in the `except` block and retry after it. Keep str(error), or call
traceback.clear_frames(error.__traceback__).

What is not the cause: the allocator's cache. empty_cache() cannot give back what a traceback refers to.",
};

const OUTPUTS_GATHERED: Entry = Entry {
    cause: Cause::OutputsGathered,
    id: "outputs-gathered",
    title: "memory is gathered between two optimizer steps",
    advice: "copy each batch's outputs to the host (`.cpu()`) or reduce them to numbers; evaluate in smaller parts",
    text: "\
Training was flat. Since the last optimizer step, and without another one, live memory rose until the device
was full: an evaluation or a prediction that keeps the outputs of all batches on the device until it ends. A
torch.cat for each batch holds the old and the new tensor at once, so twice the outputs are live.

Remedy: copy the outputs of a batch to the host before the next one, or reduce them to what the metric needs
(argmax of the logits, sums). Libraries have a switch for it, which gpuwatch names if it knows the library.

What is not the cause: the batch of the evaluation, unless the error comes in its first batch. Where outputs
keep the graphs of their batches, gpuwatch says graph-retained: evaluate under torch.no_grad(), because
.cpu() keeps the graph.",
};

const SIZE_SEARCH: Entry = Entry {
    cause: Cause::SizeSearch,
    id: "size-search",
    title: "the job tried sizes until one fitted",
    advice: "nothing to do: the job expects these errors; start with the size that fitted to save the attempts",
    text: "\
The first attempts of a job ran out of memory, it handled the errors, and then it trained without another
one: a search for the largest batch that fits.

gpuwatch recognises it by its course alone. All errors come before training has settled, steps follow, and
no error comes later. Until steps follow, an error at the start of a running job is shown and raises no
alert; it becomes critical if the process ends, or if nothing happens for a minute.",
};

const SLOWDOWN: Entry = Entry {
    cause: Cause::Slowdown,
    id: "slowdown",
    title: "steps take longer than before",
    advice: "compare clocks, utilisation and host load at that step on the timeline: heat, a busy node or slow input",
    text: "\
For a minute and 48 steps at least, steps have taken 1.2 times as long as before or longer, clearly beyond
their usual spread. The alert has the step at which it began. From 1.5 times on it is a warning.

Time is host time from the end of one step to the end of the next. gpuwatch does not synchronise the device,
so a single duration says little; the alert rests on means over at least 8 steps and 10 seconds.

What is not reported: warm-up and compilation, single long steps (checkpoints, evaluation), and larger inputs,
which show in the peak of allocated memory: a curriculum, or batches sorted by length.

Where to look, at that step on the timeline:
- the device's clocks and throttle reasons: heat or the power limit (thermal-throttling, power-throttling)
- its utilisation: if it fell, the job waits for input, for other ranks, or for the host
- other processes on the device or the node
- retries and churn of the allocator, which synchronise the device

Remedy: more workers or faster storage for input that arrives late; the node's cooling; no other job beside
this one. List `slowdown` as expected in config.toml if the job does more work per step on purpose.",
};

const STALLED_BUSY: Entry = Entry {
    cause: Cause::StalledBusy,
    id: "stalled-busy",
    title: "steps have stopped while the device is fully busy",
    advice: "see where each rank is: py-spy dump --pid PID; likely a collective that one rank never joins (NCCL hang)",
    text: "\
The process lives, but it completes no step, its allocator's counters do not change, and the device reports
98 % utilisation or more all the time. A kernel spins: most often a collective (NCCL) that waits for a rank
which never joins it.

gpuwatch waits for 5 minutes without any sign of life if it sees the counters between steps, otherwise for 10;
and for at least three times the longest pause that the job has shown, and for ten of its usual steps. Signs
of life are steps, marks, counters that change, host memory that moves, and a utilisation that varies. Ranks
of a run share them, because ranks that wait for the one that evaluates spin as well. The alert ends with the
next step.

Where to look: the alert names the rank that is behind or whose device is idle. The others wait for it.
py-spy dump --pid PID prints the Python stack of a rank, and shows which collective it is in.

Usual reasons: ranks that run different numbers of batches, or branches that call different collectives; a
rank that died or raised an error; a rank that is stuck in its DataLoader; a broken network link.

Remedy: TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_NCCL_TRACE_BUFFER_SIZE=2000 record which collective each rank
is in when PyTorch's own timeout (10 minutes) ends the job.",
};

const STALLED_IDLE: Entry = Entry {
    cause: Cause::StalledIdle,
    id: "stalled-idle",
    title: "steps have stopped while the device is idle",
    advice: "see where the process waits: py-spy dump --pid PID; likely its input, a lock, storage, or a debugger",
    text: "\
The process lives, but it completes no step, its allocator's counters and its host memory do not change, and
the device has been idle all the time. The process waits for something outside: its input, a lock, storage.

gpuwatch waits for 10 minutes without any sign of life, and for at least three times the longest pause that
the job has shown, so that checkpoints and evaluations that come again raise nothing. A host process that
works is a sign of life. The alert ends with the next step.

What is not reported: notebooks and interactive interpreters, which wait for their user; jobs that call
step() themselves, which may be servers that wait for requests; processes that a signal or a debugger has
suspended (screens mark them); processes whose main thread has been in one sleep (time.sleep, from Python 3.11
on) since their last sign of life, because they chose to pause; jobs that have freed more than half of what
they held after every step, because they have finished.

Where to look: py-spy dump --pid PID prints the Python stack. A main thread in the DataLoader waits for its
workers: look at them, at /dev/shm and at the storage. pdb and breakpoint() wait for a terminal.

Remedy: a timeout for the DataLoader (timeout=) turns a silent stop into an error.",
};

const SLOW_RANK: Entry = Entry {
    cause: Cause::SlowRank,
    id: "slow-rank",
    title: "one rank is slower than the others",
    advice: "compare this rank's host load, input, clocks and PCIe link with the others'; py-spy top --pid PID",
    text: "\
For a minute and 48 steps at least, a rank has taken 1.2 times as long for a step as the median of the ranks
on this host; or it has reached each step after them while its device was busy for 15 percent points less of
the time than theirs. From 1.5 times as long on, or a third of the time, it is a warning.

Time is host time at step boundaries. In a synchronous run the steps of all ranks take equally long, whoever
is slow. The other ranks' hosts run ahead, and the slow one arrives last. That shows a slow host: late input,
a busy core, more work in Python. Its device is idle meanwhile, and the kernels of the others wait for it,
which their devices report as busy. A rank that alone waits for its device in every step (loss.item() for a
progress bar) arrives last too, but its device is as busy as the others', and gpuwatch reports nothing.

What host time cannot show: a slow device behind a host that runs ahead as the others do, and a slow rank in
a job that waits for the device in every step. Look at clocks, throttle reasons and the PCIe link of each
device (thermal-throttling, power-throttling, degraded-link).

Where to look: the memory of the rank, which is beside its time in the alert: more memory than the others'
means more work (uneven sharding, longer inputs). Otherwise the host: other processes on its cores, its NUMA
node, its DataLoader workers.",
};

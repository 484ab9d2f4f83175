//! The kinds of alerts and the resources that may grow, each with its possible causes.

use crate::model::analysis::cause::Cause;

/// A kind of alert, or a resource that may grow.
pub(super) struct Topic {
    /// Its names: the displayed one, and the one in JSON if it differs.
    pub(super) names: &'static [&'static str],
    pub(super) title: &'static str,
    pub(super) text: &'static str,
    /// Its causes, most frequent first.
    pub(super) causes: &'static [Cause],
}

/// Kinds that differ from the name of their only cause, what only a comparison of ranks shows, then resources.
pub(super) const TOPICS: [Topic; 17] = [
    Topic {
        names: &["growth"],
        title: "memory grows from step to step",
        text: "\
gpuwatch follows six resources of every process on every device: allocated, reserved, non-torch, others,
pinned and host. It raises growth once a run of new highs is longer, steadier and goes further than the
ups and downs of the same series explain; 20 steps are the least. It resolves the alert when the rise
levels off or is given back.

Severity: info is slow; a warning fills the device within the run; critical fills it within minutes.",
        causes: &[
            Cause::TensorsRetained,
            Cause::ScalarsRetained,
            Cause::GraphRetained,
            Cause::GrowingTensor,
            Cause::LargerInputs,
            Cause::LargerModel,
            Cause::Fragmentation,
            Cause::CrossStreamPending,
            Cause::StreamCaches,
            Cause::GraphPools,
            Cause::DriverGrowth,
            Cause::OtherProcess,
            Cause::PinnedGrowth,
            Cause::HostGrowth,
            Cause::CacheFilling,
            Cause::Unknown,
        ],
    },
    Topic {
        names: &["sawtooth"],
        title: "memory rises and is released, again and again",
        text: "\
The same rise ends in the same release at least twice. The peak of such a tooth is what the device needs;
nothing is lost for good.",
        causes: &[Cause::ReferenceCycle],
    },
    Topic {
        names: &["retries"],
        title: "the allocator flushes its cache to serve a request",
        text: "\
A request did not fit beside what the allocator had cached. It gave cached segments back to the driver and
asked again, which synchronises the device: steps become slower, and an out-of-memory error is near.",
        causes: &[Cause::Thrashing, Cause::Churn],
    },
    Topic {
        names: &["imbalance"],
        title: "one rank holds much more than the others",
        text: "\
The most that a rank has allocated within a step is compared with the median of the other ranks of its run:
the rank that wants the most decides which batch fits. It is raised for a rank that wants 30 % more than the
median, if that is 5 % of its device or more, and ends below 15 %.",
        causes: &[Cause::RankImbalance],
    },
    Topic {
        names: &["hardware"],
        title: "the device is slowed down or needs service",
        text: "\
The driver reports that heat, power or the PCIe link slows the device down for at least a minute, or that its
memory has rows to be replaced. The first process that trains on the device reports it.",
        causes: &[
            Cause::ThermalThrottling,
            Cause::PowerThrottling,
            Cause::PowerBrake,
            Cause::DegradedLink,
            Cause::RowsPending,
        ],
    },
    Topic {
        names: &["stall"],
        title: "steps have stopped, and nothing in the process moves",
        text: "\
The process lives, and its device is idle or fully busy all the time. gpuwatch waits longer than any pause
that the job has shown. The ranks of a run report it once.",
        causes: &[Cause::StalledBusy, Cause::StalledIdle],
    },
    Topic {
        names: &["idle-memory"],
        title: "a process that does nothing holds device memory",
        text: "\
It may have no probe: what the driver lists of it, and /proc, show that it does nothing. What its end or its
launcher left behind is a warning; a notebook or a script that is idle is information.",
        causes: &[Cause::EndedProcess, Cause::OrphanedRank, Cause::IdleNotebook, Cause::IdleProcess],
    },
    Topic {
        names: &["worker-growth"],
        title: "the workers of a process take more and more host memory",
        text: "\
The kernel's figures of the workers (the children of the process) show what grows: memory that they shared
and now have copies of. The page cache, which they fill by reading files, is no growth.",
        causes: &[Cause::WorkersCopy],
    },
    Topic {
        names: &["rank-ended"],
        title: "ranks of a job ended while others run",
        text: "\
The others wait for such a rank in their next collective: they hold their memory and their devices until a
timeout ends them. It has to last for ten seconds, because when a job ends, one rank is the first.

What to do: read the end of the rank's own log, and `gpuwatch report` of its recording; end the others if
the launcher does not.",
        causes: &[],
    },
    Topic {
        names: &["rank-missing"],
        title: "ranks of a job are on no machine of the list",
        text: "\
The ranks of a job report how many there are in all. It is an alert only if a machine of the list does not
answer, because other machines may have the missing ranks.

What to do: look at the machine's link on the screen of all machines; name every machine of the job in
--hosts, or use --slurm.",
        causes: &[],
    },
    Topic {
        names: &["rank-behind"],
        title: "ranks of a job are steps behind the others",
        text: "\
The ranks of a synchronous job take their steps together. One that is further behind their median than the
time between two readings explains has stopped, or its readings do not arrive. It has to last for ten
seconds.

What to do: open its machine, and look at its own findings (stall, slow-rank), its link and its clock.",
        causes: &[],
    },
    Topic {
        names: &["allocated"],
        title: "live allocations of the framework's allocator",
        text: "\
What tensors, graphs and the framework's own buffers take. It grows when the job keeps what it no longer
needs, or needs more in each step. `w` on the process screen, or `gpuwatch sites PID`, looks for the line.",
        causes: &[
            Cause::TensorsRetained,
            Cause::ScalarsRetained,
            Cause::GraphRetained,
            Cause::GrowingTensor,
            Cause::LargerInputs,
            Cause::LargerModel,
            Cause::CacheFilling,
            Cause::ReferenceCycle,
            Cause::Unknown,
        ],
    },
    Topic {
        names: &["reserved"],
        title: "what the framework's allocator holds from the driver",
        text: "\
Live allocations and the allocator's cache. While allocated memory grows, reserved memory follows and raises
no alert of its own. Alone, it grows because free memory lies in pieces that no request fits.",
        causes: &[
            Cause::Fragmentation,
            Cause::CrossStreamPending,
            Cause::StreamCaches,
            Cause::GraphPools,
            Cause::LargerInputs,
            Cause::CacheFilling,
            Cause::Unknown,
        ],
    },
    Topic {
        names: &["non-torch", "driver"],
        title: "device memory of the process outside its allocator",
        text: "\
The driver's figure for the process, less what its allocator holds: CUDA contexts, NCCL's buffers, workspaces
of cuBLAS and cuDNN, kernels that are loaded, other libraries in the process.",
        causes: &[Cause::DriverGrowth, Cause::CacheFilling],
    },
    Topic {
        names: &["others", "device"],
        title: "device memory that no probed process took",
        text: "\
What is used on the device, less what every probed process holds there: other users, leftovers of jobs that
ended, contexts of the job's own processes on a device that is not theirs.",
        causes: &[Cause::OtherProcess, Cause::ExtraContext],
    },
    Topic {
        names: &["pinned"],
        title: "page-locked host memory of the framework",
        text: "\
Host memory that the device reads directly, as of a DataLoader with pin_memory=True. It is not swapped, and
the framework's host allocator gives it back late or never.",
        causes: &[Cause::PinnedGrowth, Cause::CacheFilling],
    },
    Topic {
        names: &["host"],
        title: "resident memory of the process on the host",
        text: "\
What the kernel counts as resident: Python's objects, NumPy arrays, DataLoader's prefetched batches, and the
nodes of autograd graphs that a job keeps. Less than 4 MiB in all, or a page a step, is the interpreter's own
and raises no alert. When the host runs out, the kernel kills the job without a message of CUDA's.",
        causes: &[Cause::HostGrowth, Cause::GraphRetained, Cause::CacheFilling],
    },
];

//! Why memory grows, fills up or is wasted: a closed list, each cause with its remedy.

/// The texts of causes that lie in the host's memory.
mod host_texts;
/// The texts of each cause.
mod texts;

/// A named cause. Its id never changes once released, because configurations, CI and recordings use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Zero-dimensional tensors that the program keeps: losses, counters, norms.
    ScalarsRetained,
    /// Tensors that the program keeps: outputs, activations, batches, metric states.
    TensorsRetained,
    /// Autograd graphs that the program keeps, several blocks at a time.
    GraphRetained,
    /// One tensor that is reallocated, larger each time.
    GrowingTensor,
    /// The allocator's cache grows while live memory does not.
    Fragmentation,
    /// Freed blocks that wait for another stream.
    CrossStreamPending,
    /// Cached segments of streams that the job made again; another stream cannot use them.
    StreamCaches,
    /// Private pools of CUDA graphs.
    GraphPools,
    /// Device memory of this process outside the framework's allocator.
    DriverGrowth,
    /// Device memory that this process did not take.
    OtherProcess,
    /// Page-locked host memory.
    PinnedGrowth,
    /// Resident host memory.
    HostGrowth,
    /// Rises that end in a sudden release: reference cycles that wait for the collector, or a container that
    /// the loop empties.
    ReferenceCycle,
    /// A rise that ended by itself: a full cache or buffer, or a finished warm-up.
    CacheFilling,
    /// Steps that need more and more memory, as under a curriculum, with an output that is alive between them.
    LargerInputs,
    /// A model that gets more parameters, or trains more of them.
    LargerModel,
    /// High and flat: the batch or the model fills the device.
    Pressure,
    /// The allocator flushes its cache to satisfy requests.
    Thrashing,
    /// The allocator takes segments from the driver and gives them back in every step.
    Churn,
    /// One rank uses much more than the others.
    RankImbalance,
    /// A process with a context on a device that it does not train on.
    ExtraContext,
    /// A request larger than the device can serve.
    Oom,
    /// The traceback of a handled error keeps what the failed attempt allocated.
    FailedAttempt,
    /// Memory that is gathered between two optimizer steps, as by an evaluation that keeps its outputs.
    OutputsGathered,
    /// Errors of a search for the largest size that fits.
    SizeSearch,
    /// The device is so hot that it lowers its clocks.
    ThermalThrottling,
    /// The power limit holds the clocks far below the highest.
    PowerThrottling,
    /// The hardware brakes the device, because its power supply falls short.
    PowerBrake,
    /// A PCIe link with fewer lanes or a lower generation than it can have.
    DegradedLink,
    /// Rows of memory that are to be replaced, or could not be.
    RowsPending,
    /// Steps take longer than before, and inputs are not larger.
    Slowdown,
    /// Steps have stopped while the device is busy all the time.
    StalledBusy,
    /// Steps have stopped while the device is idle.
    StalledIdle,
    /// One rank is slower than the others.
    SlowRank,
    /// A process that has ended, and whose memory the driver still lists.
    EndedProcess,
    /// A rank whose launcher has ended, and which does nothing.
    OrphanedRank,
    /// A notebook or an interactive interpreter that does nothing.
    IdleNotebook,
    /// A script that does nothing.
    IdleProcess,
    /// Host memory rises towards a limit at which the kernel kills.
    HostFull,
    /// Host memory rises towards a limit from which on the kernel slows a control group down.
    HostSlowed,
    /// The file system at `/dev/shm` has hardly any room.
    ShmFull,
    /// A process's addresses rise towards their limit.
    AddressSpaceFull,
    /// Workers copy the pages of Python objects that they share with their parent.
    WorkersCopy,
    /// The kernel killed a process because host memory ran out.
    OomKilled,
    /// The figures do not show the cause.
    Unknown,
}

/// The texts of a cause.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The cause.
    pub cause: Cause,
    /// Its id: lower case, words joined by hyphens.
    pub id: &'static str,
    /// Its title, a few words.
    pub title: &'static str,
    /// The remedy, in one line.
    pub advice: &'static str,
    /// How to recognise it, what it is not, and what to do, in paragraphs.
    pub text: &'static str,
}

impl Cause {
    /// Returns its texts.
    pub fn entry(self) -> &'static Entry {
        let [first, ..] = &texts::ENTRIES;
        // The table is in the order of the enum, so there always is an entry; a test checks that.
        texts::ENTRIES.get(self as usize).unwrap_or(first)
    }

    /// Returns its id: lower case, words joined by hyphens.
    pub fn id(self) -> &'static str {
        self.entry().id
    }

    /// Returns the remedy, in one line.
    pub fn advice(self) -> &'static str {
        self.entry().advice
    }

    /// Returns the cause with this id.
    pub fn from_id(id: &str) -> Option<Self> {
        entries().iter().find(|it| it.id == id).map(|it| it.cause)
    }
}

/// Returns every cause, in the order of the enum.
pub fn entries() -> &'static [Entry] {
    &texts::ENTRIES
}

pub(super) const THERMAL_THROTTLING: Entry = Entry {
    cause: Cause::ThermalThrottling,
    id: "thermal-throttling",
    title: "heat slows the device down",
    advice: "look at the node's cooling and airflow, and at its other devices; until then, lower the power limit",
    text: "\
The driver reports for at least a minute that the device lowers its clocks because it is too hot: the
device's own temperature or its memory's is above the limit. Steps take longer until it has cooled.

Where to look: the temperatures on the device screen, beside those of the other devices; fans, airflow and
dust; neighbours that blow their warm air at it.

Remedy: cooling. nvidia-smi -pl lowers the power limit, which costs less speed than heat does.",
};

pub(super) const POWER_THROTTLING: Entry = Entry {
    cause: Cause::PowerThrottling,
    id: "power-throttling",
    title: "the power limit slows the device down",
    advice: "compare the power limit with the device's default (nvidia-smi -q -d POWER); raise it if the node allows it",
    text: "\
For at least a minute, the clocks of the multiprocessors have been a quarter or more below the highest, and
the driver reports the power limit as the reason. A few percent below the highest are usual under heavy load
and are not reported.

It is information, no warning: administrators lower the limit on purpose.

Remedy: nvidia-smi -pl raises the limit up to the device's maximum.",
};

pub(super) const POWER_BRAKE: Entry = Entry {
    cause: Cause::PowerBrake,
    id: "power-brake",
    title: "the hardware brakes the device",
    advice: "have the node's power supply and the device's power cables looked at; see dmesg and the node's event log",
    text: "\
The driver reports for at least a minute that the hardware has halved the clocks or more, and not because of
heat: the node's power supply has asserted the power brake, or the device draws more than its supply gives.

Remedy: move the job to another node, and have the power supply and cables looked at.",
};

pub(super) const DEGRADED_LINK: Entry = Entry {
    cause: Cause::DegradedLink,
    id: "degraded-link",
    title: "the PCIe link is slower than it can be",
    advice: "reseat the device or its riser, and look at the BIOS's settings of the slot; see lspci -vv (LnkSta)",
    text: "\
For at least a minute, the link has had fewer lanes than the device and its slot have in common, or a lower
generation while the device works. Copies between host and device take longer: batches that are loaded,
checkpoints, offloaded parameters, and collectives that go through the host.

An idle device lowers the generation to save power. That is normal and not reported.

Remedy: reseat the device or its riser card; another slot; the BIOS's settings for the slot. Errors of the
link show as PCIe replays on the device screen.",
};

pub(super) const ROWS_PENDING: Entry = Entry {
    cause: Cause::RowsPending,
    id: "rows-pending",
    title: "memory rows are to be replaced",
    advice: "reset the device when its jobs have ended (nvidia-smi -r), and replace it if rows keep failing",
    text: "\
An ECC error could not be corrected, and the device wants to replace the row of memory with a spare one, which
it does at the next reset. Until then, the same row may end another job. A row that could not be replaced has
no spare one left: the device must be replaced.

Remedy: drain the node, reset the device or reboot. Have a device replaced whose rows fail again and again.",
};

pub(super) const ENDED_PROCESS: Entry = Entry {
    cause: Cause::EndedProcess,
    id: "ended-process",
    title: "a process has ended and the driver still lists its memory",
    advice: "look for what still has the device open: fuser -v /dev/nvidia*; end that, or let its parent reap the process",
    text: "\
For a minute, the driver has listed memory of a process that is a zombie, or that /proc does not have any
more. The driver frees a process's memory when the last descriptor of the device is closed. So a child, a
worker or a debugger of the process may still have it open, or the driver hangs while it frees the memory.

Where to look: fuser -v /dev/nvidia* lists every process that has a device open. A worker of a DataLoader
which outlived its job is usual. A zombie disappears when its parent reaps it, or ends.

Remedy: end what holds the device open. If nothing does, dmesg shows the driver's errors (Xid); the memory is
free again after a reset of the device (nvidia-smi --gpu-reset, while no process uses it) or a reboot.

Inside a container gpuwatch reports nothing of the kind: the driver may number processes as the host does.",
};

pub(super) const ORPHANED_RANK: Entry = Entry {
    cause: Cause::OrphanedRank,
    id: "orphaned-rank",
    title: "a rank without its launcher does nothing and holds memory",
    advice: "end it with kill PID, and with kill -9 PID if it does not react: the launcher that would end it is gone",
    text: "\
torchrun or mpirun started the process as one of several ranks (its environment shows that) and has ended
before it: its parent is init now. It has done nothing for 5 minutes.

How it comes about: the launcher is killed (kill -9, the out-of-memory killer, a closed terminal) and cannot
end its ranks. Each of them waits for the others, and keeps its memory until it ends.

Remedy: end all ranks of the run (pkill -f with the script's name), then look at why the launcher died. Start
long runs in tmux, screen or a batch system, which ends the whole job with the launcher.

A rank without a launcher that still computes is not reported.",
};

pub(super) const IDLE_NOTEBOOK: Entry = Entry {
    cause: Cause::IdleNotebook,
    id: "idle-notebook",
    title: "a notebook holds device memory and does nothing",
    advice: "shut the kernel down, or run: del the tensors; import gc, torch; gc.collect(); torch.cuda.empty_cache()",
    text: "\
A notebook's kernel or an interactive interpreter holds 1 GiB or more and has done nothing for an hour: no
kernel of it has run, its memory has not changed, and no cell has used the CPU. It is information, not a
warning: its user may come back.

gpuwatch waits for an hour, and for three times the longest idle time of the process so far. It counts
only seconds in which the driver shows that the process is idle: its device does nothing, or the driver
attributes the device's work to other processes. Where neither is known, gpuwatch reports nothing.

Remedy: shut the kernel down in Jupyter, or restart it; closing the browser's tab ends nothing. To keep the
kernel: delete the tensors, gc.collect(), torch.cuda.empty_cache(). Its context keeps some hundred MB.",
};

pub(super) const IDLE_PROCESS: Entry = Entry {
    cause: Cause::IdleProcess,
    id: "idle-process",
    title: "a script holds device memory and does nothing",
    advice: "ask its user whether it is still needed: its memory is free again when it ends (kill PID)",
    text: "\
A Python program holds 1 GiB or more and has done nothing for four hours: no kernel of it has run, its memory
has not changed, and where its CPU time is known it has used none. It is information, not a warning.

Usual reasons: a script that waits at its end for input or a debugger; a job that hangs (see stall); a model
that was loaded and forgotten.

gpuwatch waits for four hours, and for three times the longest idle time of the process so far. It
counts only seconds in which the driver shows that the process is idle. Not reported: programs whose command
line names a server (vllm, uvicorn, serve.py), because they wait for requests, and programs that are not
Python.

Remedy: end it, or leave it and allow the alert in config.toml.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_own_text() {
        for (place, entry) in entries().iter().enumerate() {
            assert_eq!(entry.cause as usize, place, "{}", entry.id);
            assert_eq!(Cause::from_id(entry.id), Some(entry.cause));
            assert_eq!(entry.cause.entry().id, entry.id);
            assert!(entry.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", entry.id);
            assert!((20..=160).contains(&entry.advice.len()), "{}: advice is one line", entry.id);
            assert!(!entry.advice.contains('\n') && entry.text.len() > entry.advice.len(), "{}", entry.id);
            assert!(entry.text.lines().all(|it| it.chars().count() <= 110), "{}: lines are short", entry.id);
        }
        assert_eq!(entries().len(), Cause::Unknown as usize + 1);
        assert_eq!(Cause::from_id("nothing"), None);
    }
}

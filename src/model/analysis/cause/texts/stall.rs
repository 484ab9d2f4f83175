//! The texts of the causes that show when steps stop, or end later than those of other ranks.

use crate::model::analysis::cause::{Cause, Entry};

pub(super) const STALLED_BUSY: Entry = Entry {
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

pub(super) const STALLED_IDLE: Entry = Entry {
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

pub(super) const SLOW_RANK: Entry = Entry {
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
a busy core, more work in Python. Its device is idle meanwhile, and the kernels of the others wait for it, which
their devices report as busy. A rank that alone waits for its device in every step (loss.item() for a progress
bar) arrives last too, but its device is as busy as the others', and gpuwatch reports nothing.

What host time cannot show: a slow device behind a host that runs ahead as the others do, and a slow rank in
a job that waits for the device in every step. Look at clocks, throttle reasons and the PCIe link of each
device (thermal-throttling, power-throttling, degraded-link).

Where to look: the memory of the rank, which is beside its time in the alert: more memory than the others'
means more work (uneven sharding, longer inputs). Otherwise the host: other processes on its cores, its NUMA
node, its DataLoader workers.",
};

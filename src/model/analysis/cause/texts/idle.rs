//! The texts of the causes why a process that does nothing holds device memory.

use crate::model::analysis::cause::{Cause, Entry};

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
only seconds in which the driver shows that the process is idle: its device does nothing, or the driver attributes
the device's work to other processes. Where neither is known, gpuwatch reports nothing.

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

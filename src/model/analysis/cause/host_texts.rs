//! The texts of the causes that lie in the host's memory.

use crate::model::analysis::cause::{Cause, Entry};

pub(super) const HOST_FULL: Entry = Entry {
    cause: Cause::HostFull,
    id: "host-full",
    title: "host memory runs out",
    advice: "see which rung of the host's memory grows (gpuwatch once); ask for more memory, or use fewer workers",
    text: "\
What cannot be given back (not the page cache, which the kernel drops) rises steadily towards the limit that
comes first: memory.max of a control group on the way from the job to the machine, or the machine's memory
and swap. There the kernel kills a process, without a message of Python's or CUDA's.

It is raised above three quarters of the limit, or above nine tenths while no step was made, because a
checkpoint or a dataset that is loaded rises in the same way until it is there. Not raised: a rise that
slows down and ends below the limit, memory that was asked for before and is now filled (a replay buffer
of np.zeros), the page cache.

Where to look: the rungs of the host's memory. process: see host-growth. workers: see workers-copy. shared:
batches that wait in /dev/shm; a smaller prefetch_factor. pinned cache: buffers of ever new sizes.

Remedy: more memory for the job (sbatch --mem, docker run --memory, the pod's limit), fewer workers, or the
cause of the growth.",
};

pub(super) const HOST_SLOWED: Entry = Entry {
    cause: Cause::HostSlowed,
    id: "host-slowed",
    title: "the control group reaches the limit that slows it down",
    advice: "raise memory.high of the control group, or use less: from there on the kernel slows every process in it",
    text: "\
The group's memory rises towards memory.high. Nothing is killed there: the kernel makes the processes of the
group wait while it drops what it can. Steps become slower and slower, and the job seems to hang.

systemd's MemoryHigh= and Kubernetes' memory QoS set it.

Remedy: raise it, or see host-full for what grows.",
};

pub(super) const SHM_FULL: Entry = Entry {
    cause: Cause::ShmFull,
    id: "shm-full",
    title: "/dev/shm is almost full",
    advice: "start the container with a larger one (docker run --shm-size 8g), or lower num_workers or prefetch_factor",
    text: "\
The workers of a DataLoader send batches to the training process through files in /dev/shm. Where no room is
left there, a write ends the worker by a bus error: \"DataLoader worker (pid 77) is killed by signal: Bus
error. It is possible that dataloader's workers are out of shared memory.\"

Docker gives a container 64 MiB, Kubernetes too. Each worker holds prefetch_factor batches, two by default.

Where to look: ls -l /dev/shm. Files of jobs that were killed stay until the machine restarts.

Remedy: docker run --shm-size 8g or --ipc host; in Kubernetes an emptyDir with medium: Memory at /dev/shm;
fewer workers; torch.multiprocessing.set_sharing_strategy('file_system') does not help, as it uses the same
place.",
};

pub(super) const ADDRESS_SPACE_FULL: Entry = Entry {
    cause: Cause::AddressSpaceFull,
    id: "address-space-full",
    title: "the address space reaches its limit",
    advice: "raise it (ulimit -v unlimited): CUDA reserves far more addresses than it uses memory",
    text: "\
The process has a limit for its address space (RLIMIT_AS, ulimit -v; some batch systems set it), and its
addresses rise towards it. Beyond it an allocation fails with MemoryError or std::bad_alloc.

CUDA reserves addresses for all memory of the machine and of the devices. So the limit says little about the
memory that a job uses.

Remedy: ulimit -v unlimited, and a limit by control groups instead.",
};

pub(super) const WORKERS_COPY: Entry = Entry {
    cause: Cause::WorkersCopy,
    id: "workers-copy",
    title: "workers copy the objects that they share",
    advice: "keep the dataset's samples in NumPy or Arrow arrays instead of lists of Python objects; use fewer workers",
    text: "\
A worker of a DataLoader is forked and shares the memory of the training process until one of the two writes.
Python writes a reference count into an object whenever it looks at it. So a worker that reads a list of
dicts, strings or numbers copies the list's pages, one after the other, until it has a copy of everything.

It is recognised by the kernel's figures: the private memory of the workers rises, their resident memory does
not, and the memory of all processes together does. A worker that reads files or asks for memory itself
looks different.

What is not the cause: the page cache; what a worker keeps for itself; a parent that frees what it shared.

Remedy: NumPy arrays, Arrow tables or torch tensors, which have one reference count for all their samples;
strings as one array of bytes with offsets. Fewer workers: each has a copy. gc.freeze() before the workers
start saves what the garbage collector writes, and not the reference counts.",
};

pub(super) const OOM_KILLED: Entry = Entry {
    cause: Cause::OomKilled,
    id: "oom-killed",
    title: "the kernel killed a process because memory ran out",
    advice: "ask for more host memory (sbatch --mem, docker run --memory), or see host-full for what takes it",
    text: "\
The kernel's counter of such kills has risen: that of the job's control group (oom_kill in memory.events), or
that of the machine while a process of the job ended by SIGKILL. The process gets no signal that it could
handle, so its log just ends; a shell reports exit code 137. Nothing of it is CUDA's: device memory was not
what ran out.

gpuwatch names the limit that was reached: a control group's, or the machine's. If a worker was killed, the
training process usually fails a little later, with an error of the DataLoader.

Where to look: dmesg has the kernel's list of processes and their memory; the recording has the host's memory
before it.

Remedy: see host-full.",
};

//! The texts of the causes of out-of-memory errors.

use crate::model::analysis::cause::{Cause, Entry};

pub(super) const OOM: Entry = Entry {
    cause: Cause::Oom,
    id: "oom",
    title: "out of memory: the request is too large for the device",
    advice: "the request does not fit beside what is live: smaller batch or sequence, activation checkpointing, or sharding",
    text: "\
An allocation failed for good, and what is live is what fills the device: neither growth, nor a failed
attempt, nor fragmentation, nor another process explains it.

Remedy: a smaller batch or sequence, activation checkpointing, or sharding. `gpuwatch fit` finds the largest
batch that fits; the account of the error ends with its command.

After an out-of-memory error that is caught, let go of the exception (its traceback keeps every tensor of
the failed step) before trying again: see failed-attempt.",
};

pub(super) const FAILED_ATTEMPT: Entry = Entry {
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

pub(super) const OUTPUTS_GATHERED: Entry = Entry {
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

What is not the cause: the batch of the evaluation, unless the error comes in its first batch.",
};

pub(super) const SIZE_SEARCH: Entry = Entry {
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

//! `gpuwatch once`: the same facts without a terminal.

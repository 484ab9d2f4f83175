//! `gpuwatch`: the live view's loop.

//! `gpuwatch demo`: a seeded job through the real probe.

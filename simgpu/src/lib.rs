//! A simulated GPU for tests: real PyTorch trains on it, and NVML programs see it.

//! Allocator settings to try, and which Python process can try which.

/// The variable that holds them.
pub const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// Settings to try in addition to the recorded ones, unless the user names settings.
const TRIED: [&str; 8] = [
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:4",
    "roundup_power2_divisions:4",
    "max_split_size_mb:32",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    // The threshold is a share of the memory that the fraction allows.
    "garbage_collection_threshold:0.8,per_process_memory_fraction:1.0",
    "backend:cudaMallocAsync",
];

/// Returns the recorded settings and the default list.
pub(super) fn tried(recorded: &str) -> Vec<String> {
    let others = TRIED.into_iter().filter(|it| *it != recorded).map(str::to_owned);
    [recorded.to_owned()].into_iter().chain(others).collect()
}

/// Returns the allocator in the settings: PyTorch chooses it once per process, when it is loaded.
pub(super) fn backend(settings: &str) -> &str {
    let values = settings.split(',').filter_map(|it| it.split_once(':'));
    values.filter(|it| it.0.trim() == "backend").map(|it| it.1.trim()).next_back().unwrap_or("native")
}

/// Returns whether these settings use the driver's own pool: it is simulated, while PyTorch's allocator is real.
pub(super) fn is_estimated(settings: &str) -> bool {
    backend(settings) != "native"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_settings_come_first_and_once() {
        let all = tried("expandable_segments:True");
        assert_eq!((all.len(), all[0].as_str()), (TRIED.len(), "expandable_segments:True"));
        assert_eq!(tried("")[0], "");
        assert_eq!(backend("max_split_size_mb:64, backend:cudaMallocAsync"), "cudaMallocAsync");
        assert_eq!(backend(""), "native");
    }
}

//! What the drivers of each maker give, for screens and documents.

use super::{drm, nvml};
use crate::facts::{figures::Figure, maker::Maker, metrics::Metric};

/// Returns whether a maker's driver gives a metric of devices.
pub fn gives(maker: Maker, metric: Metric) -> bool {
    match maker {
        Maker::Nvidia => nvml::call(metric).is_some(),
        Maker::Amd | Maker::Intel => drm::gives(maker, metric),
    }
}

/// Returns whether a maker's driver gives the total and the use of a device's memory.
pub fn gives_memory(maker: Maker) -> bool {
    maker == Maker::Nvidia || drm::gives_memory(maker)
}

/// Returns whether a figure of processes can be known of a maker's devices.
pub fn gives_figure(maker: Maker, figure: Figure) -> bool {
    let lacks: &[Figure] = match maker {
        Maker::Nvidia => &[Figure::Gtt, Figure::KfdMemory],
        Maker::Amd => &[Figure::MemoryPercent],
        Maker::Intel => &[Figure::MemoryPercent, Figure::EncoderPercent, Figure::DecoderPercent, Figure::KfdMemory],
    };
    !lacks.contains(&figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_and_figure_comes_from_some_driver() {
        let makers = || Maker::TABLE.iter().map(|it| it.maker);
        for row in Metric::TABLE {
            assert!(makers().any(|it| gives(it, row.metric)), "{}", row.name);
        }
        for row in Figure::TABLE {
            assert!(makers().any(|it| gives_figure(it, row.figure)), "{}", row.name);
        }
        assert!(!gives(Maker::Intel, Metric::GpuPercent) && !gives(Maker::Nvidia, Metric::GttUsed));
    }
}

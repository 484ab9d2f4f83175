//! Measurements of a real GPU: the context, kernels that are loaded when they are first called, cuDNN's workspaces.
//! `gpuwatch fit --calibrate` writes them, `gpuwatch fit --table` reads them.

use super::{Device, facts::Facts};
use serde::Deserialize;

/// The version of the format.
const SCHEMA: u64 = 1;

/// The kind of file.
const KIND: &str = "gpuwatch-fit-table";

/// NVML counts in steps of this size.
const STEP: u64 = 2 << 20;

/// A table of measurements, of one GPU under one PyTorch.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Table {
    schema: u64,
    kind: String,
    date: String,
    gpu: String,
    capability: String,
    multiprocessors: u64,
    driver: String,
    torch: String,
    /// Bytes of a context, by repetition.
    context: Vec<u64>,
    kernels: Vec<Kernels>,
    convolutions: Vec<Convolution>,
}

/// What the first call of an operation loads.
#[derive(Clone, Debug, Default, Deserialize)]
struct Kernels {
    /// `cudnn`, or `plain` for what every job may have.
    group: String,
    bytes: u64,
}

/// A convolution, or one of its derivatives.
#[derive(Clone, Debug, Default, Deserialize)]
struct Convolution {
    /// Bytes of its tensors.
    tensors: u64,
    /// Bytes of its workspace, by cuDNN's heuristics.
    workspace: u64,
    /// Bytes that its first call takes with `torch.backends.cudnn.benchmark`.
    trial: u64,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// When it is something else, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let it: Self = serde_json::from_str(text).map_err(|e| format!("it is not a table of gpuwatch fit: {e}"))?;
        if it.kind != KIND {
            return Err("it is not a table of gpuwatch fit".to_owned());
        }
        if it.schema != SCHEMA {
            return Err(format!("it has schema {}, and this gpuwatch reads schema {SCHEMA}", it.schema));
        }
        if it.context.is_empty() || it.multiprocessors == 0 {
            return Err("it has no measured context".to_owned());
        }
        Ok(it)
    }

    /// Returns whether it stands for a device under a PyTorch: the architecture must be the same, and the release of
    /// PyTorch with its CUDA, which decide what libraries the job loads.
    pub fn suits(&self, device: &Device, torch: &str) -> bool {
        self.capability == device.capability && release(&self.torch) == release(torch)
    }

    /// What it was measured with, in words.
    pub fn source(&self) -> String {
        let Self { gpu, date, torch, driver, .. } = self;
        format!("measured on {gpu} (compute capability {}), PyTorch {torch}, driver {driver}, {date}", self.capability)
    }

    /// Bytes of the contexts of all processes. A context grows with the multiprocessors: another card of the
    /// architecture lies between what was measured and its share of it.
    pub(super) fn context(&self, facts: &Facts) -> Option<[u64; 3]> {
        let (least, most) = (*self.context.iter().min()?, *self.context.iter().max()?);
        let share = |bytes: u64, multiprocessors: u64| {
            let share = u128::from(bytes) * u128::from(multiprocessors) / u128::from(self.multiprocessors);
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let low = share(least, facts.multiprocessors.0).min(least).saturating_sub(STEP);
        let high = share(most, facts.multiprocessors.1).max(most).saturating_add(STEP);
        Some([low, median(self.context.clone())?, high].map(|it| it.saturating_mul(facts.processes)))
    }

    /// Bytes of kernels, from none to those of every measured operation.
    pub(super) fn kernels(&self, facts: &Facts) -> Option<[u64; 3]> {
        let loaded = self.kernels.iter().filter(|it| facts.uses_cudnn || it.group != "cudnn").map(|it| it.bytes);
        let all = loaded.fold(0, u64::saturating_add).saturating_mul(facts.processes);
        (!self.kernels.is_empty()).then_some([0, all / 2, all])
    }

    /// Bytes of the workspace of cuDNN's largest operation.
    pub(super) fn workspaces(&self, facts: &Facts) -> Option<[u64; 3]> {
        self.beside(facts, facts.uses_cudnn, |it| it.workspace)
    }

    /// Bytes of cuDNN's trials of it.
    pub(super) fn trials(&self, facts: &Facts) -> Option<[u64; 3]> {
        self.beside(facts, facts.uses_cudnn && facts.is_benchmarking, |it| it.trial)
    }

    /// Bytes beside an operation's tensors: from none to the largest measured part of them.
    fn beside(&self, facts: &Facts, is_used: bool, bytes: fn(&Convolution) -> u64) -> Option<[u64; 3]> {
        if !is_used {
            return Some([0; 3]);
        }
        let part = |it: &Convolution| u128::from(facts.convolution) * u128::from(bytes(it)) / u128::from(it.tensors);
        let measured = self.convolutions.iter().filter(|it| it.tensors > 0).map(part);
        let all: Vec<u64> = measured.map(|it| u64::try_from(it).unwrap_or(u64::MAX)).collect();
        let most = *all.iter().max().filter(|_| facts.convolution > 0)?;
        Some([0, median(all)?, most])
    }
}

fn median(mut all: Vec<u64>) -> Option<u64> {
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

/// `2.15` and `cu132` of `2.15.0+cu132`.
fn release(torch: &str) -> (&str, &str) {
    let (version, build) = torch.split_once('+').unwrap_or((torch, ""));
    let minor = version.match_indices('.').nth(1).map_or(version.len(), |it| it.0);
    (version.get(..minor).unwrap_or(version), build)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn table() -> Table {
        let of = |tensors, workspace| Convolution { tensors, workspace, trial: 3 * workspace };
        let loads = |group: &str| Kernels { group: group.to_owned(), bytes: 10 * MIB };
        Table {
            capability: "8.9".to_owned(),
            torch: "2.15.0+cu132".to_owned(),
            multiprocessors: 128,
            context: vec![400 * MIB, 402 * MIB, 404 * MIB],
            kernels: vec![loads("plain"), loads("cudnn")],
            convolutions: vec![of(100, 0), of(100, 10), of(100, 50)],
            ..Table::default()
        }
    }

    #[test]
    fn a_table_stands_for_its_architecture_and_release() {
        let suits = |gpu: &str, torch: &str| table().suits(&Device::parse(gpu).unwrap(), torch);
        assert!(suits("RTX 4090", "2.15.1+cu132") && suits("L4", "2.15.0+cu132"));
        assert!(!suits("A100 80GB", "2.15.0+cu132") && !suits("L4", "2.1.5+cu132") && !suits("L4", "2.15.0+cu126"));
    }

    #[test]
    fn another_card_lies_between_the_measured_context_and_its_share_of_it() {
        let context = |multiprocessors| {
            let facts = Facts { processes: 1, multiprocessors: (multiprocessors, multiprocessors), ..Facts::default() };
            table().context(&facts).map(|it| it.map(|bytes| bytes / MIB))
        };
        assert_eq!(context(128), Some([398, 402, 406]));
        assert_eq!(context(64), Some([198, 402, 406]));
        assert_eq!(context(256), Some([398, 402, 810]));
    }

    #[test]
    fn kernels_and_workspaces_go_up_to_what_was_measured() {
        let facts = Facts { processes: 2, convolution: 1000, uses_cudnn: true, ..Facts::default() };
        assert_eq!(table().kernels(&facts), Some([0, 20 * MIB, 40 * MIB]));
        assert_eq!(table().workspaces(&facts), Some([0, 100, 500]));
        assert_eq!(table().trials(&facts), Some([0; 3]));
        assert_eq!(table().trials(&Facts { is_benchmarking: true, ..facts }), Some([0, 300, 1500]));
        assert_eq!(table().workspaces(&Facts { convolution: 0, ..facts }), None);
        assert_eq!(table().kernels(&Facts { uses_cudnn: false, ..facts }), Some([0, 10 * MIB, 20 * MIB]));
    }
}

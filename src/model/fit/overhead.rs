//! What a job needs beside what its allocator reserves on a simulated GPU: a table of ranges with their sources.

use super::{Device, Facts, Link};
use crate::{facts::units::Bytes, model::statistics::median};
use serde::Deserialize;
use std::fmt::Write as _;

const MIB: u64 = 1 << 20;

/// One thing outside, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// What it is.
    pub name: &'static str,
    /// What it takes at least.
    pub low: u64,
    /// What it takes in most cases.
    pub usual: u64,
    /// What it takes at most.
    pub high: u64,
    /// Whether the job runs without it where there is no room for it.
    pub is_optional: bool,
    /// Where the range is from.
    pub source: String,
    /// Whether it was measured by the user.
    pub is_measured: bool,
}

/// One row: its name, low, usual and high as functions of the facts, the rule in words, the source.
struct OverheadRow {
    name: &'static str,
    bytes: fn(&Facts) -> [u64; 3],
    /// The same of a table that was measured; `None` where it has nothing for it.
    measured: fn(&Table, &Facts) -> Option<[u64; 3]>,
    is_optional: bool,
    rule: &'static str,
    source: &'static str,
}

const TABLE: [OverheadRow; 7] = [
    OverheadRow {
        name: "CUDA context",
        bytes: |it| {
            let (least, most) = it.multiprocessors;
            let sum = |mib: u64| it.processes * mib * MIB;
            // Per multiprocessor, in quarters of a MiB.
            let (usual, high) = if it.capability < 9 { (12, 16) } else { (18, 19) };
            [sum(10 + least * 5 / 2), sum(10 + (least + most) * usual / 8), sum(30 + most * high / 4)]
        },
        measured: Table::context,
        is_optional: false,
        rule: "each process: 10 to 30 MiB, and 2.5 to 4 MiB per multiprocessor; from compute capability 9.0 on, 2.5 to 4.75 MiB",
        source: "RTX 3060: at most 141 MiB, RTX 4060: 107 MiB (failed runs of xMem's measurements); RTX 3090: 256 MiB \
                 (invoke-ai/InvokeAI#9413, driver 610); RTX 4090: 382 MiB (PyTorch's error messages); RTX 6000 Ada: 426 MiB \
                 (unslothai/unsloth-zoo#1053, CUDA 13.0); H100 and H200: 518 MiB for a program in C, 619 MiB with PyTorch 2.11 (driver 580, CUDA 13.0); all with \
                 lazily loaded modules",
    },
    OverheadRow {
        name: "lazily loaded kernels",
        bytes: |it| {
            let mib = if it.capability < 9 { [0, 8, 35] } else { [0, 125, 190] };
            mib.map(|mib| it.processes * mib * MIB)
        },
        measured: Table::kernels,
        is_optional: false,
        rule: "each process: 0 to 35 MiB; from compute capability 9.0 on, 0 to 190 MiB",
        source: "difference between the measured and the simulated peak of 22 transformers on an RTX 3060; ten trainings on an H100 \
                 and an H200 (PyTorch 2.11, CUDA 13.0, driver 580): 123 to 139 MiB for transformers, 141 to 143 MiB for CNNs, and 150 MiB for \
                 some 40 operations; the same is assumed for other cards from 9.0 on",
    },
    OverheadRow {
        name: "cuDNN workspaces",
        bytes: |it| {
            let high = if it.uses_cudnn { it.reserved / 100 * 21 } else { 0 };
            [0, high / 10, high]
        },
        measured: Table::workspaces,
        is_optional: true,
        rule: "where cuDNN is used: 0 to 21 % of the reserved peak",
        source: "difference between the measured and the simulated peak of 28 CNNs (docs/accuracy.md), which is largest for 3 by 3 convolutions; the simulated cuDNN asks for what pointwise ones need, and from compute capability 9.0 on for the copies that others make. Where a workspace does not fit, PyTorch takes an algorithm that needs less (`try_plans` in Conv_v8.cpp)",
    },
    OverheadRow {
        name: "cuDNN's trials (benchmark)",
        bytes: |it| if it.is_benchmarking && it.uses_cudnn { [0, 256 * MIB, 2048 * MIB] } else { [0; 3] },
        measured: Table::trials,
        is_optional: true,
        rule: "with torch.backends.cudnn.benchmark: 0 to 2 GiB",
        source: "estimated: an algorithm's workspace, asked for while others are tried",
    },
    OverheadRow {
        name: "NCCL buffers",
        bytes: |it| {
            let (least, best) = (it.links.0.bytes(), it.links.1.bytes());
            [least[0], best[1], best[2]].map(|bytes| it.communicators * bytes)
        },
        measured: |_, _| None,
        is_optional: false,
        rule: "each communicator: the table below",
        source: "NCCL's documentation (NCCL_BUFFSIZE: 4 MiB; NCCL_RUNTIME_CONNECT) and its source: buffer sizes in init.cc, what \
                 a connection allocates in transport/p2p.cc, nvls.cc; printed by NCCL as 10485760 and 2097152 bytes for each \
                 connection (NVIDIA/nccl#1685)",
    },
    OverheadRow {
        name: "NCCL buffers between machines",
        bytes: |it| [0, 40, 320].map(|mib| it.communicators_across * mib * MIB),
        measured: |_, _| None,
        is_optional: false,
        rule: "each communicator of several machines: 0 to 320 MiB",
        source: "estimated from NCCL's source (transport/net.cc): a connection takes some 20 MiB of a device where the network \
                 reads and writes it directly, none otherwise; a device has connections of 2 channels where a machine has a \
                 network card for each, of 16 at most",
    },
    OverheadRow {
        name: "compiled kernels",
        bytes: |it| if it.is_compiled { [0, 16 * MIB, 256 * MIB] } else { [0; 3] },
        measured: |_, _| None,
        is_optional: false,
        rule: "with torch.compile or Triton: 0 to 256 MiB",
        source: "estimated: code of compiled modules, and buffers of their autotuning",
    },
];

/// Returns what lies outside, as far as the job has it; from a measured table where there is one.
pub fn outside(facts: &Facts, table: Option<&Table>) -> Vec<Overhead> {
    let of = |row: &OverheadRow| {
        let measured = table.and_then(|it| Some(((row.measured)(it, facts)?, it.source())));
        let is_measured = measured.is_some();
        let ([low, usual, high], source) = measured.unwrap_or_else(|| ((row.bytes)(facts), row.source.to_owned()));
        let usual = usual.clamp(low, high);
        Overhead { name: row.name, low, usual, high, is_optional: row.is_optional, source, is_measured }
    };
    TABLE.iter().map(of).filter(|it| it.high > 0).collect()
}

/// Returns the table as Markdown.
pub(super) fn markdown() -> String {
    let mut text = "## Outside the allocator\n\n| what | range | source |\n|---|---|---|\n".to_owned();
    for it in &TABLE {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "| {} | {} | {} |", it.name, it.rule, it.source);
    }
    text += "\n## NCCL's buffers\n\nA connection of a channel takes 10 MiB where it receives (4 MiB of the protocol Simple, 0.5 \
             MiB of LL, 4.7 MiB of LL128, in steps of 2 MiB) and 2 MiB where it sends. A ring has one connection each way; a \
             tree within one machine has two. Least and usual are rings. Most is rings and trees, with the buffers of a \
             switch that reduces. Without peer access (`NCCL_SHM_DISABLE` describes it), the buffers are the host's.\n\n\
             | link | channels | least | usual | most |\n|---|---|---|---|---|\n";
    for it in Link::ALL {
        let [[fewest, _, channels], [least, usual, most]] = [it.channels(), it.bytes()];
        let [least, usual, most] = [least, usual, most].map(Bytes);
        let _ = writeln!(text, "| {} | {fewest} to {channels} | {least} | {usual} | {most} |", it.name());
    }
    text
}

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
        Some([low, median(self.context.iter().copied())?, high].map(|it| it.saturating_mul(facts.processes)))
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

/// `2.15` and `cu132` of `2.15.0+cu132`.
fn release(torch: &str) -> (&str, &str) {
    let (version, build) = torch.split_once('+').unwrap_or((torch, ""));
    let minor = version.match_indices('.').nth(1).map_or(version.len(), |it| it.0);
    (version.get(..minor).unwrap_or(version), build)
}

#[cfg(test)]
mod tests {
    use super::{super::Device, *};

    #[test]
    fn ranges_hold_what_was_measured() {
        let all = [
            ("RTX 3090", 256, 0),
            ("RTX 4090", 382, 0),
            ("RTX 6000 Ada", 426, 0),
            ("H100 80GB", 619, 123),
            ("H200", 619, 143),
        ];
        for (name, context, kernels) in all {
            let facts = Facts { processes: 1, ..Facts::default() }.on(&Device::parse(name).unwrap());
            for (row, measured) in outside(&facts, None).iter().zip([context, kernels]) {
                assert!(row.low <= measured * MIB && measured * MIB <= row.high, "{name}: {row:?}");
            }
        }
    }

    #[test]
    fn only_what_the_job_has_is_listed() {
        let facts = Facts { processes: 2, multiprocessors: (28, 28), reserved: 1 << 30, ..Facts::default() };
        let names = |facts| outside(&facts, None).iter().map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(names(facts), ["CUDA context", "lazily loaded kernels"]);
        let all = Facts {
            uses_cudnn: true,
            is_benchmarking: true,
            is_compiled: true,
            communicators: 1,
            communicators_across: 1,
            ..facts
        };
        assert_eq!(names(all).len(), TABLE.len());
        assert!(
            outside(&all, None).iter().all(|it| it.low <= it.usual && it.usual <= it.high && !it.source.is_empty())
        );
    }

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

//! Techniques that save GPU memory: what each is called, what it costs besides time, and which exclude one another.
//!
//! The job's side of each is in `probes/python/gpuwatch_probe/_advise.py`, by the same name.

use crate::facts::units::{Bytes, counted};
use std::fmt::Write as _;

/// What a technique changes besides memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::EnumString)]
pub enum Price {
    /// The same result, up to the order of additions.
    #[strum(serialize = "same result")]
    SameResult,
    /// Other rounding or statistics of the same training.
    #[strum(serialize = "other numerics")]
    OtherNumerics,
    /// Another training: its result has to be judged anew.
    #[strum(serialize = "other training")]
    OtherTraining,
}

impl Price {
    /// Every class, the smallest price first.
    pub const ALL: [Self; 3] = [Self::SameResult, Self::OtherNumerics, Self::OtherTraining];

    /// Its name in JSON and in texts.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Returns what a technique costs in a step, in words: blocks whose forward runs twice, bytes that go to the host and
/// back, and kernels beyond those of the job as it is.
pub fn costs(recomputed_blocks: u64, host_bytes: u64, kernel_launches: Option<i64>) -> Vec<String> {
    let blocks = (recomputed_blocks > 0).then(|| format!("{} forward twice", counted(recomputed_blocks, "block")));
    let bytes = (host_bytes > 0).then(|| format!("{} to the host and back", Bytes(host_bytes)));
    let launches = kernel_launches.filter(|count| *count != 0).map(|count| {
        let more = if count > 0 { "more" } else { "fewer" };
        format!("{} {more} a step", counted(count.unsigned_abs(), "kernel"))
    });
    [blocks, bytes, launches].into_iter().flatten().collect()
}

/// Techniques of one kind exclude one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The optimizer.
    Optimizer,
    /// Which blocks are checkpointed.
    Blocks,
    /// The precision.
    Precision,
    /// How long gradients are kept.
    Gradients,
    /// What the ranks of a job share.
    Sharding,
    /// How the loss is computed.
    Loss,
    /// Anything else, which goes with every other one.
    Other,
}

/// Which jobs a technique is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jobs {
    /// Every one.
    All,
    /// Those of one rank.
    OfOneRank,
    /// Those of several ranks.
    OfSeveralRanks,
}

/// One technique.
#[derive(Clone, Copy, Debug)]
pub struct Technique {
    /// Its name in JSON and in texts.
    pub name: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// What it changes.
    pub price: Price,
    /// What it excludes.
    pub kind: Kind,
    /// Which jobs it is for.
    pub jobs: Jobs,
    /// Variables of the environment that switch it on.
    pub environment: &'static [(&'static str, &'static str)],
    /// Why it cannot be tried, for one that is suggested without a measurement, and the line to write.
    pub unmeasured: Option<(&'static str, &'static str)>,
}

/// Two devices or more cannot be simulated for a command that starts one process.
const SHARDED: (&str, &str) =
    ("suggested, not measured: start the job with torchrun and --gpu Nx…", "torch.distributed.fsdp.fully_shard(model)");

/// A technique that a run measures.
const fn measured(name: &'static str, summary: &'static str, price: Price, kind: Kind) -> Technique {
    Technique { name, summary, price, kind, jobs: Jobs::All, environment: &[], unmeasured: None }
}

/// The same for jobs of several ranks.
const fn of_ranks(name: &'static str, summary: &'static str, kind: Kind) -> Technique {
    Technique { jobs: Jobs::OfSeveralRanks, ..measured(name, summary, Price::SameResult, kind) }
}

/// What would share a job of one rank over so many devices.
const fn sharded(name: &'static str, summary: &'static str) -> Technique {
    let it = measured(name, summary, Price::SameResult, Kind::Sharding);
    Technique { jobs: Jobs::OfOneRank, unmeasured: Some(SHARDED), ..it }
}

/// Every technique, the safest first.
pub const TECHNIQUES: [Technique; 31] = [
    Technique {
        environment: &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")],
        ..measured("expandable-segments", "segments that grow", Price::SameResult, Kind::Other)
    },
    Technique {
        environment: &[("CUBLAS_WORKSPACE_CONFIG", ":16:8")],
        ..measured("cublas-workspace", "small workspaces of cuBLAS", Price::SameResult, Kind::Other)
    },
    measured("cudnn-benchmark", "no trials of cuDNN's algorithms", Price::SameResult, Kind::Other),
    measured("foreach", "optimizer: one kernel for each parameter", Price::SameResult, Kind::Optimizer),
    measured("fused", "optimizer: one fused kernel", Price::SameResult, Kind::Optimizer),
    measured("set-to-none", "gradients freed between steps", Price::SameResult, Kind::Other),
    measured("optimizer-in-backward", "each gradient used and freed as it arrives", Price::SameResult, Kind::Gradients),
    measured("channels-last", "convolutions with channels as the last dimension", Price::SameResult, Kind::Other),
    measured("sdpa", "attention by fused kernels", Price::SameResult, Kind::Other),
    measured("checkpoint", "every repeated block checkpointed", Price::SameResult, Kind::Blocks),
    measured("checkpoint:2", "every second block checkpointed", Price::SameResult, Kind::Blocks),
    measured("chunked-loss", "cross-entropy in 8 pieces", Price::SameResult, Kind::Loss),
    measured("save-on-cpu", "activations in host memory", Price::SameResult, Kind::Other),
    measured("optimizer-on-host", "optimizer state in host memory", Price::SameResult, Kind::Optimizer),
    measured("no-grad", "an evaluation without gradients", Price::SameResult, Kind::Other),
    measured(
        "eval-accumulation",
        "outputs of an evaluation moved to the host after each batch",
        Price::SameResult,
        Kind::Other,
    ),
    of_ranks("zero:1", "states shared by the ranks", Kind::Sharding),
    of_ranks("zero:2", "gradients and states shared by the ranks", Kind::Sharding),
    of_ranks("zero:3", "weights, gradients and states shared by the ranks", Kind::Sharding),
    of_ranks("reshard", "FSDP: gathered weights freed after each block", Kind::Sharding),
    of_ranks("offload", "a rank's share in host memory", Kind::Optimizer),
    measured("accumulate", "half the batch, two backward passes a step", Price::OtherNumerics, Kind::Gradients),
    measured("bf16", "forward and loss under autocast", Price::OtherNumerics, Kind::Precision),
    measured("liger", "Liger's kernels, and a loss without all logits at once", Price::OtherNumerics, Kind::Loss),
    measured("weights-bf16", "weights and states in bfloat16", Price::OtherTraining, Kind::Precision),
    measured("adam8bit", "Adam with 8-bit states", Price::OtherNumerics, Kind::Optimizer),
    measured("adafactor", "Adafactor instead of Adam", Price::OtherTraining, Kind::Optimizer),
    measured("sgd", "SGD instead of Adam", Price::OtherTraining, Kind::Optimizer),
    sharded("shard:2", "sharded over 2 devices"),
    sharded("shard:4", "sharded over 4 devices"),
    sharded("shard:8", "sharded over 8 devices"),
];

impl Technique {
    /// Whether it is for jobs of so many ranks.
    pub fn is_for(&self, ranks: u64) -> bool {
        match self.jobs {
            Jobs::All => true,
            Jobs::OfOneRank => ranks <= 1,
            Jobs::OfSeveralRanks => ranks > 1,
        }
    }

    /// Whether both can be used at once.
    pub fn goes_with(&self, other: &Self) -> bool {
        self.name != other.name && (self.kind != other.kind || matches!(self.kind, Kind::Other))
    }
}

/// Returns the reference of the techniques, as Markdown.
pub fn markdown() -> String {
    let mut out = "# Techniques that save memory\n\n`gpuwatch fit --advise` tries these, the safest first.\n\n\
                   | name | what it does | price |\n|---|---|---|\n"
        .to_owned();
    for it in &TECHNIQUES {
        let measured = it.unmeasured.map_or("", |_| " (suggested, not measured)");
        let jobs = if it.jobs == Jobs::OfSeveralRanks { "jobs of several ranks: " } else { "" };
        // Writing into a String cannot fail.
        let _ = writeln!(out, "| `{}` | {jobs}{}{measured} | {} |", it.name, it.summary, it.price.name());
    }
    out
}

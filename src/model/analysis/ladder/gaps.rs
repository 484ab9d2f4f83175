//! The table of gaps: each row has everything that code, screens, themes, reports and documents need about one gap.
//!
//! A row with a missing field does not compile. [`super::parts`] computes the bytes of each gap.

/// Generates an enum and the list of all its variants, so that none can be missing there.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $it:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$of])* $it,)* }

        impl $name {
            /// Every variant, from the inside out.
            pub const ALL: [Self; [$(stringify!($it)),*].len()] = [$(Self::$it),*];
        }
    };
}

/// Generates the enum of gaps and the row of each.
macro_rules! gaps {
    ($($(#[$doc:meta])* $gap:ident { $($field:ident: $value:expr,)* })*) => {
        listed! {
            /// One part of a device's memory between two rungs, from the inside out.
            Gap { $($(#[$doc])* $gap,)* }
        }

        impl Gap {
            /// Returns its row in the table.
            pub const fn row(self) -> &'static GapRow {
                match self {
                    $(Self::$gap => const { &GapRow { gap: Self::$gap, $($field: $value,)* } },)*
                }
            }
        }
    };
}

listed! {
    /// What the timeline keeps of a ladder: the upper bounds of gaps, from the inside out.
    Level {
        /// The parameters of models in training.
        Weights,
        /// Adds their gradients.
        Gradients,
        /// Adds what optimizers keep for them.
        Optimizer,
        /// Bytes that the job requested; or adds all else that was allocated at the end of a step.
        Wanted,
        /// Adds the rounding up of requests.
        Allocated,
        /// Adds freed memory that a stream still uses.
        Active,
        /// Adds the free parts of split segments.
        Split,
        /// Adds entirely free segments: all memory that the allocator reserved.
        Reserved,
        /// Adds what the driver attributes to the process beyond the allocator.
        Process,
        /// Adds all others: everything used on the device.
        Used,
    }
}

/// The owner of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The allocator, in use or not known to be unused.
    InUse,
    /// The allocator, reserved and unused.
    Unused,
    /// The process, outside the allocator.
    Process,
    /// Outside the process.
    Device,
}

/// The description of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapRow {
    /// The gap.
    pub gap: Gap,
    /// Displayed name: at most 12 letters.
    pub name: &'static str,
    /// Name in JSON, which never changes.
    pub id: &'static str,
    /// Its role in theme files.
    pub role: &'static str,
    /// What the memory is.
    pub cause: &'static str,
    /// How to reduce it; empty if nothing does or should.
    pub remedy: &'static str,
    /// The owner of the memory.
    pub place: Place,
    /// The timeline's level for its upper bound. Without one, the gap is merged there with the next gap outwards, under
    /// that gap's [`GapRow::whole`], or never changes.
    pub level: Option<Level>,
    /// The gap that includes its bytes if they are not counted separately.
    pub whole: Option<Gap>,
    /// The gap whose colour it has in themes that do not name it; `None` is the text colour.
    pub like: Option<Gap>,
    /// Its sign with colours.
    pub sign: char,
    /// Its sign without colours: signs alone must distinguish gaps.
    pub colourless: char,
    /// Its sign in ASCII.
    pub ascii: char,
    /// Its colours in reports, on light and on dark paper.
    pub report: (&'static str, &'static str),
}

gaps! {
    /// Parameters of optimizers, and of the modules that have one of them.
    Weights {
        name: "weights",
        id: "weights",
        role: "weights",
        cause: "parameters of the optimizers, and of their models",
        remedy: "",
        place: Place::InUse,
        level: Some(Level::Weights),
        whole: Some(Gap::Allocated),
        like: Some(Gap::Wanted),
        sign: '█',
        colourless: '▉',
        ascii: 'W',
        report: ("#1d4f7a", "#2f73ad"),
    }
    /// Gradients of the weights.
    Gradients {
        name: "gradients",
        id: "gradients",
        role: "gradients",
        cause: "gradients at the end of a step",
        remedy: "zero_grad(set_to_none=True) after the step frees them until the next backward",
        place: Place::InUse,
        level: Some(Level::Gradients),
        whole: Some(Gap::Allocated),
        like: Some(Gap::Cached),
        sign: '▛',
        colourless: '▛',
        ascii: 'G',
        report: ("#3c8577", "#4fa594"),
    }
    /// What optimizers keep between steps.
    Optimizer {
        name: "optimizer",
        id: "optimizer",
        role: "optimizer",
        cause: "what the optimizers keep between steps",
        remedy: "an optimizer with 8-bit states, or one that is sharded over the ranks",
        place: Place::InUse,
        level: Some(Level::Optimizer),
        whole: Some(Gap::Allocated),
        like: Some(Gap::NonTorch),
        sign: '▜',
        colourless: '▜',
        ascii: 'O',
        report: ("#8659a5", "#a47cc4"),
    }
    /// All else that was allocated at the end of a step.
    Retained {
        name: "retained",
        id: "retained",
        role: "retained",
        cause: "the rest at the end of a step: buffers, inputs, caches, copies of models",
        remedy: "",
        place: Place::InUse,
        level: Some(Level::Wanted),
        whole: Some(Gap::Allocated),
        like: Some(Gap::Rounding),
        sign: '▊',
        colourless: '▊',
        ascii: 'r',
        report: ("#6fa3c7", "#7fb4d8"),
    }
    /// Bytes that the job requested: `allocated - rounding`.
    Wanted {
        name: "wanted",
        id: "wanted",
        role: "wanted",
        cause: "what the job asked for",
        remedy: "",
        place: Place::InUse,
        level: Some(Level::Wanted),
        whole: Some(Gap::Allocated),
        like: None,
        sign: '█',
        colourless: '█',
        ascii: '#',
        report: ("#2f6f9f", "#3f8cc4"),
    }
    /// What the running step has allocated.
    Transient {
        name: "transient",
        id: "transient",
        role: "transient",
        cause: "what the running step has allocated: activations, gradients, temporaries",
        remedy: "a smaller batch, or activation checkpointing",
        place: Place::InUse,
        level: Some(Level::Allocated),
        whole: Some(Gap::Allocated),
        like: Some(Gap::Pending),
        sign: '▌',
        colourless: '▌',
        ascii: 't',
        report: ("#b5852f", "#cf9f35"),
    }
    /// Live allocations whose rounding is unknown.
    Allocated {
        name: "allocated",
        id: "allocated",
        role: "allocated",
        cause: "live allocations; the allocator does not say how much is rounding",
        remedy: "",
        place: Place::InUse,
        level: Some(Level::Allocated),
        whole: None,
        like: Some(Gap::Wanted),
        sign: '█',
        colourless: '█',
        ascii: '#',
        report: ("#2f6f9f", "#3f8cc4"),
    }
    /// Rounding up of requests.
    Rounding {
        name: "rounding",
        id: "rounding",
        role: "rounding",
        cause: "requests rounded up to 512 B or to a power of two",
        remedy: "",
        place: Place::InUse,
        level: Some(Level::Allocated),
        whole: Some(Gap::Allocated),
        like: Some(Gap::Wanted),
        sign: '▓',
        colourless: '▓',
        ascii: '%',
        report: ("#6fa3c7", "#7fb4d8"),
    }
    /// Freed, but another stream still uses it.
    Pending {
        name: "pending",
        id: "pending",
        role: "pending",
        cause: "freed, but another stream still uses it",
        remedy: "avoid record_stream, or synchronise the streams",
        place: Place::InUse,
        level: Some(Level::Active),
        whole: Some(Gap::Cached),
        like: Some(Gap::Wanted),
        sign: '▞',
        colourless: '▞',
        ascii: '/',
        report: ("#7a5ea8", "#9c82cc"),
    }
    /// Free parts of split segments.
    Stuck {
        name: "stuck",
        id: "stuck",
        role: "stuck",
        cause: "free parts of split segments: cannot be given back",
        remedy: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or fewer different sizes",
        place: Place::Unused,
        level: Some(Level::Split),
        whole: Some(Gap::Cached),
        like: Some(Gap::Releasable),
        sign: '▚',
        colourless: '▚',
        ascii: 'x',
        report: ("#b8403c", "#e2716c"),
    }
    /// Free memory in pools of CUDA graphs, as far as known.
    Pools {
        name: "graph pools",
        id: "graph_pools",
        role: "pools",
        cause: "free at most in private pools of CUDA graphs",
        remedy: "drop graphs that are not replayed",
        place: Place::Unused,
        level: None,
        whole: Some(Gap::Cached),
        like: Some(Gap::Releasable),
        sign: '▙',
        colourless: '▙',
        ascii: 'g',
        report: ("#b06a9c", "#cf8fbd"),
    }
    /// Free memory in private pools that the program made.
    MemPools {
        name: "mem pools",
        id: "mem_pools",
        role: "mem_pools",
        cause: "free in private pools that the job made (MemPool, graph_pool_handle)",
        remedy: "drop the pool, or the graphs that share it, when nothing uses them",
        place: Place::Unused,
        level: None,
        whole: Some(Gap::Cached),
        like: Some(Gap::Pools),
        sign: '▟',
        colourless: '▟',
        ascii: 'm',
        report: ("#8c5a80", "#b57aa6"),
    }
    /// Entirely free segments.
    Releasable {
        name: "releasable",
        id: "releasable",
        role: "releasable",
        cause: "whole free segments, cached",
        remedy: "torch.cuda.empty_cache() gives it back",
        place: Place::Unused,
        level: Some(Level::Reserved),
        whole: Some(Gap::Cached),
        like: Some(Gap::Wanted),
        sign: '▒',
        colourless: '▒',
        ascii: '+',
        report: ("#b5d5e8", "#2b5570"),
    }
    /// Cached memory whose split is unknown.
    Cached {
        name: "cached",
        id: "cached",
        role: "cached",
        cause: "held and not in use; what could be given back is not measurable",
        remedy: "",
        place: Place::Unused,
        level: Some(Level::Reserved),
        whole: None,
        like: Some(Gap::Releasable),
        sign: '▒',
        colourless: '▒',
        ascii: '+',
        report: ("#b5d5e8", "#2b5570"),
    }
    /// Reserved memory of which the used part is unknown.
    Reserved {
        name: "reserved",
        id: "reserved",
        role: "reserved",
        cause: "held from the driver; how much is in use is not known",
        remedy: "",
        place: Place::InUse,
        level: Some(Level::Reserved),
        whole: None,
        like: Some(Gap::Cached),
        sign: '█',
        colourless: '█',
        ascii: '#',
        report: ("#2f6f9f", "#3f8cc4"),
    }
    /// This process outside the allocator.
    NonTorch {
        name: "non-torch",
        id: "non_torch",
        role: "non_torch",
        cause: "CUDA context, NCCL, cuBLAS and cuDNN outside the allocator",
        remedy: "destroy unused process groups; CUDA_MODULE_LOADING=LAZY",
        place: Place::Process,
        level: Some(Level::Process),
        whole: Some(Gap::Unattributed),
        like: None,
        sign: '█',
        colourless: '▄',
        ascii: '=',
        report: ("#cf9f35", "#b98e35"),
    }
    /// Other processes.
    Others {
        name: "others",
        id: "others",
        role: "others",
        cause: "processes without a probe: your own jobs, neighbours, leftovers",
        remedy: "P starts the probe in your own; end what is left over",
        place: Place::Device,
        level: Some(Level::Used),
        whole: Some(Gap::Unattributed),
        like: None,
        sign: '█',
        colourless: '▀',
        ascii: 'o',
        report: ("#8a6f4d", "#937a5b"),
    }
    /// The driver's own reserve.
    Driver {
        name: "reserve",
        id: "driver",
        role: "driver",
        cause: "the driver keeps it for itself",
        remedy: "",
        place: Place::Device,
        level: None,
        whole: None,
        like: None,
        sign: '█',
        colourless: '▐',
        ascii: 'd',
        report: ("#6b7280", "#777f8a"),
    }
    /// Used memory of unknown owner.
    Unattributed {
        name: "unattributed",
        id: "unattributed",
        role: "unattributed",
        cause: "in use, but no figure at hand says by whom",
        remedy: "",
        place: Place::Device,
        level: Some(Level::Used),
        whole: None,
        like: None,
        sign: '░',
        colourless: '░',
        ascii: ':',
        report: ("#bcc1c7", "#4a5159"),
    }
    /// Files in the system's memory that a device shares.
    PageCache {
        name: "page cache",
        id: "page_cache",
        role: "page_cache",
        cause: "files in memory that the device shares with the system; the kernel drops them when memory is needed",
        remedy: "",
        place: Place::Device,
        level: None,
        whole: Some(Gap::Free),
        like: Some(Gap::Releasable),
        sign: '╌',
        colourless: '╌',
        ascii: ',',
        report: ("#d5dde3", "#39424a"),
    }
    /// Free.
    Free {
        name: "free",
        id: "free",
        role: "free",
        cause: "free on the device",
        remedy: "",
        place: Place::Device,
        level: None,
        whole: None,
        like: None,
        sign: '·',
        colourless: '·',
        ascii: '.',
        report: ("transparent", "transparent"),
    }
}

/// Properties of the table that other code relies on, checked at compile time.
const _: () = {
    assert!(Gap::ALL.len() <= u32::BITS as usize, "a set of gaps has 32 bits");
    let (mut at, mut highest) = (0, 0);
    while at < Gap::ALL.len() {
        let row = Gap::ALL[at].row();
        assert!(row.gap as usize == at && !row.cause.is_empty() && !row.id.is_empty() && !row.role.is_empty());
        assert!(!row.name.is_empty() && row.name.len() <= 12, "the screens have 12 columns for a gap's name");
        if let Some(level) = row.level {
            assert!(level as usize >= highest, "levels rise from the inside out");
            highest = level as usize;
        }
        let (mut like, mut steps) = (row.like, 0);
        while let Some(gap) = like {
            like = gap.row().like;
            steps += 1;
            assert!(steps < Gap::ALL.len(), "a gap's colour comes from another one in the end");
        }
        at += 1;
    }
};

impl Gap {
    /// Returns the gap that includes its bytes if they are not counted separately, or itself.
    #[must_use]
    pub fn whole(self) -> Self {
        self.row().whole.unwrap_or(self)
    }
}

//! Every wording, as users posted it.

#![expect(clippy::unnecessary_wraps, reason = "sizes are compared with figures that may be unknown")]

use super::*;
use crate::facts::units::Bytes;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn mib(value: f64) -> Option<u64> {
    Some(crate::facts::units::whole(value * MIB as f64))
}

fn gib(value: f64) -> Option<u64> {
    Some(crate::facts::units::whole(value * GIB as f64))
}

#[test]
fn up_to_1_4_held_memory_is_called_cached() {
    let it = parse(
        "RuntimeError: CUDA out of memory. Tried to allocate 381.50 MiB (GPU 1; 7.92 GiB total capacity; \
         7.16 GiB already allocated; 231.00 MiB free; 452.50 KiB cached)",
    );
    assert_eq!((it.tried, it.total, it.free), (mib(381.5), gib(7.92), mib(231.0)));
    assert_eq!((it.allocated, it.unallocated()), (gib(7.16), Some(463_360)));
    assert_eq!(it.cause(), Cause::Oom);
}

#[test]
fn from_1_5_to_2_0_reserved_is_a_total() {
    let hint = " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.";
    for tail in ["", hint] {
        let it = parse(&format!(
            "CUDA out of memory. Tried to allocate 120.00 MiB (GPU 0; 10.91 GiB total capacity; 5.68 GiB already \
             allocated; 100.81 MiB free; 5.75 GiB reserved in total by PyTorch){tail}"
        ));
        assert_eq!((it.tried, it.free, it.reserved), (mib(120.0), mib(100.81), gib(5.75)));
        assert_eq!(it.allocated, gib(5.68));
        // 70 MiB are cached, less than the request, so fragmentation does not explain it.
        assert_eq!(it.cause(), Cause::Oom);
    }
}

#[test]
fn version_2_1_lists_processes_without_marking_its_own() {
    let it = parse(
        "CUDA out of memory. Tried to allocate 448.00 MiB. GPU 1 has a total capacty of 79.10 GiB of which 364.31 MiB \
         is free. Process 175080 has 1.46 GiB memory in use. Process 175356 has 77.26 GiB memory in use. Of the \
         allocated memory 72.12 GiB is allocated by PyTorch, and 3.78 GiB is reserved by PyTorch but unallocated. If \
         reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.",
    );
    assert_eq!((it.total, it.free, it.process, it.others), (gib(79.1), mib(364.31), gib(77.26), gib(1.46)));
    assert_eq!((it.allocated, it.unallocated()), (gib(72.12), gib(3.78)));
    assert_eq!(it.cause(), Cause::Fragmentation);
}

#[test]
fn since_2_2_this_process_is_named_and_others_are_apart() {
    let text = |other: &str| {
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
             79.10 GiB of which 364.31 MiB is free. {other}Including non-PyTorch memory, this process has 40.00 GiB \
             memory in use. Of the allocated memory 38.00 GiB is allocated by PyTorch, with 79.87 MiB allocated in \
             private pools (e.g., CUDA Graphs), and 352.99 MiB is reserved by PyTorch but unallocated. If reserved but \
             unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid \
             fragmentation.  See documentation for Memory Management"
        )
    };
    let it = parse(&text("Process 9 has 38.50 GiB memory in use. "));
    assert_eq!((it.process, it.others, it.private_pools), (gib(40.0), gib(38.5), mib(79.87)));
    assert_eq!(it.cause(), Cause::OtherProcess);
    // In a container others are not listed, but the memory missing on the device is theirs.
    assert_eq!(parse(&text("")).cause(), Cause::OtherProcess);
    let lost_index = text("").replace("GPU 0 has", "GPU  has").replace("CUDA out", "HIP out");
    assert_eq!(parse(&lost_index), parse(&text("")));
    let fits =
        text("").replace("this process has 40.00", "this process has 78.00").replace("memory 38.00", "memory 76.00");
    assert_eq!(parse(&fits).cause(), Cause::Oom);
}

#[test]
fn a_fraction_and_an_early_rejection_are_read() {
    let it = parse(
        "CUDA out of memory. Tried to allocate 13.20 GiB. GPU 0 has a total capacity of 24.00 GiB of which 23.17 GiB \
         is free. 12.00 GiB allowed; Of the allocated memory 312.00 MiB is allocated by PyTorch, and 0 bytes is \
         reserved by PyTorch but unallocated.",
    );
    assert_eq!((it.allowed, it.allocated, it.unallocated()), (gib(12.0), mib(312.0), Some(0)));
    assert_eq!(it.cause(), Cause::Oom);
    let it = parse(
        "Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested \
         size: 512.00 KiB.",
    );
    assert_eq!(it.tried, Some(512 << 10));
}

#[test]
fn other_allocators_and_libraries_are_read_as_far_as_they_go() {
    let it = parse(
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 150.00 MiB\n\
         Requested               : 131072.00 GiB\nDevice limit            : 24.00 GiB\n\
         Free (according to CUDA): 23.35 GiB\nPyTorch limit (set by user-supplied memory fraction)\n\
         \u{20}                       : 17179869184.00 GiB",
    );
    assert_eq!((it.allocated, it.tried, it.total, it.free), (mib(150.0), gib(131_072.0), gib(24.0), gib(23.35)));
    assert_eq!(it.allowed, None, "the largest number there is, is no limit");
    let it = parse("NCCL WARN Failed to CUDA calloc 536870912 bytes");
    assert_eq!(it, OomFigures { tried: Some(536_870_912), ..OomFigures::default() });
    let it = parse("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 137438953472 bytes.");
    assert_eq!(it.tried, Some(137_438_953_472));
    for text in
        ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "Tried to allocate more than 1EB memory.", ""]
    {
        assert_eq!((parse(text), parse(text).cause()), (OomFigures::default(), Cause::Oom), "{text}");
    }
}

#[test]
fn memory_free_on_wsl_is_zero_bytes() {
    let it = parse("Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free. Of");
    assert_eq!(it.free, Some(0));
}

proptest! {
    #[test]
    fn no_message_is_too_strange(text in "(Tried to allocate |Process |has |GiB |: |allowed;| is free|[0-9.eE+-]{0,5}| |[a-zé\n]{0,3}){0,20}") {
        let it = parse(&text);
        let _ = (it.cause(), it.evidence());
    }
}

#[test]
fn the_account_explains_with_figures_why_a_request_failed() {
    let tenant =
        |pid, name: &str, used| Tenant { pid, name: crate::facts::text::Foreign::new(name), used: Some(Bytes(used)) };
    let figures = OomFigures {
        tried: gib(6.0),
        free: gib(2.0),
        total: gib(80.0),
        allocated: gib(60.0),
        reserved: gib(64.0),
        largest_free: gib(1.0),
        stuck: gib(3.0),
        others: gib(9.0),
        ..OomFigures::default()
    };
    let groups = [(4 * MIB, 9), (MIB, 8), (512, 7), (1024, 1), (2048, 5)];
    let blocks = Blocks { groups: &groups, others: Some(3) };
    assert_eq!(
        figures.account(blocks, &[tenant(7, "a\u{1b}b", 8 * GIB), tenant(9, "", GIB)]),
        [
            "6.00 GiB was asked for, 2.00 GiB of the device's 80.00 GiB was free",
            "the allocator held 4.00 GiB unused: 3.00 GiB in split segments, its largest free block had 1.00 GiB: too small",
            "other processes had 9.00 GiB of the device: pid 7 (a\\u{1b}b) 8.00 GiB, pid 9 1.00 GiB",
            "live blocks, by size: 9 × 4.00 MiB, 8 × 1.00 MiB, 7 × 512 B, 1 × 1.00 KiB, 8 of other sizes",
        ]
    );
    assert!(
        OomFigures::default().account(Blocks::default(), &[]).is_empty(),
        "nothing is known, so the account is empty"
    );
}

#[test]
fn others_are_in_the_way_where_the_request_would_fit_without_them() {
    let figures = OomFigures { tried: gib(2.0), free: gib(1.75), total: gib(4.0), ..OomFigures::default() };
    for (others, cause) in [(gib(1.5), Cause::OtherProcess), (gib(0.2), Cause::Oom), (Some(0), Cause::Oom)] {
        assert_eq!(OomFigures { others, ..figures }.cause(), cause, "{others:?}");
    }
}

#[test]
fn a_limit_of_the_jobs_own_is_not_blamed_on_others() {
    let figures = OomFigures {
        tried: gib(1.0),
        free: gib(40.0),
        allowed: gib(8.0),
        reserved: gib(7.5),
        allocated: gib(7.5),
        others: gib(30.0),
        ..OomFigures::default()
    };
    assert_eq!(figures.cause(), Cause::Oom);
    let account = figures.account(Blocks::default(), &[]).join("\n");
    let limit = "the device had room, but the job may take at most 8.00 GiB (set_per_process_memory_fraction), and its \
                 allocator held 7.50 GiB";
    assert!(account.contains(limit) && account.contains("everything that the allocator held was in use"), "{account}");
    assert_eq!(OomFigures { free: gib(0.5), ..figures }.cause(), Cause::OtherProcess);
}

/// 190 MiB in pieces are the usual cost of rounding: `expandable_segments` would have served one request more.
#[test]
fn a_model_that_is_too_large_is_not_called_fragmented() {
    let it = parse(
        "CUDA out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total capacity of 23.50 GiB of which 46.00 MiB is \
         free. Including non-PyTorch memory, this process has 23.45 GiB memory in use. Of the allocated memory 22.91 GiB \
         is allocated by PyTorch, and 190.00 MiB is reserved by PyTorch but unallocated.",
    );
    assert_eq!((it.allocated, it.unallocated(), it.cause()), (gib(22.91), mib(190.0), Cause::Oom));
    // A small request takes a segment of 20 MiB, for which there was room.
    for tried in [2.0, 20.0, 64.0, 1024.0] {
        assert_eq!(OomFigures { tried: mib(tried), ..it }.cause(), Cause::Oom, "{tried} MiB");
    }
}

#[test]
fn only_what_could_have_served_the_request_is_fragmentation() {
    let holed = OomFigures {
        tried: mib(512.0),
        free: mib(100.0),
        total: gib(24.0),
        allocated: gib(16.0),
        reserved: gib(23.0),
        stuck: gib(7.0),
        ..OomFigures::default()
    };
    assert_eq!(holed.cause(), Cause::Fragmentation);
    assert_eq!(OomFigures { tried: gib(7.5), ..holed }.cause(), Cause::Oom, "in one piece it were too small as well");
    let whole_segments = OomFigures { stuck: mib(300.0), ..holed };
    assert_eq!(whole_segments.cause(), Cause::Oom, "what is in whole segments, the allocator had given back");
    let expandable = OomFigures { stuck: None, expandable: true, ..holed };
    assert_eq!(expandable.cause(), Cause::Oom, "free pages had been given back");
    let in_pools = OomFigures { private_pools: gib(7.0), pools_held: gib(7.0), ..holed };
    assert_eq!(in_pools.cause(), Cause::Oom, "private pools serve nothing else");
    let in_use = OomFigures { pools_live: gib(6.5), ..in_pools };
    assert_eq!(in_use.cause(), Cause::Fragmentation, "nearly all of the pools was live");
    let without_stuck = OomFigures { stuck: None, ..holed };
    assert_eq!(without_stuck.cause(), Cause::Fragmentation, "a message does not report split segments");
}

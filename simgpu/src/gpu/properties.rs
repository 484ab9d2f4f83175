//! `cudaGetDeviceProperties`: the documented structure, filled from the same attributes as single questions are.

use super::{
    abi::{Answer, Out},
    calls::{answer, ordinal},
    model::{Model, attribute},
    process::process,
    state::Card,
};
use std::mem;

/// `cudaDeviceProp`, in the header's order; fields that stay 0 here are grouped. `OLD` is 1 for CUDA 12, which has
/// some fields more, and 0 for CUDA 13.
#[repr(C)]
struct Properties<const OLD: usize> {
    name: [u8; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    luid_mask: u32,
    total_memory: usize,
    shared_per_block: usize,
    registers_per_block: i32,
    warp: i32,
    pitch: usize,
    threads_per_block: i32,
    block: [i32; 3],
    grid: [i32; 3],
    clock: [i32; OLD],
    constant_memory: usize,
    major: i32,
    minor: i32,
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    overlap: [i32; OLD],
    multiprocessors: i32,
    run_time_limit: [i32; OLD],
    integrated: i32,
    can_map_host: i32,
    compute_mode: [i32; OLD],
    textures: [i32; 2],
    linear_texture: [i32; OLD],
    textures_and_surfaces: [i32; 37],
    surface_alignment: usize,
    concurrent_kernels: i32,
    ecc: i32,
    pci_bus: i32,
    pci_device: i32,
    pci_domain: i32,
    tcc: i32,
    async_engines: i32,
    unified_addressing: i32,
    memory_clock: [i32; OLD],
    bus_width: i32,
    l2_bytes: i32,
    persisting_l2_bytes: i32,
    threads_per_multiprocessor: i32,
    stream_priorities: i32,
    global_l1: i32,
    local_l1: i32,
    shared_per_multiprocessor: usize,
    registers_per_multiprocessor: i32,
    managed: i32,
    multi_board: i32,
    multi_board_group: i32,
    host_atomics: i32,
    double_ratio: [i32; OLD],
    pageable: i32,
    concurrent_managed: i32,
    preemption: i32,
    registered_host_pointers: i32,
    cooperative: i32,
    cooperative_devices: [i32; OLD],
    shared_optin: usize,
    host_page_tables: i32,
    direct_managed: i32,
    blocks_per_multiprocessor: i32,
    access_window: i32,
    reserved_shared: usize,
    host_register: i32,
    sparse_arrays: i32,
    host_register_read_only: i32,
    timeline_semaphores: i32,
    pools: i32,
    rdma: i32,
    rdma_flush: u32,
    rdma_order: i32,
    pool_handles: u32,
    deferred_arrays: i32,
    ipc_events: i32,
    cluster: i32,
    unified_functions: i32,
    device_numa: [i32; 2],
    mps: i32,
    host_numa: i32,
    pci_ids: [u32; 2],
    host_numa_multinode: i32,
    spare: [i32; 56],
}

fn properties<const OLD: usize>(card: &Card, index: usize) -> Properties<OLD> {
    let model = Model::of(card.name());
    let attr = |number| attribute(card, index, number);
    let size = |number| usize::try_from(attribute(card, index, number)).unwrap_or(0);
    let mut name = [0; 256];
    let len = card.name().len().min(name.len() - 1);
    name[..len].copy_from_slice(&card.name().as_bytes()[..len]);
    Properties {
        name,
        uuid: card.uuid_bytes(),
        total_memory: usize::try_from(card.capacity()).unwrap_or(usize::MAX),
        shared_per_block: size(8),
        registers_per_block: attr(12),
        warp: attr(10),
        pitch: size(11),
        threads_per_block: attr(1),
        block: [attr(2), attr(3), attr(4)],
        grid: [attr(5), attr(6), attr(7)],
        clock: [attr(13); OLD],
        constant_memory: size(9),
        major: model.major,
        minor: model.minor,
        texture_alignment: size(14),
        texture_pitch_alignment: size(51),
        overlap: [attr(15); OLD],
        multiprocessors: model.multiprocessors,
        can_map_host: attr(19),
        concurrent_kernels: attr(31),
        pci_bus: attr(33),
        async_engines: attr(40),
        unified_addressing: attr(41),
        memory_clock: [attr(36); OLD],
        bus_width: attr(37),
        l2_bytes: attr(38),
        persisting_l2_bytes: attr(108),
        threads_per_multiprocessor: attr(39),
        stream_priorities: attr(78),
        global_l1: attr(79),
        local_l1: attr(80),
        shared_per_multiprocessor: size(81),
        registers_per_multiprocessor: attr(82),
        managed: attr(83),
        pageable: attr(88),
        concurrent_managed: attr(89),
        preemption: attr(90),
        registered_host_pointers: attr(91),
        cooperative: attr(95),
        cooperative_devices: [attr(96); OLD],
        shared_optin: size(97),
        blocks_per_multiprocessor: attr(106),
        access_window: attr(109),
        reserved_shared: size(111),
        host_register: attr(99),
        pools: attr(115),
        pool_handles: 1,
        cluster: attr(120),
        // SAFETY: every field is an integer or an array of them, for which zero is a value.
        ..unsafe { mem::zeroed() }
    }
}

fn fill<const OLD: usize>(out: Out<Properties<OLD>>, device: i32) -> Answer {
    let device = ordinal(device)?;
    let mut process = process();
    let index = process.index(device)?;
    out.put(process.card(device, |it| properties(it, index))?);
    Ok(())
}

entry_points! {
    fn cudaGetDeviceProperties(out: Out<Properties<0>>, device: i32) -> i32 {
        answer(fill(out, device))
    }

    // CUDA 12's name for it, which nothing of CUDA 13 imports.
    fn cudaGetDeviceProperties_v2(out: Out<Properties<1>>, device: i32) -> i32 {
        answer(fill(out, device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets of some fields, from a C compiler and the headers of CUDA 13.2 and 12.8.
    #[test]
    fn fields_lie_where_the_headers_have_them() {
        macro_rules! places {
            ($type:ty) => {
                [
                    mem::offset_of!($type, constant_memory),
                    mem::offset_of!($type, multiprocessors),
                    mem::offset_of!($type, surface_alignment),
                    mem::offset_of!($type, bus_width),
                    mem::offset_of!($type, shared_per_multiprocessor),
                    mem::offset_of!($type, shared_optin),
                    mem::offset_of!($type, pools),
                    mem::offset_of!($type, cluster),
                    mem::size_of::<$type>(),
                ]
            };
        }
        assert_eq!(places!(Properties<0>), [352, 384, 552, 592, 624, 672, 720, 748, 1008]);
        assert_eq!(places!(Properties<1>), [352, 388, 568, 612, 640, 696, 744, 772, 1032]);
    }
}

//! What NCCL's buffers take, by how the devices of a machine are linked.
//!
//! A connection is one way to one peer in one channel. Its receiver keeps the buffers of three protocols, its sender a
//! page of counters; NCCL allocates both in steps of 2 MiB (`p2pRecvSetup` and `p2pSendSetup` in `transport/p2p.cc`).
//! `NCCL_DEBUG_SUBSYS=ALLOC` prints just these sizes, 10485760 and 2097152 (NVIDIA/nccl#1685). A channel has a ring
//! with one connection each way, and on one machine a tree that is a chain, with two.

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// The steps in which NCCL allocates memory that it shares (`CUDA_IPC_MIN`).
const STEP: u64 = 2 * MIB;

/// A page of counters (`MEM_ALIGN`).
const COUNTERS: u64 = 4 * KIB;

/// Bytes of a buffer of each protocol: Simple (`NCCL_BUFFSIZE`), LL (8 lines of 16 bytes for 512 threads and 8 steps),
/// LL128 (120 elements of 8 bytes for 640 threads and 8 steps).
const PROTOCOLS: [u64; 3] = [4 * MIB, 8 * 16 * 512 * 8, 120 * 8 * 640 * 8];

/// How the devices of a machine are linked; one with more links comes later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Through the host. Without peer access, the buffers are the host's.
    #[default]
    Pcie,
    /// Links between devices.
    Nvlink,
    /// Links with a switch that reduces (NVLink SHARP).
    Sharp,
}

/// Bytes of a connection, at its receiver and at its sender.
fn connection() -> u64 {
    let receiver = COUNTERS + PROTOCOLS.iter().sum::<u64>();
    receiver.next_multiple_of(STEP) + COUNTERS.next_multiple_of(STEP)
}

impl Link {
    /// Every link.
    pub const ALL: [Self; 3] = [Self::Pcie, Self::Nvlink, Self::Sharp];

    /// Returns its name in documents and texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcie => "PCIe",
            Self::Nvlink => "NVLink",
            Self::Sharp => "NVLink SHARP",
        }
    }

    /// Channels of a communicator: at least, in most cases, at most.
    pub fn channels(self) -> [u64; 3] {
        match self {
            Self::Pcie => [0, 2, 4],
            Self::Nvlink | Self::Sharp => [2, 24, 32],
        }
    }

    /// Bytes of a communicator on each device: rings only, as long as no tree is connected (NCCL connects an algorithm
    /// when it is first used), or at most rings, trees and a switch's buffers (1 MiB to send and to receive, for each
    /// channel and up to 8 devices: `nvls.cc`).
    pub fn bytes(self) -> [u64; 3] {
        let [least, usual, most] = self.channels();
        let switch = if self == Self::Sharp { most * 2 * MIB * 8 } else { 0 };
        [least * connection(), usual * connection(), most * 3 * connection() + switch]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_the_sizes_that_nccl_prints() {
        assert_eq!(connection(), 10_485_760 + 2_097_152);
        assert_eq!(
            Link::ALL.map(|it| it.bytes().map(|bytes| bytes / MIB)),
            [[0, 24, 144], [24, 288, 1152], [24, 288, 1664]]
        );
    }
}

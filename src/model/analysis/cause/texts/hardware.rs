//! The texts of the causes that are faults of the hardware.

use crate::model::analysis::cause::{Cause, Entry};

pub(super) const THERMAL_THROTTLING: Entry = Entry {
    cause: Cause::ThermalThrottling,
    id: "thermal-throttling",
    title: "heat slows the device down",
    advice: "look at the node's cooling and airflow, and at its other devices; until then, lower the power limit",
    text: "\
The driver reports for at least a minute that the device lowers its clocks because it is too hot: the
device's own temperature or its memory's is above the limit. Steps take longer until it has cooled.

Where to look: the temperatures on the device screen, beside those of the other devices; fans, airflow and
dust; neighbours that blow their warm air at it.

Remedy: cooling. nvidia-smi -pl lowers the power limit, which costs less speed than heat does.",
};

pub(super) const POWER_THROTTLING: Entry = Entry {
    cause: Cause::PowerThrottling,
    id: "power-throttling",
    title: "the power limit slows the device down",
    advice: "compare the power limit with the device's default (nvidia-smi -q -d POWER); raise it if the node allows it",
    text: "\
For at least a minute, the clocks of the multiprocessors have been a quarter or more below the highest, and
the driver reports the power limit as the reason. A few percent below the highest are usual under heavy load
and are not reported.

It is information, no warning: administrators lower the limit on purpose.

Remedy: nvidia-smi -pl raises the limit up to the device's maximum.",
};

pub(super) const POWER_BRAKE: Entry = Entry {
    cause: Cause::PowerBrake,
    id: "power-brake",
    title: "the hardware brakes the device",
    advice: "have the node's power supply and the device's power cables looked at; see dmesg and the node's event log",
    text: "\
The driver reports for at least a minute that the hardware has halved the clocks or more, and not because of
heat: the node's power supply has asserted the power brake, or the device draws more than its supply gives.

Remedy: move the job to another node, and have the power supply and cables looked at.",
};

pub(super) const DEGRADED_LINK: Entry = Entry {
    cause: Cause::DegradedLink,
    id: "degraded-link",
    title: "the PCIe link is slower than it can be",
    advice: "reseat the device or its riser, and look at the BIOS's settings of the slot; see lspci -vv (LnkSta)",
    text: "\
For at least a minute, the link has had fewer lanes than the device and its slot have in common, or a lower
generation while the device works. Copies between host and device take longer: batches that are loaded,
checkpoints, offloaded parameters, and collectives that go through the host.

An idle device lowers the generation to save power. That is normal and not reported.

Remedy: reseat the device or its riser card; another slot; the BIOS's settings for the slot. Errors of the
link show as PCIe replays on the device screen.",
};

pub(super) const ROWS_PENDING: Entry = Entry {
    cause: Cause::RowsPending,
    id: "rows-pending",
    title: "memory rows are to be replaced",
    advice: "reset the device when its jobs have ended (nvidia-smi -r), and replace it if rows keep failing",
    text: "\
An ECC error could not be corrected, and the device wants to replace the row of memory with a spare one, which
it does at the next reset. Until then, the same row may end another job. A row that could not be replaced has
no spare one left: the device must be replaced.

Remedy: drain the node, reset the device or reboot. Have a device replaced whose rows fail again and again.",
};

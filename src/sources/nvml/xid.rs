//! Critical errors (Xid): the most common ones with their meaning and what to do, after NVIDIA's "Xid Errors"
//! catalogue.

/// Number, meaning, next step.
const MEANINGS: [(u64, &str, &str); 15] = [
    (13, "a kernel of a job used memory out of bounds", "run that job under compute-sanitizer"),
    (31, "a job used an address that is not mapped", "run that job under compute-sanitizer"),
    (43, "a job's work was stopped by a fault of its own", "see that job's output; the device still works"),
    (45, "work was removed, as after a job that was killed", "see what ended that job"),
    (48, "memory had an error that could not be corrected", "end the jobs and reset the device"),
    (62, "the device's own controller has halted", "end the jobs and reset the device"),
    (63, "a page of memory is to be replaced", "reset the device when its jobs have ended"),
    (64, "a page of memory could not be replaced", "reset the device; replace it if the error returns"),
    (74, "a link to another device (NVLink) failed", "end the jobs and reset the device; look at its link"),
    (79, "the device has fallen off the bus", "drain the node and reboot it; look at power and cooling"),
    (92, "corrected memory errors come often", "reset the device soon; replace it if they continue"),
    (94, "a memory error was contained: one job has lost", "start that job again, and reset the device soon"),
    (95, "a memory error was not contained", "end the jobs and reset the device"),
    (119, "the device's system processor does not answer", "end the jobs and reset the device, or reboot"),
    (120, "the device's system processor failed", "end the jobs and reset the device, or reboot"),
];

/// Describes an error, with the next step.
pub(super) fn words(number: u64) -> String {
    match MEANINGS.iter().find(|it| it.0 == number) {
        Some((_, what, step)) => format!("Xid {number}, {what}: {step}"),
        None => format!("Xid {number}: look it up in NVIDIA's catalogue of Xid errors, and see dmesg"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_next_step() {
        assert!(MEANINGS.windows(2).all(|it| it[0].0 < it[1].0), "each once, in order");
        assert!(words(79).ends_with("look at power and cooling"));
        assert!(words(12_345).contains("dmesg"));
    }
}

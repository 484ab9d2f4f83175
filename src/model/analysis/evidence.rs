//! The figures that support a finding, which a user can check.

use crate::facts::units::{self, Bytes};

/// Named figures, the most useful first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// In the order in which texts name them.
    pub figures: Vec<Figure>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Its name in files: lower case, words joined by `_`.
    pub name: &'static str,
    /// Its value, a finite number.
    pub value: f64,
    /// The unit of its value.
    pub unit: Unit,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bytes per step.
    BytesPerStep,
    /// Items per step.
    PerStep,
    /// Bytes per second, for a job that counts no steps; the name still has `step`.
    BytesPerSecond,
    /// Items per second, for such a job.
    PerSecond,
    /// A count.
    Count,
    /// A share of a whole, from 0 to 1.
    Share,
    /// A ratio.
    Times,
    /// Degrees Celsius.
    Celsius,
    /// A duration in µs.
    Micros,
}

/// The phrase for each figure, by its name; `{}` is the figure. An unlisted one reads `name figure`.
const WORDS: [(&str, &str); 52] = [
    ("gained", "{} gained"),
    ("blocks_per_step", "{} a step"),
    ("bytes_per_block", "{} per block"),
    ("requested_per_block", "{} requested per block"),
    ("blocks_per_stair", "{} per rise"),
    ("blocks_per_rise", "{} blocks per rise"),
    ("time_of_a_step_with_a_rise", "a step with a rise takes {} the usual time"),
    ("releases", "released {} times"),
    ("stuck_at_most", "up to {} of reserved was stuck"),
    ("stuck", "{} stuck"),
    ("reserved", "{} reserved"),
    ("wanted_at_most", "wants up to {} of the device"),
    ("allocated_peak", "{} allocated at its peak"),
    ("against_the_other_ranks", "wants {} the other ranks' median"),
    ("wanted", "{} wanted"),
    ("others_want", "the other ranks want {} (median)"),
    ("steps_that_give_segments_back", "{} of the steps give segments back"),
    ("retries", "{} retries"),
    ("used", "holds {} there"),
    ("tried", "{} requested"),
    ("free", "{} free on the device"),
    ("allowed", "{} allowed to the process"),
    ("others", "{} in other processes"),
    ("allocated", "{} allocated"),
    ("reserved_unallocated", "{} reserved and not allocated"),
    ("largest_free", "largest free block {}"),
    ("hottest", "up to {}"),
    ("clock_lost", "clock up to {} below the highest"),
    ("bandwidth_lost", "{} of the bandwidth missing"),
    ("slower", "steps take {} as long"),
    ("now_us", "{} a step"),
    ("before_us", "{} before"),
    ("stopped_us", "no step for {}"),
    ("device_was_busy", "device {} busy"),
    ("usual_us", "usually {} a step"),
    ("without_sign_us", "nothing moved for {} before the alert"),
    ("step_against_the_other_ranks", "a step takes {} the ranks' median"),
    ("later_us", "reaches a step {} after the ranks' median"),
    ("own_device_busy", "its device is {} busy"),
    ("other_devices_busy", "the others' {} (median)"),
    ("held", "holds {} of device memory"),
    ("idle_us", "has done nothing for {}"),
    ("ended_us", "listed for {} after its end"),
    ("rows_replaced", "{} rows replaced so far"),
    ("host_used", "{} cannot be given back"),
    ("host_room", "of {}, with swap"),
    ("host_rate", "{}"),
    ("shm_size", "/dev/shm has {}"),
    ("shm_at_most", "up to {} of it used"),
    ("workers_copied", "{} copied"),
    ("workers_compared", "by {} workers"),
    ("killed", "{} killed"),
];

/// The bounds of a 95 % confidence interval.
const ENDS: [&str; 2] = ["interval_low", "interval_high"];

/// The figures of growth by stairs that its slope has already, and those that mean nothing beside them.
const OF_STAIRS: [&str; 5] =
    ["bytes_per_stair", "from_stair_to_stair", "blocks_per_step", "blocks_per_rise", "allocated_per_step"];

impl Evidence {
    /// Adds a figure; leaves out NaN and infinity, which stand for unknown.
    pub fn add(&mut self, name: &'static str, value: f64, unit: Unit) {
        if value.is_finite() {
            self.figures.push(Figure { name, value, unit });
        }
    }

    /// Returns a figure by its name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|it| it.name == name).map(|it| it.value)
    }

    /// Describes the figures: `between 3.98 and 4.02 MiB/step (95 % confidence)`, `2.70 GiB gained`.
    pub fn words(&self) -> Vec<String> {
        let figure = |name| self.figures.iter().find(|it| it.name == name);
        let is_stairs = figure(OF_STAIRS[0]).is_some();
        let ends = figure(ENDS[0]).zip(figure(ENDS[1])).filter(|_| !is_stairs);
        let interval = ends.map(|(low, high)| between(low, high));
        let is_written = |it: &&Figure| ENDS.contains(&it.name) || is_stairs && OF_STAIRS.contains(&it.name);
        let others = self.figures.iter().filter(|it| !is_written(it)).map(Figure::words);
        interval.into_iter().chain(others).collect()
    }
}

/// Formats an interval as `between 3.98 and 4.02 MiB/step (95 % confidence)`, with the unit once if both share it.
fn between(low: &Figure, high: &Figure) -> String {
    let written = |it: &Figure| it.written().trim_start_matches('+').to_owned();
    let (low, high) = (written(low), written(high));
    let unit = |figure: &str| figure.split_once(' ').map(|parts| parts.1.to_owned());
    let short = low.split_once(' ').filter(|_| unit(&low) == unit(&high)).map_or(low.as_str(), |it| it.0);
    if low == high {
        format!("{low} (95 % confidence)")
    } else {
        format!("between {short} and {high} (95 % confidence)")
    }
}

impl Figure {
    /// Formats the value with its unit: `4.00 MiB`, `+4.00 MiB/step`, `42 %`, `1 block`.
    fn written(&self) -> String {
        match self.unit {
            Unit::Bytes => Bytes(units::whole(self.value)).to_string(),
            Unit::BytesPerStep => units::per_step(self.value),
            Unit::BytesPerSecond => units::per_step(self.value).replace("/step", "/s"),
            Unit::PerStep | Unit::PerSecond => {
                format!("{:.3}", self.value).trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            Unit::Count => format!("{:.0}", self.value),
            Unit::Celsius => format!("{:.0} °C", self.value),
            Unit::Micros => units::brief(units::whole(self.value)),
            Unit::Times => units::times(self.value),
            Unit::Share => format!("{:.0} %", self.value * 100.0),
        }
    }

    /// Describes the figure: `4.00 MiB per block`.
    pub fn words(&self) -> String {
        let written = match (self.unit, self.written()) {
            (Unit::PerStep | Unit::PerSecond, it) if it == "1" => "1 block".to_owned(),
            (Unit::PerStep | Unit::PerSecond, it) => format!("{it} blocks"),
            (_, it) => it,
        };
        match WORDS.iter().find(|it| it.0 == self.name) {
            Some((_, words)) if self.unit == Unit::PerSecond => {
                words.replace("a step", "a second").replacen("{}", &written, 1)
            }
            Some((_, words)) => words.replacen("{}", &written, 1),
            None => {
                let name = self.name.strip_suffix("_per_step").unwrap_or(self.name).replace('_', " ");
                format!("{name} {written}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_described_as_text() {
        let words = |name, value, unit| Figure { name, value, unit }.words();
        assert_eq!(words("allocated_per_step", 2048.0, Unit::BytesPerStep), "allocated +2.00 KiB/step");
        assert_eq!(words("allocated_per_step", -512.0, Unit::BytesPerSecond), "allocated -512 B/s");
        assert_eq!(words("blocks_per_step", 0.5, Unit::PerStep), "0.5 blocks a step");
        assert_eq!(words("blocks_per_step", 1.0, Unit::PerSecond), "1 block a second");
        assert_eq!(words("against_the_other_ranks", 1.4, Unit::Times), "wants 1.4 × the other ranks' median");
        assert_eq!(words("stuck_at_most", 0.42, Unit::Share), "up to 42 % of reserved was stuck");
        assert_eq!(words("something_new", 3.0, Unit::Count), "something new 3");
        assert!(WORDS.iter().all(|it| it.1.matches("{}").count() == 1));
    }

    #[test]
    fn an_interval_is_one_phrase_with_its_unit_once() {
        let phrase = |low: f64, high: f64| {
            let mut it = Evidence::default();
            it.add("interval_low", low * 1_048_576.0, Unit::BytesPerStep);
            it.add("interval_high", high * 1_048_576.0, Unit::BytesPerStep);
            it.words().concat()
        };
        assert_eq!(phrase(3.98, 4.02), "between 3.98 and 4.02 MiB/step (95 % confidence)");
        assert_eq!(phrase(0.9, 1.1), "between 921.6 KiB/step and 1.10 MiB/step (95 % confidence)");
        assert_eq!(phrase(4.0, 4.0), "4.00 MiB/step (95 % confidence)");
        let mut evidence = Evidence::default();
        evidence.add("nothing", f64::NAN, Unit::Bytes);
        assert_eq!((evidence.get("nothing"), evidence.figures.len()), (None, 0));
    }
}

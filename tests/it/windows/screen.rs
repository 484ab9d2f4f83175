//! Windows in a viewer of the job.

use crate::{launch::Home, pty::Terminal};

/// A viewer in another terminal than the job's.
pub(super) fn view(home: &Home, arguments: &[&str]) -> Terminal {
    let variables = home.variables();
    let environment: Vec<_> = variables.iter().map(|(name, path)| (*name, path.to_str().unwrap())).collect();
    Terminal::start(&[&["--no-nvml"], arguments].concat(), &environment)
}

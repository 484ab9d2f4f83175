//! Windows in viewers of the job, and the key that requests one.

use super::Windowed;
use crate::{
    helpers::{terminal::Terminal, torch::Gpu},
    probe::launch::Home,
    screens::actions::quits,
};

/// A viewer in another terminal than the job's.
pub(super) fn view(home: &Home, arguments: &[&str]) -> Terminal {
    let variables = home.variables();
    let environment: Vec<_> = variables.iter().map(|(name, path)| (*name, path.to_str().unwrap())).collect();
    Terminal::start(&[&["--no-nvml", "--sites", "asked"], arguments].concat(), &environment)
}

#[test]
fn a_key_traces_a_job_after_a_question_and_its_screen_shows_the_answer() {
    let gpu = Gpu::new("NVIDIA A10:4000MiB:0MiB");
    let mut it = Windowed::start_on(gpu, "stuck", &["--sites", "asked"], |_| ());
    let mut terminal = view(&it.job.home, &[]);
    terminal.shows("windowed.py");
    terminal.press("\t\r");
    terminal.shows("process   pid ");
    let question = format!("Trace 50 steps of pid {} and", it.pid);
    terminal.press("W");
    terminal.shows(&question);
    terminal.press("x");
    terminal.shows("nothing was traced");
    terminal.press("W");
    terminal.shows(&question);
    terminal.press("y");
    terminal.shows("its process screen shows what other settings would save");
    terminal.shows("the job reserves less at its peak");
    // Its own history forbids the next one.
    it.asked("record");
    terminal.press("W");
    terminal.shows(&question);
    terminal.press("y");
    terminal.shows("the job records its memory history itself");
    quits(terminal);
    let mut terminal = view(&it.job.home, &["--readonly"]);
    terminal.shows("windowed.py");
    terminal.press("\tW");
    terminal.shows("this view traces no jobs");
    quits(terminal);
    it.job.ended();
}

//! A job that keeps more memory after each step fits for a while only.

use super::{Asked, bytes};
use crate::helpers::torch::{Gpu, stdout};

/// Keeps an output of each step, or nothing.
const JOB: &str = "import sys, torch
net = torch.nn.Linear(2048, 2048).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
kept = []
for step in range(1000):
    rows = 1024 if sys.argv[1] != 'varying' else 256 + 173 * (step * 7 % 5)
    out = net(torch.randn(rows, 2048, device='cuda'))
    if sys.argv[1] == 'keeps':
        kept.append(out.detach().clone())
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
";

#[test]
fn a_job_that_grows_in_each_step_is_no_fit() {
    let output = Asked::new(JOB).fit(&["--gpu", "2GiB"], &["keeps"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let (_, after) =
        text.split_once("grows 8.00 MiB a step: full after about ").unwrap_or_else(|| panic!("{output:?}"));
    // Two such blocks take a segment of 20 MiB, so that what is reserved goes up by 10 MiB in each step.
    let step: u64 = after.split_once(' ').unwrap().0.parse().unwrap();
    assert!((160..=190).contains(&step), "{text}");
    assert!(text.contains(" steps (its loops make 1000); train.py:9 allocates what it keeps"), "{text}");
    let steady = ["steady", "varying"];
    for case in test_tiers::vary!(steady, "batches of different sizes") {
        let output = Asked::new(JOB).fit(&["--gpu", "2GiB"], &[case]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

/// A training that ends long before it could fill the device fits. The answer says how fast it grows.
#[test]
fn a_short_job_that_grows_fits_and_says_so() {
    let output = Asked::new(JOB).fit(&["--gpu", "H200"], &["keeps"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("to spare; grows 8.00 MiB a step: full after about "), "{text}");
    assert!(text.contains(" steps, and its loops make 1000; train.py:9 allocates what it keeps"), "{text}");
    assert!(text.contains("smallest known card that is enough: "), "{text}");
    // The peak is that of the last step, although what was reserved before held it, too.
    let (_, step) = text.split_once(", in step ").unwrap();
    let (at, rest) = step.split_once(" of ").unwrap();
    assert!(rest.starts_with(&format!("{at} that ran")), "{text}");
}

/// Keeps outputs in a list that has a bound, or none.
const BOUNDED: &str = "import collections, sys, torch
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)).cuda()
optimizer = torch.optim.Adam(net.parameters())
kept = collections.deque(maxlen=int(sys.argv[2]) or None)
for step in range(5000):
    out = net(torch.randn(512, 256, device='cuda'))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    kept.append(out.detach())
    if sys.argv[1] == 'cleared' and len(kept) >= int(sys.argv[2]):
        kept.clear()
    if sys.argv[1] == 'halved' and len(kept) == int(sys.argv[2]):
        for _ in range(len(kept) // 2):
            kept.popleft()
";

#[test]
fn a_list_that_has_a_bound_is_no_growth() {
    let cases = [
        ["bounded", "15"],
        ["cleared", "12"],
        ["halved", "40"],
        ["bounded", "100"],
        ["cleared", "31"],
        ["cleared", "90"],
    ];
    for case in test_tiers::vary!(cases, "lists with other bounds") {
        for steps in [&[][..], &["--steps", "125"]] {
            let options = [&["--gpu", "2GiB"], steps].concat();
            let output = Asked::new(BOUNDED).fit(&options, &case);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.code() == Some(0) && !text.contains("grow"), "{case:?}: {text}");
        }
    }
    let output = Asked::new(BOUNDED).fit(&["--gpu", "2GiB"], &["bounded", "0"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("grows 512.0 KiB a step"), "{text}");
}

/// Keeps what each step makes, of epochs whose last batch is smaller; or gives it back with each epoch.
const EPOCHS: &str = "import sys, torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(net.parameters())
loader = DataLoader(TensorDataset(torch.randn(int(sys.argv[2]), 1024)), batch_size=512)
kept = []
for epoch in range(5000):
    if sys.argv[1] == 'returns':
        kept.clear()
    for (batch,) in loader:
        out = net(batch.cuda())
        optimizer.zero_grad()
        out.square().mean().backward()
        optimizer.step()
        kept.append(out.detach())
";

#[test]
fn a_leak_over_short_epochs_is_no_fit() {
    test_tiers::change!("several starts of PyTorch");
    for rows in ["2000", "4200", "512"] {
        let output = Asked::new(EPOCHS).fit(&["--gpu", "L4"], &["keeps", rows]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(2), "{rows} rows: {text}");
        assert!(text.contains(" MiB a step: full after about "), "{rows} rows: {text}");
        assert!(text.contains("allocates what it keeps"), "{rows} rows: {text}");
    }
    let output = Asked::new(EPOCHS).fit(&["--gpu", "L4"], &["returns", "2000"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Keeps what each step makes, in a loop of a library that says how many steps it makes, or does not.
const LIBRARY: &str = "import sys, torch
source = '''
class State: pass
class Control: should_evaluate = should_save = should_training_stop = False
class Trainer:
    def __init__(self, most):
        self.most, self.control = most, Control()
        if sys.argv[1] == \"says\":
            self.state = State()
            self.state.max_steps = most
    def train(self, step):
        for at in range(self.most):
            step(at)
            if self.control.should_training_stop:
                break
'''
library = {'sys': sys}
exec(compile(source, '/opt/site-packages/trainers/trainer.py', 'exec'), library)
net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(net.parameters())
kept = []
def step(at):
    out = net(torch.randn(256, 1024, device='cuda'))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    kept.append(out.detach())
for fold in range(3):
    library['Trainer'](int(sys.argv[2])).train(step)
";

/// How often a library's loop runs is known from what a trainer says alone.
#[test]
fn a_leak_in_the_loop_of_a_library_is_short_only_where_it_says_so() {
    test_tiers::change!("several starts of PyTorch");
    for (kind, steps, code, phrase) in [
        ("hides", "400", 2, " MiB a step: full after about "),
        ("says", "400", 0, ", and its loops make 1200; train.py:"),
        ("says", "40000", 2, " MiB a step: full after about "),
        // It came to its end.
        ("hides", "30", 0, ", and the job makes 90; train.py:"),
    ] {
        let output = Asked::new(LIBRARY).fit(&["--gpu", "L4"], &[kind, steps]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(code) && text.contains(phrase), "{kind} {steps}: {text}");
    }
}

const REPEATS: &str = include_str!("../python/repeats.py");

/// What a branch keeps that is entered now and then adds up, and what epochs keep: the whole run needs all of it.
#[test]
fn what_a_branch_keeps_each_time_adds_up() {
    let cases = [
        ("outputs", "1000"),
        ("epochs", "12"),
        ("evaluations", "1000"),
        ("newest", "1000"),
        ("rounds", "400"),
        ("guarded", "1000"),
        ("loops", "20"),
        ("best_epochs", "20"),
    ];
    for (case, passes) in test_tiers::vary!(cases, "other branches that keep memory") {
        let (answer, code) = Asked::new(REPEATS).json(&["--gpu", "24GiB"], &[case, passes]);
        assert_eq!(code, 0, "{case}: {answer:#}");
        let whole = Gpu::new("NVIDIA X:24GiB").script(REPEATS).args([case, passes]).output().unwrap();
        let allocated = stdout(&whole).trim().parse::<u64>().unwrap();
        let found = bytes(&answer["peak"], "allocated");
        assert!((97..103).contains(&(found * 100 / allocated)), "{case}: {found} of {allocated}");
    }
}

/// What is kept more often than fit does it is no plain yes, unless it is next to nothing.
#[test]
fn a_branch_that_keeps_more_than_was_seen_is_named() {
    test_tiers::change!("starts PyTorch three times");
    let line = REPEATS.lines().position(|it| it.ends_with("# kept")).unwrap();
    let (answer, code) = Asked::new(REPEATS).json(&["--gpu", "24GiB"], &["outputs", "20000"]);
    let doubt = format!("at train.py:{line} memory still rose by 256.0 KiB in each pass, after 40 of them");
    assert!(code == 2 && answer["unknown"].to_string().contains(&doubt), "{answer:#}");
    let (answer, code) = Asked::new(REPEATS).json(&["--gpu", "24GiB"], &["losses", "20000"]);
    assert_eq!(code, 0, "{answer:#}");
    let line = REPEATS.lines().position(|it| it.ends_with("# kept by epochs")).unwrap();
    let (answer, code) = Asked::new(REPEATS).json(&["--gpu", "24GiB"], &["epochs", "300"]);
    let doubt = format!("at train.py:{line} memory still rose by 512.0 KiB in each pass, after ");
    assert!(code == 2 && answer["unknown"].to_string().contains(&doubt), "{answer:#}");
}

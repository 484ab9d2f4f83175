//! The captures of the leaking rank: a list of outputs that is never emptied.

use gpuwatch_probe::wire::{Frame, Holder, Owner, Place, Site, Sites};

/// The step of the capture: some steps after the first visible one.
pub(super) const CAPTURED: u64 = super::HEAD_START + 16;

/// Steps that it compares.
const STEPS: u64 = 8;

const FILE: &str = "/home/ada/llm/train.py";
const LIBRARY: &str = "/home/ada/venv/lib/python3.12/site-packages/torch/nn/functional.py";

/// Returns the answer at a step: one tensor of 4 MiB more after each step.
pub(super) fn sites(step: u64) -> Sites {
    let frame = |file: &str, line, function: &str| Frame { file: file.into(), line, function: function.into() };
    let place = |line, text: &str| Place { line, text: text.into(), ..Place::default() };
    let list = Holder { by: "item".into(), kind: Some("list".into()), items: Some(step), ..Holder::default() };
    let local = Holder {
        by: "local".into(),
        name: Some("outputs".into()),
        kind: Some("frame".into()),
        function: Some("train_epoch".into()),
        file: Some(FILE.into()),
        line: Some(88),
        ..Holder::default()
    };
    let site = Site {
        file: FILE.into(),
        line: 86,
        function: "train_epoch".into(),
        frames: vec![
            frame(LIBRARY, 2142, "softmax"),
            frame(FILE, 86, "train_epoch"),
            frame(FILE, 104, "main"),
            frame(FILE, 112, "<module>"),
        ],
        bytes: STEPS * (4 << 20),
        blocks: STEPS,
        sizes: vec![(4 << 20, STEPS)],
        owners: vec![Owner { shape: vec![1024, 1024], dtype: "float32".into(), grad: false, count: STEPS }],
        holders: vec![list, local],
        kept: Some(place(87, "        outputs.append(probabilities.detach())")),
        source: vec![
            place(84, "        logits = model(batch.tokens)"),
            place(85, "        loss = F.cross_entropy(logits, batch.targets)"),
            place(86, "        probabilities = F.softmax(logits, dim=-1)"),
            place(87, "        outputs.append(probabilities.detach())"),
            place(88, "        loss.backward()"),
            place(89, "        optimizer.step()"),
        ],
        ..Site::default()
    };
    Sites {
        why: "growth".into(),
        step: Some(step),
        steps: STEPS,
        sites: vec![site],
        older_blocks: Some(2_100 + step - STEPS),
        held_us: Some(9_400),
        longest_us: Some(2_700),
        holders_us: Some(84_000),
        history_bytes: Some(340 << 10),
        ..Sites::default()
    }
}

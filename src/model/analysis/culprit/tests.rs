//! Every sentence and every advice, from what a probe reports.

/// Which line keeps the blocks of a graph.
mod graphs;
/// What to do about it.
mod remedies;

use super::*;
use crate::facts::event::wire::{Holder, Owner};

const FILE: &str = "/home/ada/train.py";
const MIB: u64 = 1 << 20;

fn holder(by: &str, name: Option<&str>, kind: Option<&str>) -> Holder {
    let text = |it: &str| it.to_owned();
    Holder { by: text(by), name: name.map(text), kind: kind.map(text), ..Holder::default() }
}

fn list(items: u64) -> Holder {
    Holder { items: Some(items), ..holder("item", None, Some("list")) }
}

fn dict(items: u64, key: Option<&str>) -> Holder {
    Holder { items: Some(items), ..holder("key", key, Some("dict")) }
}

fn global(name: &str) -> Holder {
    Holder { file: Some(FILE.to_owned()), ..holder("global", Some(name), Some("module")) }
}

fn within(by: &str, name: Option<&str>, function: &str) -> Holder {
    Holder { function: Some(function.to_owned()), line: Some(12), ..holder(by, name, None) }
}

fn owner(shape: &[u64], grad: bool) -> Owner {
    Owner { shape: shape.to_vec(), dtype: "float32".into(), grad, count: 8 }
}

fn kept(line: u64, text: &str) -> Place {
    Place { line, text: text.into(), ..Place::default() }
}

/// Two blocks of 4 MiB a step over eight steps, from line 40.
fn site() -> Site {
    Site {
        file: FILE.into(),
        line: 40,
        function: "main".into(),
        bytes: 64 * MIB,
        blocks: 16,
        owners: vec![owner(&[64, 1000], false)],
        ..Site::default()
    }
}

fn captured(sites: Vec<Site>) -> Sites {
    Sites { why: "asked".into(), steps: 8, step: Some(100), sites, ..Sites::default() }
}

fn described(site: Site) -> (String, String) {
    let found = account(&captured(vec![site]), 0);
    let [it] = found.culprits.as_slice() else { panic!("{found:?}") };
    (it.sentence.clone(), it.advice.clone())
}

#[test]
fn a_line_is_named_by_its_file_or_its_cell() {
    let place = |file: &str| Spot { file: file.into(), line: 9, ..Spot::default() }.place();
    assert_eq!([place("/home/ada/train.py"), place("In [2]")], ["train.py:9", "In [2], line 9"]);
}

/// The job ended before the probe could search for the holder.
#[test]
fn an_unknown_holder_is_not_reported_as_a_graph() {
    let (sentence, advice) = described(Site { owners: Vec::new(), holders: Vec::new(), autograd: false, ..site() });
    assert!(sentence.ends_with(", held by something that was not found"), "{sentence}");
    assert!(advice.ends_with("bound or clear what holds them"), "{advice}");
}

#[test]
fn the_example_is_described_completely() {
    let losses = Site {
        bytes: 8 * 512,
        blocks: 8,
        owners: vec![owner(&[], true)],
        holders: vec![list(1204), global("losses")],
        kept: Some(kept(41, "losses.append(loss)")),
        ..site()
    };
    // Its graph: two blocks with each loss, which no Python object owns.
    let graph = Site { line: 12, function: "forward".into(), autograd: true, owners: Vec::new(), ..site() };
    let found = account(&captured(vec![graph.clone(), losses.clone()]), 0);
    let [it] = found.culprits.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        it.summary(),
        "train.py:41 `losses.append(loss)` keeps 3 blocks a step (8.00 MiB), 2 of them of its graph (8.00 MiB), \
         allocated at train.py:40, through list `losses` (1,204 items), global of train.py: append `loss.item()`"
    );
    assert_eq!((it.blocks_per_step, it.graph.map(|it| it.1)), (3.0, Some(2.0)));
    // At another pace, or with something that has no graph, it is a separate culprit.
    let slower = Site { blocks: 5, ..graph.clone() };
    assert_eq!(account(&captured(vec![slower, losses.clone()]), 0).culprits.len(), 2);
    let plain = Site { owners: vec![owner(&[], false)], ..losses };
    let found = account(&captured(vec![graph, plain]), 0);
    let [graph, _] = found.culprits.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        graph.summary(),
        "train.py:40 in main() allocates 2 blocks a step (8.00 MiB) that stay, held by autograd's graph alone: drop \
         retain_graph and create_graph, and detach() whatever outlives the step"
            .replace("train.py:40 in main()", "train.py:12 in forward()")
    );
}

#[test]
fn one_tensor_that_grows_is_made_at_its_full_size() {
    let holders = vec![within("local", Some("seen"), "main")];
    let source = vec![Place { line: 40, text: "    seen = torch.cat([seen, out])".into(), ..Place::default() }];
    let (sentence, advice) = described(Site { blocks: 0, bytes: 32 * MIB, holders, source, ..site() });
    assert_eq!(
        sentence,
        "train.py:40 `seen = torch.cat([seen, out])` replaces a tensor by one that is 4.00 MiB larger each step, in local \
         `seen` of main()"
    );
    assert!(advice.starts_with("allocate it once at its full size"), "{advice}");
}

#[test]
fn a_pace_is_shown_as_it_was_counted() {
    let pace = |blocks: u64| {
        let (sentence, _) = described(Site { blocks, ..site() });
        sentence.split(" allocates ").nth(1).unwrap().split(" that stay").next().unwrap().to_owned()
    };
    assert_eq!(pace(8), "1 block a step (8.00 MiB)");
    assert_eq!(pace(8000), "1,000 blocks a step (8.00 MiB)");
    assert_eq!(pace(20), "2.5 blocks a step (8.00 MiB)");
    assert_eq!(pace(1), "1 block in 8 steps (8.00 MiB a step)");
    assert_eq!(pace(3), "3 blocks in 8 steps (8.00 MiB a step)");
}

#[test]
fn blocks_kept_by_one_line_are_one_culprit() {
    let pair = |line: u64| Site {
        line,
        kept: Some(kept(44, "pairs.append((x, y))")),
        holders: vec![list(5), global("pairs")],
        ..site()
    };
    let found = account(&captured(vec![pair(40), pair(41), Site { line: 50, ..site() }]), 0);
    assert_eq!(found.culprits.len(), 2, "{found:?}");
    let (it, other) = (&found.culprits[0], &found.culprits[1]);
    assert!(
        it.sentence.contains("keeps 4 blocks a step (16.00 MiB), allocated at train.py:40, train.py:41, through list"),
        "{}",
        it.sentence
    );
    assert_eq!((it.leading().line, other.leading().line), (44, 50));
    // The same holds for what one tensor's graph keeps.
    let holders = vec![holder("graph", None, Some("Tensor")), within("local", Some("total"), "main")];
    let graph = |line| Site { line, autograd: true, owners: Vec::new(), holders: holders.clone(), ..site() };
    let found = account(&captured(vec![graph(12), graph(13)]), 0);
    let [it] = found.culprits.as_slice() else { panic!("{found:?}") };
    let whole = "train.py:12 in main() allocates 4 blocks a step (16.00 MiB) that stay, together with train.py:13, held by \
                 the graph of a tensor, held by local `total` of main()";
    assert_eq!(it.sentence, whole);
}

/// The latest blocks of a graph belong to variables of the step, which do not hold the others.
#[test]
fn a_graph_s_blocks_are_not_attributed_to_the_last_step() {
    let last = |line, name| Site {
        line,
        autograd: true,
        owners: vec![Owner { count: 1, ..owner(&[64], true) }],
        holders: vec![within("local", Some(name), "main")],
        kept: Some(kept(line, "x = batch  # of this step")),
        ..site()
    };
    let found = account(
        &captured(vec![last(12, "x"), last(13, "y"), Site { autograd: true, line: 14, owners: Vec::new(), ..site() }]),
        0,
    );
    let [it] = found.culprits.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        it.sentence,
        "train.py:12 in main() allocates 6 blocks a step (24.00 MiB) that stay, together with train.py:13, train.py:14, \
         held by autograd's graph alone"
    );
    assert!(it.advice.ends_with("detach() whatever outlives the step"), "{}", it.advice);
    let all = Site { owners: vec![Owner { count: 12, ..owner(&[64], true) }], ..last(12, "x") };
    assert!(described(all).0.starts_with("train.py:12 `x = batch` keeps 2 blocks a step"));
}

#[test]
fn notes_report_that_nothing_grows_and_what_was_missed() {
    let older = Sites { older_blocks: Some(96), older_bytes: Some(192 * MIB), ..captured(Vec::new()) };
    let words = account(&older, 0);
    assert!(words.culprits.is_empty());
    let lines = [
        "in 8 steps no line allocated more than was freed again",
        "96 blocks (192.0 MiB) predate the capture; their origin is unknown",
    ];
    assert_eq!(words.notes, lines);
    let stackless = Site { file: String::new(), line: 0, function: String::new(), owners: Vec::new(), ..site() };
    let other = Site { device: 1, ..site() };
    let sites = Sites {
        trouble: Some("the search\u{202e} ended early".into()),
        collected_bytes: Some(0),
        held_us: Some(9000),
        longest_us: Some(3000),
        holders_us: Some(120_000),
        history_bytes: Some(70_000),
        ..captured(vec![stackless, other])
    };
    let found = account(&sites, 0);
    assert!(found.culprits.is_empty(), "{found:?}");
    let lines = [
        "in 8 steps 16 blocks (64.00 MiB) came that no Python line allocated: backward's own threads, or a library",
        "a run of the collector freed nothing: it is held, and no cycle",
        "the capture is incomplete: the search\\u{202e} ended early",
        "paused the job for 129 ms in total (longest pause 120 ms), 120 ms of it for the holders; the stacks took about 68.36 KiB",
    ];
    assert_eq!(found.notes, lines);
    assert_eq!(account(&sites, 1).culprits.len(), 1, "each device has its own");
    assert_eq!(cost(&Sites::default()), None);
}

#[test]
fn at_an_error_live_memory_is_listed_by_line() {
    let live_at = |line, blocks, bytes| Site { line, blocks, bytes, ..site() };
    let stackless = Site { file: String::new(), ..live_at(0, 2, 9 * MIB) };
    let mut sites =
        vec![live_at(40, 96, 1229 * MIB), stackless, live_at(50, 1, MIB), live_at(51, 2, 512), live_at(52, 1, 512)];
    sites.extend(vec![Site { device: 1, ..site() }]);
    let at_error = Sites { steps: 0, why: "oom".into(), older_bytes: Some(MIB), ..captured(sites) };
    let words = "live blocks, by line: train.py:40 1.20 GiB in 96 blocks, train.py:50 1.00 MiB in 1 block, train.py:51 \
                 512 B in 2 blocks, train.py:52 512 B in 1 block, 1.00 MiB that predate the capture";
    assert_eq!(live(&at_error, 0).as_deref(), Some(words));
    assert_eq!(live(&at_error, 7), None);
    assert!(account(&at_error, 0).culprits.is_empty(), "live memory at one moment does not show growth");
}

/// The probe looks for the holders of 16 blocks of a group at most.
#[test]
fn at_an_error_the_holder_of_a_sample_is_not_said_to_hold_all() {
    let list = Holder { by: "item".into(), kind: Some("list".into()), items: Some(9), ..Holder::default() };
    let group = |blocks| {
        let site = Site { file: String::new(), holders: vec![list.clone()], blocks, bytes: blocks * MIB, ..site() };
        held(&captured(vec![Site { sizes: vec![(MIB, blocks)], ..site }]), 0).join("")
    };
    let starts = |blocks, words: &str| assert!(group(blocks).starts_with(words), "{}", group(blocks));
    starts(1, "1.00 MiB in 1 block of 1.00 MiB is held by list");
    starts(16, "16.00 MiB in 16 blocks of 1.00 MiB are held by list");
    starts(17, "17.00 MiB in 17 blocks of 1.00 MiB: a sample of them is held by list");
}

#[test]
fn text_from_outside_is_escaped_and_bounded() {
    let nasty = "\u{1b}[2J<b>\u{202e}`".repeat(200);
    let text = || Some(nasty.clone());
    let holder = |by: &str| Holder {
        by: by.into(),
        name: text(),
        kind: text(),
        function: text(),
        file: text(),
        ..Holder::default()
    };
    let holders =
        ["item", "key", "attribute", "local", "cell", "class", "generator", "traceback", "cycle", &nasty].map(holder);
    let place = || Place { file: nasty.clone(), line: u64::MAX, text: nasty.clone(), library: false };
    let site = Site {
        file: nasty.clone(),
        function: nasty.clone(),
        holders: holders.iter().cycle().take(200).cloned().collect(),
        kept: Some(place()),
        source: vec![place(); 3],
        frames: vec![Frame { file: nasty.clone(), line: 1, function: nasty.clone() }],
        ..site()
    };
    let sites = Sites { trouble: text(), ..captured(vec![site]) };
    let found = account(&sites, 0);
    let it = &found.culprits[0];
    let all = [&it.sentence, &it.advice, &it.leading().place()].map(Clone::clone);
    for words in all.iter().chain(&it.holders).chain(&found.notes) {
        assert!(!words.chars().any(|c| c.is_control() || c == '\u{202e}'), "{words:?}");
        assert!(words.len() < 24_000, "{}", words.len());
    }
    assert!(it.source.iter().chain(&it.frames).all(|it| it.file.raw().chars().count() <= TEXT));
    assert!(live(&Sites { steps: 0, ..sites }, 0).is_some_and(|it| !it.contains('\u{202e}')));
}

#[test]
fn a_line_of_an_installed_package_is_not_the_users() {
    let at = |file: &str| Spot { file: file.into(), line: 1, ..Spot::default() };
    for file in [
        "/v/lib/python3.11/site-packages/torch/nn/x.py",
        "/usr/lib/python3.9/queue.py",
        "<frozen runpy>",
        "/usr/lib/python3/dist-packages/a.py",
    ] {
        assert!(at(file).is_library(), "{file}");
    }
    for file in [FILE, "/home/ada/lib/python/train.py", "<stdin>", "lib/pythonic/x.py", ""] {
        assert!(!at(file).is_library(), "{file}");
    }
    assert_eq!(
        (at(FILE).place(), at("<stdin>").place(), at("x/").place()),
        ("train.py:1".into(), "<stdin>:1".into(), "x/:1".into())
    );
}

/// The cause of the largest culprit.
fn cause(sites: Vec<Site>) -> &'static str {
    account(&captured(sites), 0).culprits.first().unwrap().cause.id()
}

fn in_a_list(owners: Vec<Owner>) -> Site {
    Site { owners, holders: vec![list(9), global("kept")], kept: Some(kept(41, "kept.append(it)")), ..site() }
}

#[test]
fn tensors_kept_together_are_not_a_graph() {
    let pair = || {
        let act = Site { line: 38, bytes: 8 << 10, ..in_a_list(vec![owner(&[64], false)]) };
        vec![in_a_list(vec![owner(&[64, 1000], false)]), act]
    };
    assert_eq!(cause(pair()), "tensors-retained");
    let clones = Site { blocks: 8 * 140, ..in_a_list(vec![owner(&[64, 64], false), owner(&[64], false)]) };
    assert_eq!(cause(vec![clones]), "tensors-retained");
}

#[test]
fn a_grad_fn_is_a_graph_where_blocks_of_the_graph_grow_with_it() {
    let with_grad = || in_a_list(vec![owner(&[64, 1000], true)]);
    let saved = || Site { line: 12, autograd: true, owners: Vec::new(), ..site() };
    assert_eq!(cause(vec![with_grad(), saved()]), "graph-retained");
    assert_eq!(cause(vec![saved()]), "graph-retained", "nobody else holds it");
    let by_graph = Site { holders: vec![holder("graph", None, None), global("total")], ..saved() };
    assert_eq!(cause(vec![by_graph]), "graph-retained");
    assert_eq!(cause(vec![with_grad()]), "tensors-retained", "backward has freed what its graph held");
    // Of a frame that an error keeps, the inputs are found, and what the graph of its outputs holds.
    let held = vec![within("traceback", Some("x"), "run"), list(6), global("errors")];
    let input = Site { blocks: 2, holders: held, ..in_a_list(vec![owner(&[64], false)]) };
    let all = account(&captured(vec![Site { blocks: 32, ..saved() }, input]), 0).culprits;
    assert!(all.len() == 1 && all[0].advice.contains("`del` the error"), "{all:#?}");
}

#[test]
fn single_numbers_are_scalars_and_four_are_not() {
    let of = |shape: &[u64]| cause(vec![Site { bytes: 8 * 512, blocks: 8, ..in_a_list(vec![owner(shape, false)]) }]);
    assert_eq!((of(&[]), of(&[1, 1]), of(&[4])), ("scalars-retained", "scalars-retained", "tensors-retained"));
}

#[test]
fn a_tensor_that_is_made_again_grows_and_a_cycle_is_a_cycle() {
    assert_eq!(cause(vec![Site { blocks: 0, ..in_a_list(vec![owner(&[64, 1000], true)]) }]), "growing-tensor");
    let cycle = holder("cycle", Some("owner"), Some("Node"));
    assert_eq!(cause(vec![Site { holders: vec![cycle], ..site() }]), "reference-cycle");
}

type Case = (Vec<Holder>, &'static str, &'static str);

fn containers() -> Vec<Case> {
    let tuple = Holder { items: Some(1), ..holder("item", None, Some("tuple")) };
    let attribute = [list(7), holder("attribute", Some("kept"), Some("Trainer")), within("local", Some("it"), "fit")];
    vec![
        (
            vec![list(5), holder("cell", None, Some("cell")), tuple],
            "list (5 items), held by a closure, held by something that was not found",
            "bound or clear what holds them",
        ),
        (
            vec![list(1204), global("outputs")],
            "list `outputs` (1,204 items), global of train.py",
            "clear `outputs` each",
        ),
        (
            vec![list(1), within("local", Some("seen"), "main")],
            "list `seen` (1 item), local of main()",
            "bound or clear `seen`",
        ),
        (vec![dict(12, None), global("cache")], "dict `cache` (12 items), global of train.py", "bound `cache` (remove"),
        (
            attribute.to_vec(),
            "list `kept` (7 items), attribute of Trainer, held by local `it` of fit()",
            "bound or clear `kept`",
        ),
        (
            vec![list(5), within("local", Some("seen"), "_call_callback_hooks")],
            "list `seen` (5 items), local of _call_callback_hooks()",
            "bound or clear `seen`",
        ),
        (
            vec![list(3), within("cell", Some("seen"), "hook")],
            "list `seen` (3 items), closure variable of hook()",
            "by its handle",
        ),
        (vec![within("cell", Some("last"), "make")], "closure variable `last` of make()", "bound or clear `last`"),
        (
            vec![holder("class", Some("items"), Some("Cache"))],
            "class attribute `Cache.items`",
            "clear `items` each epoch",
        ),
        (
            vec![list(2), holder("class", Some("items"), Some("Cache"))],
            "list `items` (2 items), class attribute of Cache",
            "clear `items`",
        ),
        (
            vec![within("traceback", None, "fail")],
            "the frame of fail() that a traceback keeps",
            "leave the except block",
        ),
        (vec![within("traceback", Some("out"), "fail")], "local `out` in the frame of fail()", "`del` the error"),
        (vec![within("generator", None, "batches")], "generator batches() suspended at line 12", "close() it"),
        (vec![holder("autocast", None, None)], "autocast, which keeps what it casts until it is left", "once per step"),
    ]
}

fn others() -> Vec<Case> {
    let graph = Holder { items: Some(4000), ..holder("graph", None, Some("Tensor")) };
    let metric = [holder("attribute", Some("cache"), Some("Metric")), within("local", Some("metric"), "main")];
    vec![
        (
            vec![graph, within("local", Some("total"), "train")],
            "the graph (4,000 nodes) of a tensor, held by local `total` of train()",
            "`.detach()` go into `total`",
        ),
        (metric.to_vec(), "attribute `cache` of Metric, held by local `metric` of main()", "call reset()"),
        (
            vec![holder("attribute", Some("value"), Some("Node")), holder("cycle", Some("parent"), Some("Node"))],
            "attribute `value` of Node, held by a reference cycle of Node through `parent` that only the collector frees",
            "break the cycle",
        ),
        (
            vec![dict(3, Some("out")), list(9)],
            "key `out` of dict (3 items), held by list (9 items), held by something that was not found",
            "bound or clear what holds them",
        ),
        (
            vec![dict(1, Some("out")), dict(9, None), within("local", Some("outputs"), "main")],
            "key `out` of dict (1 item), held by dict `outputs` (9 items), local of main()",
            "bound `outputs` (remove",
        ),
        (
            vec![holder("slot", Some("x"), Some("Odd"))],
            "attribute `x` of Odd, held by something that was not found",
            "bound or clear `x`",
        ),
        (
            vec![list(5), within("cell", Some("seen"), "watch"), holder("hook", Some("1._forward_hooks"), Some("Net"))],
            "list `seen` (5 items), closure variable of watch(), held by hook `1._forward_hooks` of Net",
            "by its handle",
        ),
        (
            vec![list(5), within("default", Some("seen"), "collect")],
            "list `seen` (5 items), default argument of collect()",
            "default `seen` to None",
        ),
        (
            vec![
                Holder { items: Some(5), ..holder("item", None, Some("lru_cache")) },
                within("local", Some("made"), "main"),
            ],
            "lru_cache `made` (5 items), local of main()",
            "a maxsize",
        ),
        (
            vec![
                list(5),
                holder("attribute", Some("outputs"), Some("Trainer")),
                within("attribute", Some("__self__"), "fit"),
            ],
            "list `outputs` (5 items), attribute of Trainer, held by bound method fit()",
            "bound or clear `outputs`",
        ),
        (
            vec![
                Holder { function: Some("fail".into()), ..holder("traceback", Some("out"), Some("ValueError")) },
                list(5),
                global("ERRORS"),
            ],
            "local `out` in the frame of fail() that the traceback of ValueError keeps, held by \
             list `ERRORS` (5 items), global of train.py",
            "leave the except block",
        ),
    ]
}

/// What networks and their optimizers hold, and what only looks like it.
fn networks() -> Vec<Case> {
    vec![
        (
            vec![dict(9, Some("out")), global("metrics")],
            "key `out` of dict `metrics` (9 items), global of train.py",
            "bound `metrics` (remove",
        ),
        (
            vec![holder("attribute", Some("0.weight"), Some("Net")), list(9), within("local", Some("copies"), "main")],
            "attribute `0.weight` of Net, held by list `copies` (9 items), local of main()",
            "bound or clear `copies`",
        ),
        (
            vec![holder("attribute", Some("0.weight"), Some("Net")), list(2), within("local", Some("models"), "main")],
            "attribute `0.weight` of Net, held by list `models` (2 items), local of main()",
            "take out of `Net` what was added",
        ),
        (
            vec![holder("attribute", Some("memory.slot_*"), Some("Net")), within("local", Some("net"), "main")],
            "attribute `memory.slot_*` of Net, held by local `net` of main()",
            "each step sets another `slot_*`",
        ),
        (
            vec![
                Holder { items: Some(26), ..holder("key", None, Some("defaultdict")) },
                holder("attribute", Some("state"), Some("Adam")),
                within("local", Some("opt"), "main"),
            ],
            "defaultdict `state` (26 items), attribute of Adam, held by local `opt` of main()",
            "give `opt` each parameter once",
        ),
        (
            vec![list(9), holder("attribute", Some("block.cache"), Some("Net")), global("net")],
            "list `block.cache` (9 items), attribute of Net, held by global `net` of train.py",
            "clear `block.cache`",
        ),
        (
            vec![
                list(9),
                within("default", Some("seen"), "act"),
                holder("attribute", Some("block.act"), Some("Net")),
                global("net"),
            ],
            "list `seen` (9 items), default argument of act(), held by attribute `block.act` of Net, held by global `net` \
             of train.py",
            "default `seen` to None and create it in the body",
        ),
    ]
}

fn without_a_name() -> Vec<Case> {
    let of_weak_keys = |kind: &str| vec![dict(9, None), holder("attribute", Some("data"), Some(kind)), global("memo")];
    let tuple = Holder { items: Some(1), ..holder("item", None, Some("tuple")) };
    vec![
        (
            vec![dict(9, None), within("default", Some("cache"), "look")],
            "dict `cache` (9 items), default argument of look()",
            "default `cache` to None and create it in the body, or bound it",
        ),
        (
            of_weak_keys("WeakKeyDictionary"),
            "dict `data` (9 items), attribute of WeakKeyDictionary, held by global `memo` of train.py",
            "let go of the keys of `memo`",
        ),
        (
            of_weak_keys("UserDict"),
            "dict `data` (9 items), attribute of UserDict, held by global `memo` of train.py",
            "bound `memo` (remove",
        ),
        (
            vec![tuple, holder("atexit", None, None)],
            "tuple (1 item), held by what atexit has registered",
            "register one function with atexit, once",
        ),
    ]
}

#[test]
fn every_way_to_hold_has_its_text_and_its_remedy() {
    for (holders, path, remedy) in [containers(), others(), networks(), without_a_name()].concat() {
        let (sentence, advice) = described(Site { holders: holders.clone(), ..site() });
        let whole = format!("train.py:40 in main() allocates 2 blocks a step (8.00 MiB) that stay, held by {path}");
        assert!(sentence.starts_with(&whole), "{sentence}\n{whole}");
        assert!(advice.contains(remedy), "{advice}\n{remedy}");
        let (sentence, _) = described(Site { holders, kept: Some(kept(41, "  keep(out)")), ..site() });
        let whole = "train.py:41 `keep(out)` keeps 2 blocks a step (8.00 MiB), allocated at train.py:40, through ";
        assert!(sentence.starts_with(&format!("{whole}{path}")), "{sentence}");
    }
}

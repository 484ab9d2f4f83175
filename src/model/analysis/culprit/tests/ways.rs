//! Every way to hold a tensor: its description and the remedy.

use super::*;

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

#[test]
fn every_way_to_hold_has_its_text_and_its_remedy() {
    for (holders, path, remedy) in containers().into_iter().chain(others()) {
        let (sentence, advice) = described(Site { holders: holders.clone(), ..site() });
        let whole = format!("train.py:40 in main() allocates 2 blocks a step (8.00 MiB) that stay, held by {path}");
        assert!(sentence.starts_with(&whole), "{sentence}\n{whole}");
        assert!(advice.contains(remedy), "{advice}\n{remedy}");
        let (sentence, _) = described(Site { holders, kept: Some(kept(41, "  keep(out)")), ..site() });
        let whole = "train.py:41 `keep(out)` keeps 2 blocks a step (8.00 MiB), allocated at train.py:40, through ";
        assert!(sentence.starts_with(&format!("{whole}{path}")), "{sentence}");
    }
}

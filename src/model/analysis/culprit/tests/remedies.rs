//! The remedies that go with the sentences.

use super::*;

#[test]
fn the_kept_value_decides_the_advice() {
    let held = |owner: Owner, text: &str| {
        let saved = Site { line: 12, autograd: true, owners: Vec::new(), ..site() };
        let kept =
            Site { owners: vec![owner], holders: vec![list(9), global("kept")], kept: Some(kept(41, text)), ..site() };
        // The largest comes first.
        let kept = Site { bytes: 2 * kept.bytes, ..kept };
        account(&captured(vec![kept, saved]), 0).culprits[0].advice.clone()
    };
    let cases = [
        (owner(&[], true), "kept.append(loss)", "append `loss.item()`"),
        (owner(&[1, 1], true), "kept.append(loss / 2)", "keep its `.item()`"),
        (
            owner(&[8, 10], true),
            "kept.append(out)",
            "append `out.detach().cpu()`, or the numbers of it that are needed",
        ),
        (owner(&[8, 10], true), "kept += [out]", "keep its `.detach().cpu()`, or the numbers of it that are needed"),
        (
            owner(&[8, 10], false),
            "kept.append(out)",
            "clear `kept` each epoch, bound it, or copy what is needed to the host (`.cpu()`)",
        ),
    ];
    for (owner, text, advice) in cases {
        assert_eq!(held(owner, text), advice);
    }
    let after_backward = Site {
        owners: vec![owner(&[8, 10], true)],
        holders: vec![list(9), global("kept")],
        kept: Some(kept(41, "kept.append(out.detach())")),
        ..site()
    };
    let advice = "clear `kept` each epoch, bound it, or copy what is needed to the host (`.detach().cpu()`)";
    assert_eq!(described(after_backward).1, advice, "its graph is gone, and detaching leaves its memory");
    let cache = Site { owners: vec![owner(&[], true)], holders: vec![dict(9, None), global("cache")], ..site() };
    let advice = described(cache).1;
    assert_eq!(advice, "bound `cache` (remove the oldest entry), and keep its `.item()`");
    let retained = Site {
        source: vec![Place { line: 40, text: "loss.backward(retain_graph=True)".into(), ..Place::default() }],
        ..site()
    };
    let (sentence, advice) = described(retained);
    assert!(sentence.starts_with("train.py:40 `loss.backward(retain_graph=True)` allocates 2 blocks"), "{sentence}");
    assert!(advice.starts_with("drop retain_graph"), "{advice}");
    // Beside such a line, a buffer of plain tensors is what it is.
    let beside = Site {
        owners: vec![owner(&[8, 10], false)],
        holders: vec![list(9), global("replay")],
        source: vec![Place { line: 41, text: "loss.backward(retain_graph=True)".into(), ..Place::default() }],
        ..site()
    };
    assert!(described(beside).1.starts_with("clear `replay` each epoch"));
    // A dict with the tensor is appended, and has no `item()`.
    let record = Site {
        owners: vec![owner(&[], true)],
        holders: vec![dict(3, None), list(9), global("rows")],
        kept: Some(kept(41, "rows.append(kw)")),
        ..site()
    };
    let advice = described(record).1;
    assert!(!advice.contains("kw") && advice.contains("keep its `.item()`"), "{advice}");
    let hook = described(Site { function: "save_hook".into(), ..site() });
    assert!(
        hook.1.starts_with("remove the hook") && hook.0.ends_with("held by something that was not found"),
        "{hook:?}"
    );
}

#[test]
fn a_remedy_names_what_the_program_can_change() {
    let advice = |holders: Vec<Holder>| described(Site { holders, ..site() }).1;
    // A chain of objects, of which a variable has the last.
    let link = Holder { items: Some(9), ..holder("attribute", Some("before"), Some("Node")) };
    let state = holder("attribute", Some("state"), Some("Node"));
    let (sentence, remedy) = described(Site { holders: vec![state, link, global("node")], ..site() });
    assert!(
        sentence.ends_with("held by attribute `before` of Node (9 links), held by global `node` of train.py"),
        "{sentence}"
    );
    assert!(remedy.starts_with("set `before` to None where the earlier ones are done with"), "{remedy}");
    // What belongs to a thread lies in containers of Python's own.
    let of_thread =
        vec![list(9), dict(1, Some("stack")), dict(1, None), holder("other", None, Some("_local")), global("_local")];
    assert!(advice(of_thread).starts_with("clear `stack` each epoch"));
    let registry = vec![
        holder("item", Some("args"), Some("tuple")),
        dict(9, None),
        holder("class", Some("_registry"), Some("finalize")),
    ];
    assert!(advice(registry).starts_with("give weakref.finalize what holds no tensor"));
    // The graph of what a dict or a tuple has under a name.
    let graph = |inner: Holder, outer: &str| {
        vec![holder("graph", None, Some("Tensor")), inner, holder("attribute", Some(outer), Some("A"))]
    };
    assert!(advice(graph(dict(4, Some("2.bias")), "shadow")).contains(" go into `shadow`: its graph"));
    assert!(advice(graph(holder("item", None, Some("tuple")), "state")).contains(" go into `state`: its graph"));
    // A list within what an optimizer has is not an entry for a parameter.
    let in_optimizer = |inner: Vec<Holder>, kind: &str, name: &str| {
        let outer = Holder { kind: Some(kind.into()), ..dict(4, None) };
        let owner = [outer, holder("attribute", Some(name), Some("Adam")), global("optimizer")];
        advice(inner.into_iter().chain(owner).collect())
    };
    let history = vec![list(11), dict(4, Some("history"))];
    assert!(in_optimizer(history, "defaultdict", "state").starts_with("clear `history` each epoch"));
    let seen = vec![list(11), dict(13, Some("seen"))];
    assert!(in_optimizer(seen, "list", "param_groups").starts_with("clear `seen` each epoch"));
    assert!(in_optimizer(vec![dict(3, Some("exp_avg"))], "defaultdict", "state").starts_with("give `optimizer` each"));
    // A group for each step, and what a cached function was called with.
    let in_groups = vec![list(1), dict(10, Some("params")), list(33)];
    let of_it = [holder("attribute", Some("param_groups"), Some("SGD")), global("optimizer")];
    assert!(advice(in_groups.into_iter().chain(of_it).collect()).starts_with("give `optimizer` each parameter once"));
    let cached = Holder { name: Some("masks".into()), ..holder("item", None, Some("lru_cache")) };
    let of_arguments = vec![holder("item", None, Some("tuple")), dict(12, None), cached, global("masks")];
    assert!(advice(of_arguments).starts_with("give the lru_cache a maxsize"));
    // What wraps a container has a name for it that the program does not use.
    for (inner, kind) in [("data", "UserList"), ("queue", "Queue")] {
        let wrapped = vec![list(9), holder("attribute", Some(inner), Some(kind)), global("inbox")];
        assert!(advice(wrapped).starts_with("clear `inbox` each epoch"));
    }
    let metric = vec![list(9), holder("attribute", Some("data"), Some("UserList")), global("metrics")];
    assert!(advice(metric).starts_with("clear `metrics` each epoch"));
    let waits = holder("generator", Some("x"), Some("coroutine"));
    assert!(advice(vec![waits, list(9), global("tasks")]).starts_with("await it, or cancel its task"));
    // A penalty on gradients needs create_graph.
    let penalty = Site {
        owners: vec![owner(&[], true)],
        holders: vec![list(9), global("norms")],
        kept: Some(kept(41, "norms.append(grad.norm())  # create_graph")),
        ..site()
    };
    assert_eq!(described(penalty).1, "keep its `.item()`");
}

//! Every reason against attaching, one by one.

use super::*;

fn python(minor: u32) -> Python {
    Python {
        version: Some((3, minor)),
        file: "/usr/lib/libpython3.so".to_owned(),
        has_symbols: true,
        is_current: true,
        runs: Some(true),
        takes_scripts: Some(true),
        ..Python::default()
    }
}

/// A job of this user's that can be attached to.
fn job() -> Facts {
    Facts {
        pid: 42,
        parent: 7,
        state: Some('R'),
        user: (1000, "ada".to_owned()),
        own_user: 1000,
        is_allowed: true,
        is_native: true,
        python: Some(python(11)),
        has_torch: true,
        has_device: true,
        glibc: Some(36),
        ..Facts::default()
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn python_3_9_to_3_13_queue_a_call_and_newer_ones_take_a_script() {
    for minor in 9..=15 {
        let facts = Facts { python: Some(python(minor)), ..job() };
        let transport = if minor < 14 { Transport::PendingCall } else { Transport::RemoteScript };
        assert_eq!(plan(&facts).unwrap().transport, transport, "3.{minor}");
    }
    let printed = plan(&Facts { is_apart: true, ..job() }).unwrap().to_string();
    assert!(printed.contains("/tmp") && printed.contains("ptrace"), "{printed}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn each_reason_against_it_is_one_sentence_with_a_next_step() {
    let with = |python: Python| Facts { python: Some(python), ..job() };
    let denied = Facts { is_allowed: false, ..job() };
    let cases: Vec<(Facts, &str)> = vec![
        (Facts { state: None, ..job() }, "there is no process 42"),
        (Facts { state: Some('Z'), ..job() }, "process 42 has ended: it is listed until its parent waits for it"),
        (Facts { state: Some('X'), ..job() }, "is ending"),
        (Facts { state: Some('T'), ..job() }, "kill -CONT 42"),
        (Facts { state: Some('t'), tracer: 9, ..job() }, "traced by process 9"),
        (Facts { name: "pt_data_worker".to_owned(), ..job() }, "gpuwatch attach 7"),
        (Facts { own_user: 1001, ..denied.clone() }, "only ada and root"),
        (Facts { scope: Some(1), ..denied.clone() }, "sudo gpuwatch attach 42"),
        (Facts { scope: Some(3), ..denied.clone() }, "gpuwatch run"),
        (Facts { own_user: 0, ..denied.clone() }, "SYS_PTRACE"),
        (denied, "sudo gpuwatch attach 42"),
        (Facts { is_native: false, ..job() }, "another architecture"),
        (Facts { python: None, ..job() }, "does not run CPython"),
        (with(python(8)), "needs Python 3.9"),
        (with(Python { version: None, ..python(11) }), "unknown"),
        (with(Python { is_free_threaded: true, ..python(13) }), "global lock"),
        (with(Python { has_symbols: false, ..python(11) }), "does not export"),
        (with(Python { is_current: false, ..python(11) }), "was replaced"),
        (with(Python { runs: Some(false), ..python(9) }), "process 42 is ending: its Python shuts down"),
        (with(Python { runs: Some(false), takes_scripts: None, ..python(14) }), "is ending: its Python shuts down"),
        (with(Python { runs: None, ..python(11) }), "does not show whether it runs"),
        (with(Python { takes_scripts: Some(false), ..python(14) }), "PYTHON_DISABLE_REMOTE_DEBUG"),
        (with(Python { takes_scripts: None, ..python(14) }), "does not say"),
        (Facts { seccomp: 1, ..job() }, "seccomp"),
        (Facts { has_shadow_stack: true, ..job() }, "shadow stack"),
        (Facts { has_torch: false, ..job() }, "has not loaded PyTorch"),
        (Facts { has_device: false, ..job() }, "has not initialised a GPU"),
        (Facts { has_device: false, children: vec![43, 44], ..job() }, "gpuwatch attach 43 44"),
        (Facts { glibc: Some(17), ..job() }, "glibc 2.17"),
        (Facts { glibc: None, ..job() }, "without glibc"),
        (Facts { is_probed: true, ..job() }, "has a probe already"),
    ];
    for (facts, part) in cases {
        let printed = plan(&facts).unwrap_err();
        assert!(printed.contains(part), "{part}: {printed}");
        assert!(!printed.contains('\n') && !printed.ends_with('.'), "{printed}");
    }
}

#[test]
fn a_scope_of_1_is_not_a_reason_if_the_kernel_allows_it() {
    let facts = Facts { scope: Some(1), is_capable: true, ..job() };
    assert!(permitted(&facts).is_ok());
}

/// The machines of the suite have no Yama, so the decision is tested without a kernel.
#[test]
fn the_permission_to_attach_depends_on_scope_and_capability() {
    let refused = |scope, is_root, is_capable| permission(scope, is_root, is_capable).unwrap_err().0;
    assert!(permission(None, false, false).unwrap().contains("your own jobs"));
    assert!(permission(Some(0), false, false).unwrap().contains("your own jobs"));
    assert!(refused(Some(1), false, false).contains("only root"));
    assert!(permission(Some(1), false, true).unwrap().contains("every user"));
    assert!(refused(Some(2), false, false).contains("ptrace_scope is 2"));
    assert!(refused(Some(3), true, true).contains("no running job"));
    assert!(refused(None, true, false).contains("SYS_PTRACE"));
    assert!(permission(Some(1), true, true).is_ok());
}

#[test]
fn only_a_probe_that_is_there_can_be_ended() {
    assert!(plan_end(&job()).unwrap_err().contains("has no probe") || cfg!(not(target_arch = "x86_64")));
}

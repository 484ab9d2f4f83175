//! Reads any text as a theme: it has a style for every role, or one line names what is missing.

#![no_main]

use gpuwatch::screen::theme::{ROLES, Theme};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Theme::parse("fuzz", text) {
        Ok(theme) => {
            for (_, role) in ROLES {
                let _ = theme.style(role);
            }
        }
        Err(why) => {
            let message = why.to_string();
            assert!(!message.is_empty() && !message.contains(|it: char| it.is_control()), "{message:?}");
        }
    }
});

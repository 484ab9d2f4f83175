//! Replaces symbols if only ASCII can be drawn: one pass over the finished frame.

use crate::model::analysis::ladder::Gap;
use ratatui::{buffer::Buffer, layout::Rect};

/// Replaces every non-ASCII symbol by the most similar ASCII one.
pub(super) fn draw(buffer: &mut Buffer, area: Rect) {
    for position in area.positions() {
        if let Some(cell) = buffer.cell_mut(position)
            && !cell.symbol().is_ascii()
        {
            let plain = plain(cell.symbol());
            cell.set_char(plain);
        }
    }
}

fn plain(symbol: &str) -> char {
    let sign = symbol.chars().next().unwrap_or(' ');
    let mut rows = Gap::ALL.iter().map(|it| it.row());
    if let Some(row) = rows.find(|it| it.colourless == sign) {
        return row.ascii;
    }
    match sign {
        '–' | '─' | '⠤' | '⠒' => '-',
        '│' | '╵' | '⡇' | '▏' => '|',
        '█' | '▇' | '▆' => '#',
        '▅' | '▄' | '━' => '=',
        '▃' | '▂' | '▁' => '_',
        '⋮' => ':',
        '◇' | '┌' | '┐' | '└' | '┘' => '+',
        '⣀' => '.',
        '⠉' => '\'',
        '×' => 'x',
        '▸' | '→' | '▶' => '>',
        '●' => 'O',
        '◆' => '!',
        '◎' => '@',
        '✕' => 'X',
        '≈' | '…' => '~',
        '°' => ' ',
        '↑' | '▲' => '^',
        '↓' | '▾' => 'v',
        '←' => '<',
        _ => '?',
    }
}

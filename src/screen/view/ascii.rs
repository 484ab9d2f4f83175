//! What is left where only ASCII can be drawn: one pass over the finished picture.

use ratatui::{buffer::Buffer, layout::Rect};

/// Replaces every symbol that is not ASCII by the one that says most of the same.
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
    match symbol.chars().next().unwrap_or(' ') {
        '–' | '─' | '⠤' | '⠒' => '-',
        '│' | '╵' | '⡇' => '|',
        '█' | '▇' | '▆' => '#',
        '▅' | '▄' | '━' => '=',
        '▃' | '▂' | '▁' => '_',
        '▓' => '%',
        '░' | '⋮' => ':',
        '▒' | '◇' | '┌' | '┐' | '└' | '┘' => '+',
        '·' | '⣀' => '.',
        '⠉' => '\'',
        '▚' | '×' => 'x',
        '▞' => '/',
        '▙' => 'g',
        '▀' => 'o',
        '▐' => 'd',
        '▸' | '→' | '▶' => '>',
        '●' => 'O',
        '◆' => '!',
        '◎' => '@',
        '✕' => 'X',
        '≈' | '…' => '~',
        '°' => ' ',
        '↑' | '▲' => '^',
        '↓' => 'v',
        '←' => '<',
        _ => '?',
    }
}

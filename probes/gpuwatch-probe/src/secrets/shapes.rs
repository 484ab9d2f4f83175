//! Secrets that are recognised by their shape.

use super::HIDDEN;

/// The prefix of a secret, and the least number of further characters.
const PREFIXES: [(&str, usize); 30] = [
    ("github_pat_", 6),
    ("ghp_", 4),
    ("gho_", 4),
    ("ghu_", 4),
    ("ghs_", 4),
    ("ghr_", 4),
    ("glpat-", 4),
    ("xoxb-", 4),
    ("xoxp-", 4),
    ("xoxa-", 4),
    ("xoxs-", 4),
    ("xoxr-", 4),
    ("xapp-", 4),
    ("nvapi-", 6),
    ("dckr_pat_", 4),
    ("sk_live_", 4),
    ("sk_test_", 4),
    ("rk_live_", 4),
    ("pk_live_", 4),
    ("wandb_v1_", 4),
    ("AIza", 20),
    ("ya29.", 10),
    ("gsk_", 16),
    ("r8_", 16),
    ("npm_", 16),
    ("pypi-", 16),
    ("api_org_", 8),
    ("tskey-", 8),
    ("pplx-", 16),
    ("xai-", 16),
];

/// Returns the length of the secret that a text begins with, if it does.
pub(super) fn length(text: &str) -> Option<usize> {
    let of_prefix = |(prefix, least): &(&str, usize)| {
        let rest = text.strip_prefix(prefix)?;
        let run = run(rest, |it| it.is_ascii_alphanumeric() || "_-.".contains(it));
        (run >= *least).then_some(prefix.len() + run)
    };
    PREFIXES
        .iter()
        .find_map(of_prefix)
        .or_else(|| amazon(text))
        .or_else(|| named_like_others(text))
        .or_else(|| signed(text))
}

/// Matches `AKIA…`, `ASIA…`: only capitals and digits.
fn amazon(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("AKIA").or_else(|| text.strip_prefix("ASIA"))?;
    let run = run(rest, |it| it.is_ascii_uppercase() || it.is_ascii_digit());
    let goes_on = rest.get(run..).is_some_and(|it| it.starts_with(|c: char| c.is_ascii_lowercase()));
    (run >= 8 && !goes_on).then_some(4 + run)
}

/// Matches `hf_…` and `sk-…`: names of programs and packages begin like that too, so the rest must look random.
fn named_like_others(text: &str) -> Option<usize> {
    let (rest, inside): (_, fn(char) -> bool) = match (text.strip_prefix("hf_"), text.strip_prefix("sk-")) {
        (Some(rest), _) => (rest, |it| it.is_ascii_alphanumeric()),
        (_, Some(rest)) => (rest, |it| it.is_ascii_alphanumeric() || "_-".contains(it)),
        _ => return None,
    };
    let length = run(rest, inside);
    let (secret, after) = rest.split_at(length);
    let more = after.strip_prefix(['.', '_']);
    // What follows may be hidden already, and hiding twice changes nothing.
    let goes_on = more.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_alphabetic()) || it.starts_with(HIDDEN));
    let has = |is: fn(&char) -> bool| secret.chars().any(|it| is(&it));
    let letters = has(char::is_ascii_lowercase) || has(char::is_ascii_uppercase);
    let is_mixed =
        (has(char::is_ascii_digit) && letters) || (has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase));
    let is_chance = (length >= 6 && is_mixed && !goes_on) || (length >= 16 && !secret.contains(['-', '_']));
    is_chance.then_some(3 + length)
}

/// Matches a JSON web token: three parts, the first of which begins with `eyJ`.
fn signed(text: &str) -> Option<usize> {
    let length = run(text.strip_prefix("eyJ")?, |it| it.is_ascii_alphanumeric() || "_-.".contains(it)) + 3;
    (length >= 24 && text.get(..length)?.matches('.').count() >= 2).then_some(length)
}

/// Returns the bytes of leading characters of a kind.
fn run(text: &str, is_inside: impl Fn(char) -> bool) -> usize {
    text.find(|it| !is_inside(it)).unwrap_or(text.len())
}

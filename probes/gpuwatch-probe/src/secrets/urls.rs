//! Secrets in URLs: of users, and in the paths of webhooks. What a query holds are names with values, as elsewhere.

use super::{
    Grade, HIDDEN, Span, listed,
    values::{grade, is_random, is_reference},
};

/// More of a URL is not read.
const READ_MAX: usize = 2048;

/// More segments of a path are not read.
const SEGMENTS_MAX: usize = 16;

/// Parts of a path, and first labels of a host, after which a secret may follow.
const HOOKS: &str = "\
    apikey botkey hook hooks incoming incomingwebhook integration key secret token triggers webhook \
    webhook-test webhookb2 webhooks workflows";

/// Hosts whose paths are secrets.
const HOSTS: &str = "\
    alchemy.com api.day.app ftqq.com hc-ping.com infura.io make.com maker.ifttt.com quiknode.pro webhook.site";

/// Returns the secrets of the URL whose `://` ends before a position, and where to continue.
pub(super) fn spans(text: &str, from: usize) -> (Vec<Span>, usize) {
    let rest = text.get(from..).unwrap_or_default();
    let ends = |it: char| it.is_whitespace() || "\"'<>`\\".contains(it);
    let window = rest.char_indices().map(|(at, _)| at).find(|it| *it >= READ_MAX).unwrap_or(rest.len());
    let url = rest.get(..window).unwrap_or_default();
    let url = url.get(..url.find(ends).unwrap_or(url.len())).unwrap_or_default();
    let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
    let (mut spans, mut path) = (Vec::new(), authority);
    if let Some(sign) = end_of_user(url, authority) {
        let user = url.get(..sign).unwrap_or_default();
        spans.extend(of_user(user).map(|(start, end)| (from + start, from + end)));
        path = url.get(sign..).and_then(|it| it.find(['/', '?', '#'])).map_or(url.len(), |it| sign + it);
    }
    let host = url.get(..path).unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let whole = url.get(path..).unwrap_or_default();
    let whole = whole.get(..whole.find(['?', '#']).unwrap_or(whole.len())).unwrap_or_default();
    let whole = whole.trim_end_matches(['/', ')', ',', '.', ';', ']', '}']);
    if let Some((start, end)) = of_hook(host, whole) {
        spans.push((from + path + start, from + path + end));
    }
    let next = spans.last().map_or(from, |it| it.1);
    (spans, next)
}

/// Returns the position of the `@` after a user.
fn end_of_user(url: &str, authority: usize) -> Option<usize> {
    let (start, end) = url.split_at(authority);
    if let Some(sign) = start.rfind('@') {
        let rest = url.get(sign + 1..).filter(|_| start.contains(':')).unwrap_or_default();
        return Some(sign + user_in_path(rest).map_or(0, |it| it + 1));
    }
    // A password may have a slash, and a port is a number.
    let (_, secret) = start.split_once(':')?;
    let is_port = !secret.is_empty() && secret.bytes().all(|it| it.is_ascii_digit())
        || (!secret.is_empty() && is_reference(secret));
    (!is_port && !start.contains([',', '[', '('])).then(|| end.find('@').map(|it| authority + it)).flatten()
}

/// Returns the position of a later `@`, if what follows the first one is less like a host than what follows this one: a
/// password may have both signs, as in `bob:x@y/z@db.corp.io`.
fn user_in_path(rest: &str) -> Option<usize> {
    let host = |text: &str| -> Option<(usize, bool)> {
        let end = text.find(['/', '?', '#', '@']).unwrap_or(text.len());
        let (name, port) = text.get(..end)?.split_once(':').unwrap_or((text.get(..end)?, ""));
        let is_name = !name.is_empty() && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it));
        let is_known = name.contains('.') || name == "localhost" || !port.is_empty();
        (is_name && port.bytes().all(|it| it.is_ascii_digit())).then_some((end, is_known))
    };
    let later = rest.get(..rest.find('?').unwrap_or(rest.len()))?.rfind('@')?;
    let is_fragment = rest.find(['/', '?', '#']).is_some_and(|at| rest.as_bytes().get(at) == Some(&b'#'));
    match (host(rest), host(rest.get(later + 1..)?)) {
        (None, Some(_)) => Some(later),
        (Some((_, false)), Some((_, is_known))) if is_known || is_fragment => Some(later),
        _ => None,
    }
}

fn of_user(user: &str) -> Option<Span> {
    match user.split_once(':') {
        Some((name, secret)) if is_random(name) => {
            let is_alone = secret.is_empty() || is_reference(secret);
            Some((0, if is_alone { name.len() } else { user.len() }))
        }
        Some((name, secret)) => {
            let is_masked = secret.chars().all(|it| "*.xX<>".contains(it)) || secret == HIDDEN;
            (!is_masked && !is_reference(secret)).then_some((name.len() + 1, user.len()))
        }
        None => (user.len() >= 16 && grade(user) >= Grade::Mixed).then_some((0, user.len())),
    }
}

/// Returns the secret in the path of a webhook.
fn of_hook(host: &str, path: &str) -> Option<Span> {
    let is_hook = |it: &str| listed(HOOKS, &it.to_ascii_lowercase());
    let host = host.split(':').next().unwrap_or_default();
    let mut is_after = HOSTS.split(' ').any(|it| host.ends_with(it))
        || host.split('.').any(|it| ["hook", "hooks", "webhook", "webhooks"].contains(&it));
    let (mut at, mut start, mut is_secret) = (0, None, false);
    for segment in path.split('/').take(SEGMENTS_MAX) {
        let is_lower = segment.bytes().all(|it| it.is_ascii_lowercase() || it == b'-' || it == b'_');
        if is_after && !is_lower {
            start.get_or_insert(at);
            is_secret |= match grade(segment) {
                Grade::Random => true,
                Grade::Number => segment.len() > 5 && at + segment.len() < path.len(),
                Grade::Mixed => {
                    segment.len() >= 6 && !segment.contains('.') && segment.bytes().any(|it| it.is_ascii_digit())
                }
                _ => false,
            };
        }
        // `/t/TOKEN/` is how channels of packages are given a token.
        let is_token =
            segment == "t" && is_random(path.get(at + 2..).and_then(|it| it.split('/').next()).unwrap_or(""));
        is_after |= is_hook(segment) || is_token;
        at += segment.len() + 1;
    }
    start.filter(|_| is_secret).map(|it| (it, path.len()))
}

//! Secrets that are recognised by their shape: what services put before the tokens that they issue.

use super::{listed, values::is_random};

/// The characters after a prefix.
#[derive(Clone, Copy)]
enum Of {
    /// Letters and digits.
    Alnum,
    /// Those, and `-`, `_`, `.`.
    Url,
    /// Those, and `+`, `/`, `=`.
    Base64,
    /// Digits and small letters up to `f`.
    Hex,
    /// Capital letters and digits.
    Capitals,
}

impl Of {
    fn contains(self, it: char) -> bool {
        match self {
            Self::Alnum => it.is_ascii_alphanumeric(),
            Self::Url => it.is_ascii_alphanumeric() || "_-.".contains(it),
            Self::Base64 => it.is_ascii_alphanumeric() || "_-.+/=".contains(it),
            Self::Hex => matches!(it, '0'..='9' | 'a'..='f'),
            Self::Capitals => it.is_ascii_uppercase() || it.is_ascii_digit(),
        }
    }
}

use Of::{Alnum, Base64, Capitals, Hex, Url};

/// Prefixes that begin nothing else, and the least number of further characters.
const SURE: &[(&str, Of, usize)] = &[
    ("github_pat_", Url, 6),
    ("sqp_", Hex, 40),
    ("squ_", Hex, 40),
    ("sqa_", Hex, 40),
    ("ghp_", Alnum, 12),
    ("gho_", Alnum, 12),
    ("ghu_", Alnum, 12),
    ("ghs_", Url, 12),
    ("ghr_", Alnum, 12),
    ("glpat-", Url, 8),
    ("gldt-", Url, 12),
    ("glrt-", Url, 12),
    ("glptt-", Url, 12),
    ("glcbt-", Url, 12),
    ("glft-", Url, 12),
    ("glsoat-", Url, 12),
    ("glimt-", Url, 12),
    ("glagent-", Url, 12),
    ("gloas-", Url, 12),
    ("GR1348941", Url, 12),
    ("xoxb-", Url, 8),
    ("xoxp-", Url, 8),
    ("xoxa-", Url, 8),
    ("xoxs-", Url, 8),
    ("xoxr-", Url, 8),
    ("xoxc-", Url, 8),
    ("xoxd-", Base64, 8),
    ("xoxe.", Url, 8),
    ("nvapi-", Url, 6),
    ("dckr_pat_", Url, 8),
    ("dckr_oat_", Url, 8),
    ("sk_live_", Alnum, 6),
    ("sk_test_", Alnum, 6),
    ("rk_live_", Alnum, 6),
    ("rk_test_", Alnum, 6),
    ("pk_live_", Alnum, 6),
    ("wandb_v1_", Url, 8),
    ("sk-proj-", Url, 8),
    ("sk-ant-", Url, 8),
    ("sk-or-v1-", Url, 8),
    ("sk-svcacct-", Url, 8),
    ("sk-admin-", Url, 8),
    ("sk-lf-", Url, 12),
    ("AIza", Url, 30),
    ("ya29.", Url, 10),
    ("1//0", Url, 30),
    ("GOCSPX-", Url, 20),
    ("pypi-AgE", Url, 16),
    ("AGE-SECRET-KEY-1", Capitals, 20),
    ("ATATT3", Base64, 20),
    ("ATCTT3", Base64, 20),
    ("ATBB", Alnum, 24),
    ("HRKU-", Url, 20),
    ("EAACEdEose0cBA", Alnum, 10),
    ("IQoJb3JpZ2lu", Base64, 20),
    ("FwoGZXIvYXdz", Base64, 20),
    ("eyJrIjoi", Base64, 40),
    ("LTAI", Alnum, 16),
    ("AKID", Alnum, 28),
    ("amzn.mws.", Url, 20),
    ("amzn1.oa2-cs.", Url, 20),
    ("api_org_", Alnum, 16),
    ("tskey-", Url, 8),
    ("shippo_live_", Hex, 16),
    ("shippo_test_", Hex, 16),
    ("sq0atp-", Url, 16),
    ("sq0csp-", Url, 16),
    ("sntrys_", Base64, 20),
    ("sntryu_", Hex, 20),
    ("secret-token:", Url, 8),
];

/// Prefixes that begin other names as well, so that the rest must look random.
const RANDOM: &[(&str, Of, usize)] = &[
    ("hf_", Alnum, 16),
    ("xapp-", Url, 20),
    ("sk-", Url, 16),
    ("pk_test_", Alnum, 16),
    ("gsk_", Alnum, 20),
    ("r8_", Alnum, 20),
    ("npm_", Alnum, 20),
    ("pypi-", Url, 24),
    ("pplx-", Alnum, 20),
    ("xai-", Alnum, 20),
    ("dapi", Url, 32),
    ("dkea", Hex, 32),
    ("dose", Hex, 32),
    ("hvs.", Url, 20),
    ("hvb.", Url, 20),
    ("hvr.", Url, 20),
    ("s.", Alnum, 24),
    ("SG.", Url, 30),
    ("dop_v1_", Hex, 20),
    ("doo_v1_", Hex, 20),
    ("dor_v1_", Hex, 20),
    ("lin_api_", Alnum, 20),
    ("lin_oauth_", Alnum, 20),
    ("dp.st.", Url, 20),
    ("dp.pt.", Url, 20),
    ("dp.ct.", Url, 20),
    ("dp.sa.", Url, 20),
    ("dp.scim.", Url, 20),
    ("dp.audit.", Url, 20),
    ("rpa_", Alnum, 20),
    ("tgp_v1_", Url, 20),
    ("ntn_", Alnum, 24),
    ("secret_", Alnum, 24),
    ("whsec_", Base64, 20),
    ("PMAK-", Url, 24),
    ("glc_", Base64, 24),
    ("glsa_", Url, 24),
    ("NRAK-", Alnum, 20),
    ("NRJS-", Alnum, 16),
    ("NRII-", Url, 20),
    ("NRAA-", Alnum, 20),
    ("shpat_", Alnum, 24),
    ("shpss_", Alnum, 24),
    ("shpca_", Alnum, 24),
    ("shppa_", Alnum, 24),
    ("pat", Url, 60),
    ("patE", Url, 60),
    ("key", Alnum, 14),
    ("key-", Hex, 32),
    ("figd_", Url, 24),
    ("figu_", Url, 24),
    ("pul-", Hex, 32),
    ("phc_", Alnum, 24),
    ("phx_", Alnum, 24),
    ("lsv2_", Url, 24),
    ("ls__", Alnum, 24),
    ("pcsk_", Url, 24),
    ("jina_", Url, 24),
    ("fw_", Alnum, 20),
    ("fc-", Hex, 24),
    ("fpk_", Alnum, 20),
    ("tvly-", Url, 24),
    ("essecret_", Alnum, 16),
    ("rubygems_", Hex, 32),
    ("EAA", Url, 56),
    ("cio", Alnum, 32),
    ("ghx_", Alnum, 20),
    ("sl.", Url, 60),
    ("pscale_pw_", Url, 20),
    ("pscale_tkn_", Url, 20),
    ("pscale_oauth_", Url, 20),
    ("nfp_", Alnum, 24),
    ("nfc_", Alnum, 24),
    ("vcp_", Alnum, 24),
    ("rnd_", Alnum, 20),
    ("fo1_", Url, 30),
    ("fm1_", Base64, 30),
    ("fm2_", Base64, 30),
    ("FlyV1", Base64, 30),
    ("sbp_", Hex, 30),
    ("sb_secret_", Url, 20),
    ("doppler_", Alnum, 30),
    ("CFPAT-", Url, 30),
    ("CCIPAT_", Url, 30),
    ("v1.0-", Url, 60),
    ("bkua_", Hex, 30),
    ("ico-", Alnum, 30),
    ("xkeysib-", Url, 40),
    ("xsmtpsib-", Url, 40),
    ("sk.", Url, 60),
    ("pk.eyJ", Url, 40),
    ("atlasv1.", Url, 40),
    ("EZAK", Alnum, 40),
    ("EZTK", Alnum, 40),
    ("RGAPI-", Url, 30),
    ("ak-", Alnum, 20),
    ("as-", Alnum, 20),
    ("cfut_", Alnum, 30),
    ("e2b_", Hex, 30),
    ("ops_eyJ", Base64, 40),
    ("apify_api_", Alnum, 24),
    ("r8k_", Alnum, 30),
];

/// Prefixes of accounts and keys of Amazon, which continue in capitals and digits.
const AMAZON: &[&str] = &["AKIA", "ASIA", "ABIA", "ACCA", "A3T", "AROA"];

/// Prefixes before 32 digits and small letters up to `f`, of Twilio.
const TWILIO: &[&str] = &["SK", "AC"];

/// Prefixes of identifiers, which hide nothing.
const IDENTIFIERS: &str = "\
    asst batch call chatcmpl cmpl data dataset ds exp experiment file ft ftjob img item job model msg node pod proj req \
    request resp response run session span step task thread trace wf workflow";

/// Only so much of a text decides whether it is a secret.
const DECIDES: usize = 512;

/// Returns the length of the secret that a text begins with, if it does.
pub(super) fn length(text: &str) -> Option<usize> {
    let (first, _) = text.as_bytes().split_first()?;
    let candidates = |list: &'static [(&str, Of, usize)]| {
        list.iter().filter(move |it| it.0.as_bytes().first() == Some(first) && text.starts_with(it.0))
    };
    let of_prefix = |(prefix, of, least): &(&str, Of, usize), is_sure: bool| {
        let rest = text.get(prefix.len()..)?;
        let run = run(start(rest), |it| of.contains(it));
        let found = rest.get(..run)?;
        // What follows a dot or a dash may be the end of a sentence or a name of a file.
        let is_secret = run >= *least && (is_sure || is_token(found)) && !is_file(found);
        is_secret.then(|| prefix.len() + trimmed(rest, run_of(rest, run, *of)))
    };
    candidates(SURE)
        .find_map(|it| of_prefix(it, true))
        .or_else(|| candidates(RANDOM).find_map(|it| of_prefix(it, false)))
        .or_else(|| issued(text))
        .or_else(|| mailchimp(text))
        .or_else(|| amazon(text))
        .or_else(|| twilio(text))
        .or_else(|| telegram(text))
        .or_else(|| discord(text))
        .or_else(|| signed(text))
        .or_else(|| encoded_key(text))
        .or_else(|| azure(text))
}

/// Returns the start of a text, as much as decides.
fn start(text: &str) -> &str {
    let end = (0..=DECIDES.min(text.len())).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// Returns the bytes of leading characters of a kind, beyond what decided.
fn run_of(text: &str, decided: usize, of: Of) -> usize {
    if decided < start(text).len() { decided } else { run(text, |it| of.contains(it)) }
}

/// Returns a length without dots and dashes at the end, which belong to the sentence.
fn trimmed(text: &str, length: usize) -> usize {
    text.get(..length).unwrap_or_default().trim_end_matches(['.', '-']).len()
}

/// Whether the rest after a prefix looks random, or is one long string of letters.
fn is_token(rest: &str) -> bool {
    is_random(rest) || (rest.len() >= 16 && rest.bytes().all(|it| it.is_ascii_lowercase()) && rest.len() <= 64)
}

/// Whether this ends like the name of a file: `hf_model.pt`.
fn is_file(rest: &str) -> bool {
    rest.rsplit_once('.')
        .is_some_and(|(_, ending)| (1..=4).contains(&ending.len()) && ending.bytes().all(|it| it.is_ascii_lowercase()))
}

/// Matches `AKIA…`, `ASIA…`: only capitals and digits.
fn amazon(text: &str) -> Option<usize> {
    let prefix = AMAZON.iter().find(|it| text.starts_with(**it))?;
    let rest = text.get(prefix.len()..)?;
    let run = run(start(rest), |it| Capitals.contains(it));
    let goes_on = rest.get(run..).is_some_and(|it| it.starts_with(|c: char| c.is_ascii_lowercase()));
    // The secret may follow, as in the files of s3fs.
    let pair = rest.get(run..).and_then(|it| it.strip_prefix(':')).map_or(0, |it| run_in(it, Base64));
    let pair = if pair >= 30 { pair + 1 } else { 0 };
    ((12..=20).contains(&run) && !goes_on).then_some(prefix.len() + run + pair)
}

fn run_in(text: &str, of: Of) -> usize {
    run(text, |it| of.contains(it))
}

/// Matches the token of a Discord bot: the account in base64, six characters of a time, and a code.
fn discord(text: &str) -> Option<usize> {
    let is_inside = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
    let account = run(start(text), is_inside);
    let rest = text.get(account..)?.strip_prefix('.')?;
    let after = rest.get(6..)?.strip_prefix('.').filter(|_| run(rest, is_inside) == 6)?;
    let code = run(after, is_inside);
    let is_token = text.starts_with(['M', 'N', 'O']) && (23..=28).contains(&account) && (27..=40).contains(&code);
    (is_token && is_random(text.get(..account)?)).then_some(account + 8 + code)
}

/// Matches what services issue, whose prefix is not known: a word, a dash or an underscore, and random letters and
/// digits.
fn issued(text: &str) -> Option<usize> {
    let prefix = run(start(text), |it| it.is_ascii_lowercase());
    let rest = text.get(prefix..)?.strip_prefix(['_', '-'])?.trim_start_matches('_');
    let from = text.len() - rest.len();
    let run = run(start(rest), |it| it.is_ascii_alphanumeric());
    let found = rest.get(..run)?;
    let has = |is: fn(&u8) -> bool| found.bytes().filter(is).count() * 40 > found.len();
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit);
    let is_public = listed(IDENTIFIERS, text.get(..prefix)?);
    ((2..=12).contains(&prefix) && !is_public && run >= 24 && is_mixed && is_random(found)).then_some(from + run)
}

/// Matches 32 digits and small letters up to `f` before `-us1`.
fn mailchimp(text: &str) -> Option<usize> {
    let hex = run(start(text), |it| Hex.contains(it));
    let digits = run(text.get(hex..)?.strip_prefix("-us")?, |it| it.is_ascii_digit());
    (hex == 32 && (1..=2).contains(&digits)).then_some(hex + 3 + digits)
}

fn twilio(text: &str) -> Option<usize> {
    let prefix = TWILIO.iter().find(|it| text.starts_with(**it))?;
    let rest = text.get(prefix.len()..)?;
    let run = run(start(rest), |it| Hex.contains(it));
    let goes_on = rest.get(run..).is_some_and(|it| it.starts_with(|c: char| c.is_ascii_alphanumeric()));
    (run == 32 && !goes_on).then_some(prefix.len() + run)
}

/// Matches the token of a Telegram bot: `1234567890:AA…`.
fn telegram(text: &str) -> Option<usize> {
    let (prefix, text) = text.strip_prefix("bot").map_or((0, text), |it| (3, it));
    let digits = run(start(text), |it| it.is_ascii_digit());
    let rest = text.get(digits..)?.strip_prefix(":AA")?;
    let run = run(start(rest), |it| it.is_ascii_alphanumeric() || "_-".contains(it));
    ((7..=12).contains(&digits) && run >= 30).then_some(prefix + digits + 3 + run)
}

/// Matches a JSON web token: three parts, the first of which begins with `eyJ`.
fn signed(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("eyJ")?;
    let header = run(start(rest), |it| it.is_ascii_alphanumeric() || "_-".contains(it));
    let after = rest.get(header..)?.strip_prefix('.')?;
    let payload = run(after, |it| it.is_ascii_alphanumeric() || "_-".contains(it));
    if header < 5 || !(after.starts_with("eyJ") || after.get(payload..)?.starts_with('.')) {
        return None;
    }
    let length = run(rest, |it| Url.contains(it));
    Some(3 + trimmed(rest, length))
}

/// Matches a private key in base64: `-----BEGIN …`, but neither a certificate nor a public key.
fn encoded_key(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("LS0tLS1CRUdJTi")?;
    let is_public = rest.starts_with("BDRVJUSUZJQ0FUR") || rest.starts_with("BQVUJMSUMg");
    (!is_public).then(|| text.len() - rest.len() + run(rest, |it| Base64.contains(it)))
}

/// Matches a secret of an application at Azure: `…8Q~…` with 34 characters after three.
fn azure(text: &str) -> Option<usize> {
    let tail = text.get(3..)?;
    let rest = tail.strip_prefix("8Q~").or_else(|| tail.strip_prefix("7Q~"))?;
    let run = run(start(rest), |it| it.is_ascii_alphanumeric() || "_-.~".contains(it));
    (run >= 30).then_some(6 + run)
}

/// Returns the bytes of leading characters of a kind.
fn run(text: &str, is_inside: impl Fn(char) -> bool) -> usize {
    text.find(|it| !is_inside(it)).unwrap_or(text.len())
}

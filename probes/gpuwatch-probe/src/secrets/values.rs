//! Values: whether they can be secrets, and how random they look.

use super::{Grade, HIDDEN, listed, names};

/// More of a value is not read.
const READ_MAX: usize = 256;

/// Words that are values, not secrets.
const CONSTANTS: &str = "\
    disabled enabled - any auto bool default empty false hidden int n n/a nil no none null off on optional \
    prompt required str \
    string true undefined unset y yes";

/// Ways to authenticate.
const WAYS: &str = "\
    github gitlab google header ldaps local microsoft pam peer proxy saml2 scram sspi \
    abac acl adc anonymous api-key api_key apikey aws azure basic bearer cert cli digest gcp gssapi iam \
    interactive jwt \
    kerberos ldap md5 mtls negotiate ntlm oauth oauth2 oidc plain rbac saml sso token trust x509";

/// Endings of the names of files.
const EXTENSIONS: &str = "\
    asc bin cer cfg ckpt conf crt csv der env gguf gpg gz h5 ini jks jpg json jsonl kdbx key log md mp4 netrc \
    npy npz onnx p12 parquet pem pfx pkl png ppk pt pth pub py safetensors sh sqlite tar toml tsv txt webm \
    yaml yml zip";

/// Units of quantities.
const UNITS: &str = "\
    % b bit cpu d e f g gb gi gib h hz k kb ki kib m mb mi mib min ms ns p s sec t tb ti tib tok us w x z";

/// Where values are taken from in programs: `args.token`.
const OWNERS: &str = "\
    args cfg cls conf config ctx data env flags hparams kwargs opt options opts os params request row secrets \
    self settings st";

/// Returns what a value looks like.
pub(super) fn grade(value: &str) -> Grade {
    let end = (0..=READ_MAX.min(value.len())).rev().find(|it| value.is_char_boundary(*it)).unwrap_or(0);
    let value = value.get(..end).unwrap_or_default().trim().trim_matches(['"', '\'']);
    if is_constant(value) || is_reference(value) || is_special(value) || is_path(value) {
        Grade::Nothing
    } else if is_quantity(value) {
        if value.len() < 4 { Grade::Nothing } else { Grade::Number }
    } else if is_random(value) {
        Grade::Random
    } else if value.len() <= 2 || value.chars().all(|it| it.is_alphabetic() || "_-. ".contains(it)) {
        Grade::Word
    } else {
        Grade::Mixed
    }
}

fn is_constant(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    value.is_empty()
        || value == HIDDEN
        || listed(CONSTANTS, &lower)
        || listed(WAYS, &lower)
        || value.chars().all(|it| it == 'x' || it == 'X' || !it.is_alphanumeric())
}

/// Whether a value stands for another one: `$TOKEN`, `{token}`, `%s`, `args.token`, `os.environ["X"]`, `getpass()`.
pub(super) fn is_reference(value: &str) -> bool {
    let without = without_placeholders(value);
    if without.len() < value.len() {
        // What is around a placeholder may be `Bearer `, or a secret.
        let rest = without.trim();
        return rest.chars().all(|it| !it.is_ascii_digit()) && !is_random(rest);
    }
    let identifier = value.find(|it: char| !(it.is_alphanumeric() || "_.".contains(it))).unwrap_or(value.len());
    let (name, after) = value.split_at(identifier);
    let is_code = !name.is_empty() && !is_random(name) && !name.starts_with(|it: char| it.is_ascii_digit());
    if is_code && after.starts_with(['(', '[']) {
        return name.len() > 2 && name.chars().all(|it| it.is_lowercase() || it.is_uppercase() || "_.".contains(it));
    }
    let is_tag = value.strip_prefix('!').is_some_and(|tag| {
        tag.bytes().all(|it| it.is_ascii_lowercase()) || tag.bytes().all(|it| it.is_ascii_uppercase())
    });
    if is_tag || value.starts_with(".*") || value.starts_with("[^") {
        return true;
    }
    // The name of an object that holds a secret.
    let is_object = value.contains('-') && value.bytes().all(|it| it.is_ascii_lowercase() || it == b'-');
    if is_object && names::class(value).is_likely() && names::class(value) != names::Class::Password {
        return true;
    }
    if !after.is_empty() {
        let scheme = after.starts_with("://") && !after.contains('@');
        let is_vault = after.starts_with(':') && ["env", "file", "arn", "ssm", "vault", "keyring"].contains(&name);
        return scheme || is_vault || value.to_ascii_lowercase().starts_with("your-");
    }
    if value.to_ascii_lowercase().starts_with("your_") {
        return true;
    }
    let is_attribute = value.split_once('.').is_some_and(|(owner, name)| listed(OWNERS, owner) && !is_random(name));
    is_attribute || (value.contains('_') && is_code && is_word(value) && names::class(value).is_likely())
}

fn is_word(value: &str) -> bool {
    value.chars().all(|it| it.is_alphabetic() || "_.".contains(it))
}

/// Removes `$NAME`, `${…}`, `$(…)`, `{…}`, `{{…}}`, `%s`, `%(…)s` and `%NAME%`, if the value begins or ends with one.
fn without_placeholders(value: &str) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        let length = placeholder(rest);
        if length == 0 {
            out.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        } else {
            rest = rest.get(length..).unwrap_or_default();
        }
    }
    let is_at_an_edge = placeholder(value) > 0 || value.ends_with(['}', ')', 's', '%']);
    let is_word = out.chars().all(|it| it.is_alphabetic() || " :/-_".contains(it));
    if is_at_an_edge || is_word { out } else { value.to_owned() }
}

/// Returns the bytes of the placeholder that a text begins with.
fn placeholder(text: &str) -> usize {
    let end = |opening: &str, closing: &str| {
        let inside = text.strip_prefix(opening)?;
        Some(opening.len() + inside.find(closing).map_or(inside.len(), |it| it + closing.len()))
    };
    if let Some(length) = end("${", "}").or_else(|| end("$(", ")")).or_else(|| end("{{", "}}")) {
        return length;
    }
    if let Some(name) = text.strip_prefix('$') {
        let length = name.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_')).unwrap_or(name.len());
        let is_name = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
            && name
                .get(..length)
                .is_some_and(|found| !found.chars().any(|c| c.is_ascii_lowercase()) || found.len() == name.len());
        return if is_name { length + 1 } else { 0 };
    }
    if let Some(inside) = text.strip_prefix('{') {
        let length = inside.find('}').unwrap_or(inside.len());
        let is_expression = inside.get(..length).is_some_and(|inside| {
            inside.chars().all(|c| c.is_alphanumeric() || "_.[]()!:>'\"-%, ".contains(c)) && !inside.contains(": ")
        });
        return if is_expression && length < inside.len() { length + 2 } else { 0 };
    }
    if let Some(inside) = text.strip_prefix("%(") {
        return inside.find(")s").map_or(0, |it| it + 4);
    }
    let Some(name) = text.strip_prefix('%') else { return 0 };
    let length = name.find(|it: char| !(it.is_ascii_uppercase() || it == '_')).unwrap_or(name.len());
    if length > 1 && name.get(length..).is_some_and(|it| it.starts_with('%')) {
        return length + 2;
    }
    if name.starts_with(['s', 'd', 'r']) && !name.get(1..).is_some_and(|it| it.starts_with(char::is_alphanumeric)) {
        2
    } else {
        0
    }
}

/// Whether a value is a token of a tokenizer, or a place to be filled: `<pad>`, `[CLS]`, `<|eot|>`.
fn is_special(value: &str) -> bool {
    let inside = value
        .strip_prefix('<')
        .and_then(|it| it.strip_suffix('>'))
        .or_else(|| value.strip_prefix('[').and_then(|it| it.strip_suffix(']')));
    inside.is_some_and(|it| it.len() < 40 && !it.contains(['"', '\'', ',']) && !is_random(it))
}

/// Whether a value is a number, a quantity, a list or a range of them, or a date.
pub(super) fn is_quantity(value: &str) -> bool {
    if value.len() > 32 || !value.starts_with(|it: char| it.is_ascii_digit() || "-+.".contains(it)) {
        return false;
    }
    let lower = value.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        return digits.bytes().all(|it| it.is_ascii_hexdigit());
    }
    let is_unit = |it: &str| it.is_empty() || listed(UNITS, it);
    value.bytes().any(|it| it.is_ascii_digit())
        && lower.split(|it: char| it.is_ascii_digit() || ".,:_+-/* ".contains(it)).all(is_unit)
        && lower.split(|it: char| !it.is_ascii_alphabetic()).filter(|it| !it.is_empty()).count() <= 3
        || is_date(&lower)
}

fn is_date(value: &str) -> bool {
    value.split('t').count() == 2
        && value.strip_suffix('z').unwrap_or(value).bytes().all(|it| it.is_ascii_digit() || b"-:t.+".contains(&it))
}

/// Whether a value is the path of a file, in which nothing looks random.
fn is_path(value: &str) -> bool {
    let value = value.strip_prefix('@').unwrap_or(value);
    if value.contains(char::is_whitespace) {
        return false;
    }
    let is_anchored = ["/", "~/", "./", "../"].iter().any(|it| value.starts_with(it)) || value.get(1..3) == Some(":\\");
    let stem = value.rsplit_once('.').filter(|(_, it)| listed(EXTENSIONS, &it.to_ascii_lowercase()));
    let mut segments = stem.map_or(value, |it| it.0).split(['/', '\\']).filter(|it| !it.is_empty());
    if is_anchored || stem.is_some() {
        return value.len() > 1 && segments.all(is_segment);
    }
    let is_plain = |segment: &str| {
        let word = segment.trim_end_matches(|c: char| c.is_ascii_digit());
        (word.len() > 1 || value.matches('/').count() > 2)
            && word.chars().all(|c| c.is_ascii_lowercase() || "_-.".contains(c))
    };
    value.contains('/') && segments.all(is_plain)
}

/// Whether a part of a path is an ordinary name.
fn is_segment(segment: &str) -> bool {
    let changes = changes(segment);
    segment.chars().all(|it| it.is_alphanumeric() || "_-.@+~$%{}:,".contains(it))
        && !is_random(segment)
        && changes * 3 <= segment.len() + 2
        && !is_leet(segment)
}

/// Whether a digit stands for a letter within a word: `w0rd`.
fn is_leet(text: &str) -> bool {
    text.split(|it: char| !it.is_ascii_alphanumeric())
        .filter(|word| !word.bytes().all(|it| it.is_ascii_hexdigit()))
        .any(|word| {
            word.as_bytes().windows(3).any(|it| {
                let [a, b, c] = [it[0], it[1], it[2]];
                a.is_ascii_lowercase() && b"01345".contains(&b) && c.is_ascii_lowercase()
            })
        })
}

/// Whether a value looks like drawn at random from letters and digits.
pub(super) fn is_random(value: &str) -> bool {
    let count = value.chars().filter(char::is_ascii_alphanumeric).count();
    let changes = changes(value);
    // Words have few changes between digits, small and capital letters.
    (count >= 16 && changes * 5 >= count)
        || is_hexadecimal(value)
        || (count >= 10 && changes * 3 >= count)
        || (count >= 16 && value.len() < count + count / 4 && is_unpronounceable(value))
}

/// Whether a value is a long number in hexadecimal digits of one case, with dashes or not.
fn is_hexadecimal(value: &str) -> bool {
    let has = |is: fn(&u8) -> bool| value.bytes().any(|it| is(&it));
    value.len() >= 20
        && value.bytes().all(|it| it.is_ascii_hexdigit() || it == b'-')
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_lowercase) != has(u8::is_ascii_uppercase)
}

/// Returns how often neighbours are of different kinds: digits, small letters, capital letters. A capital before two
/// small letters begins a word, which is not a change.
fn changes(text: &str) -> usize {
    let kind = |it: u8| match it {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        _ => 3,
    };
    let kinds: Vec<u8> = text.bytes().map(kind).collect();
    let begins_word = |at: usize| kinds.get(at..at + 3).is_some_and(|it| *it == [2, 1, 1]);
    let is_change = |at: &usize| match kinds.get(*at..*at + 2) {
        Some([a, b]) => {
            let is_hump = (*a == 2 && begins_word(*at)) || (*a == 1 && begins_word(*at + 1));
            let is_capital = *a == 2 && *b == 1 && (*at == 0 || kinds.get(*at - 1) == Some(&3));
            a != b && *a < 3 && *b < 3 && !is_hump && !is_capital
        }
        _ => false,
    };
    (0..kinds.len()).filter(is_change).count()
}

/// Letters that often follow `a`, `b`, … in English words.
const FOLLOWERS: &str = "\
    bcdgiklmnprstuv aeilorsu aehiklortu aeiorsu acdeflmnprstvx aefiloru aehiloru aeiort acdefglmnorstvz aeou \
    aeins adeilostuy abeimopsu acdegiknostu bcdfgilmnoprstuvw aehiloprtu u acdeiklmnorstuy aceehiklmoprstu \
    aehiorstuwy abcdegilmnprst aeio aehino acepti elmnops aeo";

/// Whether too few pairs of letters are common in words.
fn is_unpronounceable(text: &str) -> bool {
    let followers: Vec<&str> = FOLLOWERS.split(' ').collect();
    let (mut pairs, mut common) = (0, 0);
    for pair in text.as_bytes().windows(2) {
        let [a, b] = [pair[0].to_ascii_lowercase(), pair[1].to_ascii_lowercase()];
        if !a.is_ascii_lowercase() || !b.is_ascii_lowercase() {
            continue;
        }
        let followers = followers.get(usize::from(a - b'a')).copied().unwrap_or_default();
        pairs += 1;
        common += usize::from(followers.contains(char::from(b)));
    }
    pairs >= 8 && common * 100 < pairs * 62
}

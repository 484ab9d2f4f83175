//! Names of options, variables and fields: how likely their values are secrets.

use super::{Grade, listed};

/// Last words of names whose values are passwords.
const PASSWORDS: &str = "otp passcode passphrase passwd password psw pswd pw pwd totp userpass userpwd";

/// Last words of names whose values are other secrets.
const SECRETS: &str = "\
    apikey apikeys auth authkey authorization basicauth bearer cookie cookies cred credential credentials \
    creds jwt mnemonic oauth passkey pat privkey sas secret secrets";

/// Last words that are secrets in some names, as `code` in a URL of Azure.
const SOMETIMES: &str = "appid code dsn hmac license login phpsessid sessionid sid sig signature webhook";

/// What may be written before these words without a separator, as in `dbpassword` and `accesstoken`.
const ENDINGS: &str = "\
    cookie credential credentials key keys pass passcode passphrase passwd password pwd secret secrets \
    signature token tokens";

/// Words before `key` and `keys` that make it a secret.
const KEYS: &str = "\
    access account admin aes airtable algolia anthropic api app application auth aws azure bot cipher clearml \
    client cloudflare cohere comet consumer cookie crypt crypto datadog dd decrypt decryption deepgram deepl \
    deepseek deploy django elastic elevenlabs encrypt encryption fal fernet firebase fireworks flask gcp \
    gemini github gitlab google gpg groq hf hmac host hub huggingface identity ingest integration jwt kaggle \
    labelbox lambda langchain langfuse langsmith licence license llm mailgun maps master mistral modal nebius \
    neptune newrelic ngc nvidia openai openrouter perplexity pgp pinecone priv private push qdrant read \
    recovery replicate roboflow rsa runpod s3 scale secret security sendgrid sentry serp serper service \
    session shared sign signature signing ssh ssl stability storage stripe subscription supabase symmetric \
    tavily tls together twilio unseal vast vault wandb weaviate webhook wireguard write xai";

/// Words before `token` and `tokens` that make it a secret, whatever its value is.
const TOKENS: &str = "\
    access account admin api app auth aws azure bearer bootstrap bot ci client cloudflare consul csrf \
    databricks datadog deploy device discord do docker dropbox face figma gh git gitea github gitlab grafana \
    heroku hf hub hugging huggingface identity influx influxdb invite jira join jupyter jwt k8s kube \
    kubernetes linear login mapbox modelscope neptune netlify notebook notion npm oauth openai private push \
    pypi refresh registry replicate reset runner sas secret security sentry service session slack telegram \
    upload user vault wandb xsrf";

/// Words before `token` that name a piece of text.
const PIECES: &str = "\
    add added answer attention audio batch begin boi bos byte class cls context control count decoder draft \
    end eoi eos eot extra fim first forced image img input label lang language last mask max middle min new \
    next num object output pad per pool prefix prompt register sep special start stop suffix system task text \
    total train unk video vision";

/// Words before `key` and `keys` that name a field or a place.
const FIELDS: &str = "\
    answer attn audio batch cache caption chosen ckpt column config data dict embedding feature field foreign \
    group hash hot id idempotency ignore image index input join json label loss map mask max metric min missing model \
    monitor n num optimizer output param params partition primary prompt public query recv rejected response sample \
    search sort state summary target task text total unexpected value video weight";

/// What a `pass` that is a password belongs to.
const PASSES: &str = "\
    admin app auth become cert db email ftp git http https imap jks key keystore ldap login mail mongo mysql pg \
    postgres proxy rabbitmq redis registry require root sa sasl smtp ssh store sudo truststore user usr vault vnc \
    wifi";

/// Beginnings of words in `pass` that are no password.
const OTHER_PASSES: &str = "\
    all backward band by com encom forward high low multi one over single two under";

/// Last words of names about a secret, as in `password-file` and `key-dim`.
const ABOUT: &str = "\
    agent algorithm attr attribute backend bits budget bytes class cls col column columns count cutter dataset \
    description dim dims dir dropout embedding embeddings enabled encoding endpoint env expiry field fields \
    file filename files format heads help helper hint host idx index jar kind label len length level lifetime \
    limit manager map mapping max method min mode name names norm num path policy prefix prompt provider rate \
    ratio refresh required scope server size source std suffix timeout ttl type uri url";

/// Last words that show which of several secrets it is, or how it is written.
const VARIANTS: &str = "\
    b64 backup base base64 data dev encoded json live material new old pem plain primary prod production raw \
    secondary staging str string test value";

/// First words of switches, which have no value or only turn something on or off.
const SWITCHES: &str = "\
    allow ask check detect disable enable generate has hide ignore list mask no print redact require scan show \
    skip validate verify without";

/// How likely the value of a name is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It is not.
    Plain,
    /// It is if it looks random.
    Weak,
    /// It is, unless it is a word, a number or a path.
    Likely,
    /// As `Likely`, and as `Sure` for an option.
    Token,
    /// It is, unless it is a number, a path or a constant.
    Sure,
    /// It is, unless it is a path or a constant.
    Password,
    /// `name:secret`, or a name alone.
    Login,
}

impl Class {
    /// Returns the least grade of a value of this class that is a secret; `is_option` is whether it is the value of an
    /// option or a variable.
    pub(super) fn least(self, is_option: bool) -> Grade {
        match self {
            Self::Plain | Self::Login => Grade::Never,
            Self::Weak => Grade::Random,
            Self::Likely => Grade::Mixed,
            Self::Token => {
                if is_option {
                    Grade::Word
                } else {
                    Grade::Mixed
                }
            }
            Self::Sure => Grade::Word,
            Self::Password => Grade::Number,
        }
    }

    /// Returns whether values of this class are secrets unless there is reason to doubt it.
    pub(super) fn is_likely(self) -> bool {
        matches!(self, Self::Likely | Self::Token | Self::Sure | Self::Password)
    }
}

/// Returns how likely the value of a name is a secret.
pub(super) fn class(name: &str) -> Class {
    if name.len() > LONGEST {
        return Class::Plain;
    }
    if name == "-u" || name == "-U" {
        return Class::Login;
    }
    // `-DNAME=X` and `-eNAME=X` give a variable to a program.
    let is_attached = name.starts_with('-') && !name.starts_with("--") && name.len() > 3;
    let is_among_secrets = name
        .split('.')
        .rev()
        .skip(1)
        .any(|it| listed("credentials passwords secrets", it.trim_start_matches(['+', '-', '~'])));
    match class_of_words(name) {
        Class::Plain | Class::Weak if is_among_secrets => Class::Likely,
        Class::Plain | Class::Weak if is_attached => class_of_words(name.get(2..).unwrap_or_default()),
        it => it,
    }
}

/// Returns whether a class of this name talks to a service that takes a key.
pub(super) fn is_client(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.starts_with(char::is_uppercase) && words(last).iter().any(|it| listed(KEYS, it))
}

/// Returns whether a variable of the shell has the working directory, whose name is that of a password elsewhere.
pub(super) fn is_folder(name: &str, value: &str) -> bool {
    ["PWD", "OLDPWD"].contains(&name) && value.starts_with('/')
}

/// Returns whether a key is named by its fingerprint, which is public, as in images of Python.
pub(super) fn is_fingerprint(name: &str, value: &str) -> bool {
    let words = words(name);
    let of_open_pgp = words.last_chunk().is_some_and(|[of, key]| ["gpg", "pgp"].contains(&of.as_str()) && key == "key");
    let digits = value.strip_prefix("0x").unwrap_or(value);
    of_open_pgp && [8, 16, 40].contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_hexdigit())
}

fn class_of_words(name: &str) -> Class {
    if name.rsplit_once('.').is_some_and(|it| it.1 == "token") {
        return Class::Token;
    }
    let words = words(name);
    let mut words: &[String] = &words;
    if name.starts_with('-') && words.first().is_some_and(|it| listed(SWITCHES, it)) {
        return Class::Plain;
    }
    while let [before @ .., previous, last] = words {
        let is_number = last.strip_prefix('v').unwrap_or(last).bytes().all(|it| it.is_ascii_digit());
        let is_variant = is_number || (listed(VARIANTS, last) && is_name_of_secret(before, previous));
        if !is_variant {
            break;
        }
        words = &words[..words.len() - 1];
    }
    let Some((last, before)) = words.split_last() else { return Class::Plain };
    of_words(before.last().map_or("", String::as_str), last, before, name)
}

/// Longer names are not read.
const LONGEST: usize = 256;

fn is_name_of_secret(before: &[String], last: &str) -> bool {
    of_words(before.last().map_or("", String::as_str), last, before, "").is_likely()
}

/// Returns the class of a name whose last words these are.
fn of_words(previous: &str, last: &str, before: &[String], name: &str) -> Class {
    let is_one_of = |list: &str| listed(list, last);
    if previous.is_empty() && ["user", "login", "username"].contains(&last) && name.starts_with('-') {
        return Class::Login;
    }
    if previous == "proxy" && last == "user" {
        return Class::Login;
    }
    if !before.is_empty() && is_one_of(ABOUT) {
        return Class::Plain;
    }
    if last == "id" && previous == "key" && before.iter().any(|it| it == "access") {
        return Class::Sure;
    }
    if last == "id" && ["secret", "token"].contains(&previous) {
        return Class::Weak;
    }
    // Names of objects that hold secrets.
    if ["existing", "pull"].contains(&previous) {
        return Class::Plain;
    }
    if last == "signature" && previous == "access" {
        return Class::Sure;
    }
    if is_one_of(PASSWORDS) {
        return Class::Password;
    }
    if is_one_of(SECRETS) {
        return Class::Sure;
    }
    match last {
        "token" if previous.is_empty() => Class::Token,
        "token" | "tokens" if listed(PIECES, previous) || before.iter().any(|it| it == "num") => Class::Plain,
        "token" | "tokens" if listed(TOKENS, previous) => Class::Sure,
        "token" => Class::Likely,
        "tokens" if previous.is_empty() => Class::Likely,
        "key" | "keys" if previous.is_empty() => Class::Weak,
        "key" | "keys" if listed(KEYS, previous) => Class::Sure,
        "key" | "keys" if listed(FIELDS, previous) => Class::Plain,
        "pass" if previous.is_empty() || PASSES.split(' ').any(|it| previous.ends_with(it)) => Class::Sure,
        "pass" if name.chars().all(|it| !it.is_lowercase()) => Class::Likely,
        "tokens" | "key" | "keys" | "pass" => Class::Weak,
        "pin" if previous.is_empty() => Class::Password,
        "phrase" if ["seed", "pass", "recovery", "secret"].contains(&previous) => Class::Password,
        "pem" if ["", "private", "key"].contains(&previous) => Class::Weak,
        _ if is_one_of(SOMETIMES) => Class::Weak,
        _ => of_parts(last).unwrap_or_else(|| of_others(before)),
    }
}

/// Returns the class of a word such as `dbpassword` or `authtoken`.
fn of_parts(word: &str) -> Option<Class> {
    let ending = ENDINGS.split(' ').find(|it| word.ends_with(it) && word.len() > it.len())?;
    let start = word.strip_suffix(ending)?;
    if ending == "pass" && listed(OTHER_PASSES, start) {
        return None;
    }
    if start == "sharedaccess" {
        return Some(Class::Sure);
    }
    let class = of_words(start, ending, &[start.to_owned()], "");
    match ending {
        "key" | "keys" => KEYS.split(' ').any(|it| start.ends_with(it)).then_some(Class::Sure),
        "pass" => (class == Class::Sure || class == Class::Likely).then_some(class),
        _ => Some(class),
    }
}

/// Returns the class of a name that mentions a secret and continues.
fn of_others(before: &[String]) -> Class {
    let is_secret = |it: &String| listed(PASSWORDS, it) || listed(SECRETS, it);
    let is_key = |it: &[String]| it[1] == "key" && listed(KEYS, &it[0]);
    if before.iter().any(is_secret) || before.windows(2).any(is_key) { Class::Weak } else { Class::Plain }
}

/// Splits a name into lower-case words: `--hub_token`, `AccessKeyId`, `APIKey` have two, three and two.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut chars = name.chars().peekable();
    let mut before: Option<char> = None;
    while let Some(c) = chars.next() {
        let is_hump = c.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_ascii_digit()
                    || (before.is_uppercase() && chars.peek().is_some_and(|next| next.is_lowercase()))
            });
        if !c.is_alphanumeric() || is_hump {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = Some(c);
    }
    words.push(word);
    words.retain(|it| !it.is_empty());
    words
}

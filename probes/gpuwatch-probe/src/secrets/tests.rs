//! Secrets are hidden wherever they are, and other text stays readable.

use super::*;

/// Command lines, argument by argument: `X` stands for a secret.
const HIDDEN_ARGUMENTS: [&str; 40] = [
    "--pass X",
    "sshpass -p X",
    "--pwd X",
    "--passphrase X",
    "--password X",
    "--password=X",
    "--db-password=X",
    "--auth=X",
    "--auth X",
    "--bearer X",
    "--login u:X",
    "--user=u:X",
    "-u u:X",
    "--AccessKeyId X",
    "--aws_access_key_id=X",
    "--secret_key_base X",
    "--hf-token=X",
    "--hub_token X",
    "--hubToken X",
    "--wandb_api_key=X",
    "--apikey X",
    "--APIKey X",
    "--use_auth_token X",
    "--client-secret -X",
    "API_KEY=X",
    "hydra.token=X",
    "+trainer.logger.api_key=X",
    "--api-tokens X",
    "--dbpass X",
    "--smtp-pass X",
    "--private-key X",
    "--cookie X",
    "--header|Authorization: Bearer X",
    "-H|Authorization: Basic X",
    "-H|X-Api-Key: X",
    "--header=Authorization:X",
    "--config|{\"api_key\": \"X\", \"lr\": 1}",
    "postgres://u:X@h/db",
    "https://h/path?a=1&api_key=X&b=2",
    "bash|-c|export HF_TOKEN=X; python t.py --password X",
];

/// Secrets by their shape, in any text.
const SHAPES: [&str; 13] = [
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "hf_abcdefghijklmnopqrstuvwxyzabcdefgh",
    "sk-abcdefghijklmnopqrstuvwx",
    "sk-proj-Ab12Cd34Ef56",
    "sk-ant-api03-Ab12Cd34",
    "ghp_0123456789abcdefghij",
    "github_pat_11ABC_defghij",
    "glpat-abcdef12345",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-1234-5678-abc",
    "nvapi-abcdef123456",
    "eyJhbGciOi.eyJzdWIiOiIx.SflKxwRJSM",
    "sk_live_abcdef",
];

/// Command lines that stay unchanged.
const READABLE: [&str; 40] = [
    "python train.py --lr 3e-4 -x",
    "-p 8080",
    "-p 8080:80",
    "--pass 2",
    "--token-dropout 0.1",
    "--tokenizer path/to",
    "--max-tokens 512",
    "--max_new_tokens=64",
    "--pass-through yes",
    "--key-dim 64",
    "--num_keys 8",
    "--keys 8",
    "--pad-token <pad>",
    "--eos_token_id 2",
    "--sort-key loss",
    "--text_key=caption",
    "--keyframes 9",
    "--monkey patch",
    "--bypass now",
    "--compass north",
    "--password-file /run/secret/pw",
    "--no-auth train.py",
    "--use-key --secret",
    "--token --next",
    "--user ada",
    "--user 1000:1000",
    "-u train.py",
    "keyboard token",
    "--use_auth_token True",
    "hf_train.py",
    "hf_transformers",
    "sk-learn",
    "--model hf_pretrained.pt",
    "--data https://h.example/x?y=1&z=2",
    "--remote ssh://git@github.com/x/y",
    "--store s3://bucket/a:b/c",
    "--precision=16 --parallel 8",
    "--dataset tokens.bin",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "--author ada",
];

fn split(line: &str) -> Vec<&str> {
    if line.contains('|') {
        line.split('|').collect()
    } else if line.contains('{') {
        vec![line]
    } else {
        line.split(' ').collect()
    }
}

#[test]
fn values_of_secrets_are_hidden_in_arguments() {
    for line in HIDDEN_ARGUMENTS {
        for secret in ["hunter2", "correct_horse", "Zm9vYmFy"] {
            let words: Vec<String> =
                split(line).iter().map(|it| it.replace('X', "\0").replace("\0-", "X-").replace('\0', secret)).collect();
            let shown = arguments(&words).join(" ");
            assert!(!shown.contains(secret) && shown.contains(HIDDEN), "{words:?} became {shown}");
            assert_eq!(arguments(&arguments(&words)), arguments(&words), "once is enough");
        }
    }
}

#[test]
fn secrets_are_known_by_their_shape() {
    for secret in SHAPES {
        for line in [secret.to_owned(), format!("login({secret:?})"), format!("--x={secret}"), format!("a {secret}, b")]
        {
            for shown in [text(&line), source(&line), arguments(&[&line]).concat().into()] {
                assert!(!shown.contains(secret) && shown.contains(HIDDEN), "{line} became {shown}");
            }
        }
    }
}

#[test]
fn harmless_text_stays_readable() {
    for line in READABLE {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(arguments(&words), words);
    }
}

#[test]
fn a_line_of_source_loses_its_literals_and_nothing_else() {
    let hidden = [
        ("client = OpenAI(api_key=\"abc\")", "client = OpenAI(api_key=\"<redacted>\")"),
        ("password = 'abc'  # later", "password = '<redacted>'  # later"),
        ("os.environ[\"HF_TOKEN\"] = \"abc\"", "os.environ[\"HF_TOKEN\"] = \"<redacted>\""),
        ("token: str = f\"abc1\"", "token: str = f\"<redacted>\""),
        ("{'api_key': 'a\\'bc', 'x': 1}", "{'api_key': '<redacted>', 'x': 1}"),
        ("db = connect('mysql://u:abc@h')", "db = connect('mysql://u:<redacted>@h')"),
    ];
    for (line, expected) in hidden {
        assert_eq!(source(line), expected);
    }
    let plain = [
        "key = batch[\"tokens\"]",
        "cache[key] = self.proj(token)",
        "for key, value in state.items():",
        "self.keys.append(x.detach())",
        "token = tokenizer.next_token(ids)",
        "def forward(self, key: Tensor, mask=None):",
        "if password == expected: return",
        "losses.append(loss)  # key: the leak",
        "secret_santa = pick(names)",
    ];
    for line in plain {
        assert_eq!(source(line), line);
    }
}

#[test]
fn messages_and_json_inside_of_strings_are_read_too() {
    let cases = [
        ("{\\\"api_key\\\": \\\"abc\\\", \\\"lr\\\": 1}", "{\\\"api_key\\\": \\\"<redacted>\\\", \\\"lr\\\": 1}"),
        ("cannot reach postgres://u:a:b@h:5432/d?x=1", "cannot reach postgres://u:<redacted>@h:5432/d?x=1"),
        ("HTTP 401 for Bearer abcdefgh12 (retry)", "HTTP 401 for Bearer <redacted> (retry)"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc", "<redacted>"),
        ("a.npm_0aB1cD2eF3gH4iJ5kL6mN7o", "a.<redacted>"),
        ("epoch 3", "epoch 3"),
        ("unexpected key: layer.0", "unexpected key: layer.0"),
        ("träin µ password=ü, 训练", "träin µ password=<redacted>, 训练"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "CUDA out of memory. Tried to allocate 2.00 GiB."),
    ];
    for (given, shown) in cases {
        assert_eq!(text(given), shown);
        assert_eq!(text(shown), shown);
    }
}

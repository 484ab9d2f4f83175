//! The tools of `gpuwatch mcp`: a table of what an assistant can ask, and the command that answers it.

use serde_json::{Map, Value, json};

/// A question that an assistant can ask.
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Whether it runs programs or looks into a running job.
    pub(super) is_action: bool,
    /// gpuwatch's arguments, before those of the call.
    command: &'static [&'static str],
    parameters: &'static [Parameter],
}

struct Parameter {
    name: &'static str,
    about: &'static str,
    kind: Kind,
    /// The flag that it is for; none where it stands alone.
    flag: &'static str,
    is_required: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// A text that is not a number: a number would be a process.
    Recording,
    Number,
    Switch,
    /// A program and its arguments.
    Command,
}

const fn needed(name: &'static str, kind: Kind, flag: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, kind, flag, is_required: true }
}

const fn optional(name: &'static str, kind: Kind, flag: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, kind, flag, is_required: false }
}

const RECORDING: &str = "A path, `last`, or what `recordings` lists: a number, or the unique beginning of a name.";
const GPU: &str =
    "The GPU: a name such as `RTX 4090`, what it is sold with such as `24GB`, or a size in bytes such as `20GiB`.";
const JOB: &str = "The job's command, a word each: [\"python\", \"train.py\", \"--batch\", \"16\"].";
const LIMIT: &str = "Seconds that one run of the job may take.";

/// Every tool, in the order in which they are used.
const TOOLS: &[Tool] = &[
    Tool {
        name: "state",
        about: "The devices and jobs of this machine now: memory by what holds it, and what is wrong.",
        is_action: false,
        command: &["once", "--json"],
        parameters: &[],
    },
    Tool {
        name: "recordings",
        about: "The recorded runs, the newest first, and how they went.",
        is_action: false,
        command: &["recordings", "--json"],
        parameters: &[],
    },
    Tool {
        name: "check",
        about: "Judges a recorded run: findings with their causes, the line that allocates or keeps what grows and what holds \
                it, and the account of an out-of-memory error. Exit code 0: it passes; 1: it does not; 2: it cannot be judged.",
        is_action: false,
        command: &["check", "--json"],
        parameters: &[needed("recording", Kind::Text, "", RECORDING)],
    },
    Tool {
        name: "peak",
        about: "What a recorded run's memory consisted of at a step's highest moment: by part, line and module.",
        is_action: false,
        command: &["peak", "--json"],
        parameters: &[needed("recording", Kind::Recording, "", RECORDING)],
    },
    Tool {
        name: "snapshot",
        about: "What a memory snapshot of PyTorch holds: live blocks by call stack, free memory, the trace's peak.",
        is_action: false,
        command: &["snapshot", "--json"],
        parameters: &[
            needed("file", Kind::Text, "", "What torch.cuda.memory._dump_snapshot wrote."),
            optional("fits", Kind::Text, "--fits", "Whether a request of this size would have fitted, such as `2GiB`."),
        ],
    },
    Tool {
        name: "diff",
        about: "Compares two recorded runs, or two snapshots: what needs more memory, and at which lines.",
        is_action: false,
        command: &["diff", "--json"],
        parameters: &[needed("first", Kind::Text, "", RECORDING), needed("second", Kind::Text, "", RECORDING)],
    },
    Tool {
        name: "explain",
        about: "Explains a cause or a kind of alert that `check` names: how it is recognised, what it is not, what to do.",
        is_action: false,
        command: &["explain"],
        parameters: &[needed("name", Kind::Text, "", "Such as `tensors-retained`.")],
    },
    Tool {
        name: "fit",
        about: "Whether a job fits on a GPU that is not there: runs its command on a simulated card. The peak with its parts and \
                lines, its phases, and whether it grows. Exit code 0: it fits; 1: it does not; 2: that is not certain.",
        is_action: true,
        command: &["fit", "--json"],
        parameters: &[
            optional("gpu", Kind::Text, "--gpu", GPU),
            optional("steps", Kind::Number, "--steps", "Optimizer steps to run."),
            optional(
                "vary",
                Kind::Text,
                "--vary",
                "Finds the largest value that fits: `batch=8..64:8`, with {batch} in the command.",
            ),
            optional(
                "whole",
                Kind::Switch,
                "--whole",
                "Lets the job continue by itself, through evaluation and checkpoints.",
            ),
            optional("quick", Kind::Switch, "--quick", "Lets it continue by itself not at all: faster, less certain."),
            optional("time_limit", Kind::Number, "--time-limit", LIMIT),
            optional(
                "against",
                Kind::Text,
                "--against",
                "A saved answer to compare with: the difference by part and line.",
            ),
            optional("save", Kind::Text, "--save", "Saves the answer in this new file, for `against`."),
            needed("command", Kind::Command, "", JOB),
        ],
    },
    Tool {
        name: "advise",
        about: "Measures what would save memory in a job: runs its command on a simulated card once with each technique that \
                applies. Each row has its peak, its price, and the lines to write.",
        is_action: true,
        command: &["fit", "--advise", "--json"],
        parameters: &[
            optional("gpu", Kind::Text, "--gpu", GPU),
            optional("time_limit", Kind::Number, "--time-limit", LIMIT),
            needed("command", Kind::Command, "", JOB),
        ],
    },
    Tool {
        name: "whatif",
        about: "Replays a traced run, a snapshot, or some steps of a running process under other allocator settings.",
        is_action: true,
        command: &["whatif", "--json"],
        parameters: &[needed("source", Kind::Text, "", "A recording, a snapshot, or the number of a process.")],
    },
    Tool {
        name: "peak_of_process",
        about: "Traces a step of a running job with its stacks: what memory consists of at its highest moment.",
        is_action: true,
        command: &["peak", "--json"],
        parameters: &[needed("pid", Kind::Number, "", "The process.")],
    },
    Tool {
        name: "sites",
        about: "Compares live blocks over some steps of a running job: which lines allocate what grows, and what holds it.",
        is_action: true,
        command: &["sites", "--json"],
        parameters: &[needed("pid", Kind::Number, "", "The process.")],
    },
];

/// Returns the tools, those that act only where they may.
pub(super) fn offered(may_act: bool) -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(move |it| may_act || !it.is_action)
}

impl Tool {
    /// Returns the JSON schema of its arguments.
    pub(super) fn schema(&self) -> Value {
        let property = |it: &Parameter| {
            let of = match it.kind {
                Kind::Text | Kind::Recording => json!({"type": "string", "description": it.about}),
                Kind::Number => json!({"type": "integer", "minimum": 1, "description": it.about}),
                Kind::Switch => json!({"type": "boolean", "description": it.about}),
                Kind::Command => {
                    json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "description": it.about})
                }
            };
            (it.name.to_owned(), of)
        };
        let required: Vec<&str> = self.parameters.iter().filter(|it| it.is_required).map(|it| it.name).collect();
        json!({
            "type": "object",
            "properties": self.parameters.iter().map(property).collect::<Map<String, Value>>(),
            "required": required,
            "additionalProperties": false,
        })
    }

    /// Returns gpuwatch's arguments for a call, or what is wrong with it.
    pub(super) fn command(&self, arguments: &Map<String, Value>) -> Result<Vec<String>, String> {
        let is_known = |name: &String| self.parameters.iter().any(|it| it.name == name);
        if let Some(name) = arguments.keys().find(|it| !is_known(it)) {
            return Err(format!("{} takes no {name:?}", self.name));
        }
        let mut words: Vec<String> = self.command.iter().map(|it| (*it).to_owned()).collect();
        // Nothing that stands alone is taken for a flag.
        let mut alone = Vec::new();
        for it in self.parameters {
            let Some(value) = arguments.get(it.name).filter(|it| !it.is_null()) else {
                if it.is_required {
                    return Err(format!("{} needs {:?}: {}", self.name, it.name, it.about));
                }
                continue;
            };
            let found =
                it.words(value).ok_or_else(|| format!("{:?} of {} is wrong: {}", it.name, self.name, it.about))?;
            if it.flag.is_empty() {
                alone.extend(found);
            } else if it.kind == Kind::Switch {
                words.extend(found.first().map(|_| it.flag.to_owned()));
            } else {
                words.extend(found.into_iter().map(|value| format!("{}={value}", it.flag)));
            }
        }
        if !alone.is_empty() {
            words.push("--".to_owned());
            words.extend(alone);
        }
        Ok(words)
    }
}

impl Parameter {
    /// Returns a value as words of a command line; `None` if it is of another kind.
    fn words(&self, value: &Value) -> Option<Vec<String>> {
        let text = |of: &Value| of.as_str().filter(|it| !it.is_empty() && !it.contains('\0')).map(str::to_owned);
        match self.kind {
            Kind::Text => Some(vec![text(value)?]),
            Kind::Recording => Some(vec![text(value).filter(|it| it.parse::<u64>().is_err())?]),
            Kind::Number => Some(vec![value.as_u64().filter(|it| *it > 0)?.to_string()]),
            Kind::Switch => Some(value.as_bool()?.then(String::new).into_iter().collect()),
            Kind::Command => value.as_array().filter(|it| !it.is_empty())?.iter().map(text).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str, arguments: &Value) -> Result<String, String> {
        let tool = offered(true).find(|it| it.name == name).unwrap();
        tool.command(arguments.as_object().unwrap()).map(|it| it.join(" "))
    }

    #[test]
    fn a_call_is_a_command_line_whose_values_are_no_flags() {
        assert_eq!(command("recordings", &json!({})).unwrap(), "recordings --json");
        assert_eq!(command("check", &json!({"recording": "--fix"})).unwrap(), "check --json -- --fix");
        let fit = json!({"gpu": "-x", "steps": 5, "whole": true, "command": ["python", "train.py", "--lr", "1"]});
        let expected = "fit --json --gpu=-x --steps=5 --whole -- python train.py --lr 1";
        assert_eq!(command("fit", &fit).unwrap(), expected);
        assert_eq!(command("fit", &json!({"whole": false, "command": ["a"]})).unwrap(), "fit --json -- a");
        assert_eq!(command("sites", &json!({"pid": 7})).unwrap(), "sites --json -- 7");
    }

    #[test]
    fn what_is_wrong_with_a_call_is_said() {
        for (name, arguments, words) in [
            ("check", json!({}), "check needs \"recording\""),
            ("check", json!({"recording": 7}), "\"recording\" of check is wrong"),
            ("check", json!({"recording": "a\0b"}), "is wrong"),
            ("check", json!({"recording": "last", "more": 1}), "check takes no \"more\""),
            ("peak", json!({"recording": "4242"}), "\"recording\" of peak is wrong"),
            ("fit", json!({"command": []}), "\"command\" of fit is wrong"),
            ("fit", json!({"command": ["a", 1]}), "is wrong"),
            ("sites", json!({"pid": -1}), "\"pid\" of sites is wrong"),
        ] {
            let found = command(name, &arguments).unwrap_err();
            assert!(found.contains(words), "{found}");
        }
    }

    #[test]
    fn nothing_that_acts_is_offered_unless_it_may() {
        let names = |may_act| offered(may_act).map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(names(false), ["state", "recordings", "check", "peak", "snapshot", "diff", "explain"]);
        assert!(["fit", "advise", "whatif", "peak_of_process", "sites"].iter().all(|it| names(true).contains(it)));
    }
}

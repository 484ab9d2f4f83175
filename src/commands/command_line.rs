//! The command line: flags over environment over the config file over defaults; the file's value replaces a flag's
//! default.

use super::{Command as Subcommands, ConfigUse, Subcommand, watch::WatchArgs};
use crate::{
    config::{
        Fault, Setting, Settings,
        keys::{KEYS, Kind},
    },
    facts::text::Foreign,
    model::alerts::Policy,
    screen::theme,
};
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, CommandFactory, Error, FromArgMatches, Parser,
    builder::{FalseyValueParser, StyledStr},
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use std::ffi::OsString;

/// Returns an error that shows arguments without control characters: a shell may have put names of files there.
pub(super) fn escaped(mut error: Error) -> Error {
    let shown = |text: &String| Foreign::new(text.as_str()).to_string();
    let mut changed = Vec::new();
    for (kind, value) in error.context() {
        let safe = match value {
            ContextValue::String(text) => ContextValue::String(shown(text)),
            ContextValue::Strings(texts) => ContextValue::Strings(texts.iter().map(shown).collect()),
            _ => continue,
        };
        if safe != *value {
            changed.push((kind, safe));
        }
    }
    if !changed.is_empty() {
        // Suggestions repeat the argument.
        error.remove(ContextKind::Suggested);
    }
    for (kind, safe) in changed {
        error.insert(kind, safe);
    }
    error
}

const EXAMPLE: &str = "Example:
  gpuwatch run -- python train.py    in one terminal
  gpuwatch                           in another, at any time

Without a command: the live view of all devices and probed jobs.";

/// Answers to questions of new users.
const ANSWERS: &str = "\
Jobs that run already: gpuwatch lists them with the driver's figures alone (bytes on each device, user, command). \
`gpuwatch attach PID` starts the probe in a running PyTorch job. A job that begins with its probe, by `gpuwatch run` or from \
a shell after `eval \"$(gpuwatch env)\"`, can be watched from its first step on.

Several machines: `gpuwatch --hosts node[01-16]` shows them through ssh, and `gpuwatch once --hosts node[01-16]` prints their \
state; nothing listens on the network for that. `gpuwatch --prometheus URL` shows what Prometheus knows of thousands of ranks \
from `gpuwatch serve`. For one run \
over all nodes: `eval \"$(gpuwatch env)\"`, then `srun gpuwatch run -- python train.py`. Each task records for itself; \
copy the files into one directory, and `gpuwatch replay`, `check` and `report` open it as one run. The machines' clocks \
have to agree.

For a team: gpuwatch is one file that contains the probe and depends on glibc alone. Build it on the oldest system that \
it runs on, and copy it to a shared directory. `gpuwatch doctor` says what is missing on a machine.";

/// Shows, live and per training step, where a GPU's memory goes.
#[derive(Debug, Parser)]
#[command(name = "gpuwatch", version, long_version = env!("GPUWATCH_VERSION"), args_conflicts_with_subcommands = true)]
#[command(after_help = EXAMPLE, after_long_help = format!("{EXAMPLE}\n\n{ANSWERS}"))]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Subcommands>,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
}

impl Cli {
    /// Returns the selected subcommand; without one, the live view.
    pub(super) fn subcommand(&self) -> &dyn Subcommand {
        self.command.as_ref().map_or(&self.watch, Subcommands::subcommand)
    }
}

/// Returns the command line, with the user's policy or the error in the file.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Cli, Result<Policy, Fault>), Error> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if matches!(&arguments[..], [_, help, flag] if help == "help" && (flag == "--help" || flag == "-h")) {
        // clap takes the flag for the name of a command.
        arguments.truncate(2);
    }
    move_flags(&mut arguments);
    let (described, matches) = match_arguments(&arguments)?;
    let cli = Cli::from_arg_matches(&matches)?;
    if cli.subcommand().config_use() == ConfigUse::Unused {
        return Ok((cli, Ok(Policy::default())));
    }
    let settings = match cli.watch.config.read().and_then(checked) {
        Ok(settings) => settings,
        Err(fault) => return Ok((cli, Err(fault))),
    };
    let is_set = settings.flags.iter().any(|it| it.key == "on-alert");
    if is_given(&matches, "on_alert_arg") && !is_given(&matches, "on_alert") && !is_set {
        let what = "--on-alert-arg is for the program of --on-alert, which is missing";
        return Err(command().error(ErrorKind::MissingRequiredArgument, what));
    }
    if settings.flags.is_empty() {
        return Ok((cli, Ok(settings.policy)));
    }
    // A program named on the command line does not use another one's arguments.
    let is_named = is_given(&matches, "on_alert");
    let flags: Vec<&Setting> = settings.flags.iter().filter(|it| !(is_named && it.key == "on-alert-arg")).collect();
    let matches = with_defaults(described(), &flags).try_get_matches_from(&arguments)?;
    Ok((Cli::from_arg_matches(&matches)?, Ok(settings.policy)))
}

/// Moves flags of the live view from before a subcommand to after it.
fn move_flags(arguments: &mut [OsString]) {
    let Ok(matches) = view().try_get_matches_from(&*arguments) else { return };
    let Some((_, subcommand)) = matches.subcommand() else { return };
    let after = subcommand.get_many::<OsString>("").map_or(0, Iterator::count);
    if let Some(before) = arguments.len().checked_sub(after + 2) {
        arguments[1..before + 2].rotate_left(before);
    }
}

/// Makes a description of a command line.
type Describe = fn() -> Command;

/// Parses with what has to be described for it. The live view needs none of the other commands: describing them takes
/// more memory than watching a machine does. Whatever is not the view's alone, errors and help too, is for all of them.
fn match_arguments(arguments: &[OsString]) -> Result<(Describe, ArgMatches), Error> {
    let alone = view().try_get_matches_from(arguments).ok().filter(|it| it.subcommand_name().is_none());
    match alone {
        Some(matches) => Ok((view, matches)),
        None => Ok((command, with_examples_first(command()).try_get_matches_from(arguments)?)),
    }
}

/// Returns the command line.
pub(super) fn command() -> Command {
    switches(Cli::command())
}

/// Returns the command line of the live view alone, to which the name of a command is a foreign one.
fn view() -> Command {
    switches(WatchArgs::augment_args(Command::new("gpuwatch"))).allow_external_subcommands(true)
}

/// Lets switches also be switched off, as in `--bell=false`.
fn switches(command: Command) -> Command {
    each(command, &|arg| {
        let is_switch = KEYS.iter().any(|it| it.kind == Kind::Switch && arg.get_long() == Some(it.name));
        if !is_switch {
            return arg;
        }
        let arg = arg.action(ArgAction::Set).value_parser(FalseyValueParser::new()).value_name("BOOL");
        let arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true").default_value("false");
        arg.hide_default_value(true).hide_possible_values(true)
    })
}

/// Help with examples before everything else but what the command is for.
const TEMPLATE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Moves the examples, which begin what follows the flags, before them.
fn with_examples_first(command: Command) -> Command {
    let command = command.mut_subcommands(with_examples_first);
    let split = |text: &StyledStr| {
        let text = text.to_string();
        let (examples, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        examples.starts_with("Example").then(|| (examples.to_owned(), rest.to_owned()))
    };
    let [short, long] = [command.get_after_help(), command.get_after_long_help()].map(|it| it.and_then(split));
    let Some((examples, rest)) = short else { return command };
    let command = command.help_template(TEMPLATE).before_help(examples).after_help(rest);
    match long {
        Some((_, rest)) => command.after_long_help(rest),
        None => command,
    }
}

/// Returns the examples of the command that these words name.
pub(super) fn examples(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    let named = arguments.into_iter().nth(1)?;
    let all = with_examples_first(command());
    Some(all.find_subcommand(&named)?.get_before_help()?.to_string())
}

/// Checks that flags accept the file's values; fails for the first that does not.
fn checked(settings: Settings) -> Result<Settings, Fault> {
    if settings.flags.is_empty() {
        return Ok(settings);
    }
    let command = command();
    for setting in &settings.flags {
        let Some(arg) = find(&command, setting.key) else { continue };
        for value in &setting.values {
            let names: Vec<String> = arg.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
            if let Err(why) = takes(arg, setting.key, value) {
                return Err(setting.fault(value, &why, names));
            }
            if setting.key == "theme"
                && let Err(fault) = theme::Choice::find(value)
            {
                return Err(setting.fault(value, &fault.to_string(), Vec::<String>::new()));
            }
        }
    }
    Ok(settings)
}

/// Returns whether a flag accepts a value, or clap's reason why not.
fn takes(arg: &Arg, long: &str, value: &str) -> Result<(), String> {
    let alone = arg.clone().global(false).required(false);
    let arguments = [OsString::from("gpuwatch"), OsString::from(format!("--{long}={value}"))];
    let Err(error) = Command::new("gpuwatch").arg(alone).try_get_matches_from(arguments) else { return Ok(()) };
    let known = arg.get_possible_values();
    let names: Vec<&str> = known.iter().map(clap::builder::PossibleValue::get_name).collect();
    Err(match std::error::Error::source(&error) {
        Some(why) => why.to_string(),
        None if !names.is_empty() => format!("there are {}", names.join(", ")),
        None => error.kind().to_string(),
    })
}

/// Returns the argument of a flag, of any command.
pub(super) fn find<'a>(command: &'a Command, long: &str) -> Option<&'a Arg> {
    let own = command.get_arguments().find(|it| it.get_long() == Some(long));
    own.or_else(|| command.get_subcommands().find_map(|it| find(it, long)))
}

fn with_defaults(command: Command, flags: &[&Setting]) -> Command {
    each(command, &|arg| {
        let set = flags.iter().find(|it| arg.get_long() == Some(it.key));
        set.map_or(arg.clone(), |it| arg.default_values(it.values.clone()))
    })
}

/// Applies a change to every argument of every command.
fn each(command: Command, change: &dyn Fn(Arg) -> Arg) -> Command {
    command.mut_args(change).mut_subcommands(|it| each(it, change))
}

/// Whether an argument is on the command line.
fn is_given(matches: &ArgMatches, id: &str) -> bool {
    let here = matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine);
    here || matches.subcommand().is_some_and(|(_, it)| is_given(it, id))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn flags_of_the_view_may_stand_before_a_subcommand() {
        for (line, moved) in [
            ("gpuwatch --config a.toml once --json", "gpuwatch once --config a.toml --json"),
            ("gpuwatch --config=a.toml run -- x", "gpuwatch run --config=a.toml -- x"),
            ("gpuwatch --theme paper demo", "gpuwatch demo --theme paper"),
            ("gpuwatch --theme paper --bell demo --seed 3", "gpuwatch demo --theme paper --bell --seed 3"),
            ("gpuwatch --hosts a,b --interval=2s once --json", "gpuwatch once --hosts a,b --interval=2s --json"),
            ("gpuwatch --readonly replay demo", "gpuwatch replay --readonly demo"),
            ("gpuwatch --theme paper run -- python --theme x", "gpuwatch run --theme paper -- python --theme x"),
            ("gpuwatch --theme demo", "gpuwatch --theme demo"),
            ("gpuwatch --config a.toml --bell", "gpuwatch --config a.toml --bell"),
            ("gpuwatch --config a.toml", "gpuwatch --config a.toml"),
            ("gpuwatch --config", "gpuwatch --config"),
            ("gpuwatch once --config a.toml", "gpuwatch once --config a.toml"),
        ] {
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            move_flags(&mut words);
            assert_eq!(words, moved.split(' ').map(OsString::from).collect::<Vec<_>>());
        }
    }

    /// Long flags that no file can set, and why.
    const EXCEPTIONS: [(&str, &str); 20] = [
        ("simulated", "fit sets it"),
        ("push", "it is of those machines"),
        ("hosts", "it names machines"),
        ("hosts-file", "it names machines"),
        ("slurm", "it names a job"),
        ("prometheus", "it names a store"),
        ("match", "it selects ranks there"),
        ("prometheus-token", "it is of that store"),
        ("prometheus-interval", "it is of that store"),
        ("transport", "it is of those machines"),
        ("remote-program", "it is of those machines"),
        ("name", "it is of one recording"),
        ("config", "it names the file"),
        ("output", "it names one recording"),
        ("trace", "it is of one recording"),
        ("trace-bytes", "it is of one recording"),
        ("seed", "it distinguishes demos"),
        ("screenshot", "it names one picture"),
        ("size", "it is of one picture"),
        ("screen", "it is of one picture"),
    ];

    /// Command lines of the live view and of subcommands whose flags the config file sets.
    pub(in crate::commands) const SHOWING: [&[&str]; 5] = [
        &["gpuwatch"],
        &["gpuwatch", "demo"],
        &["gpuwatch", "record"],
        &["gpuwatch", "replay"],
        &["gpuwatch", "run", "x"],
    ];

    fn arguments(of: &[&str]) -> Vec<OsString> {
        of.iter().map(OsString::from).collect()
    }

    pub(in crate::commands) fn parsed(file: &std::path::Path, of: &[&str]) -> (Cli, Result<Policy, Fault>) {
        let mut all = arguments(of);
        all.insert(of.len().min(if of.len() > 1 { 2 } else { 1 }), format!("--config={}", file.display()).into());
        parse(all).unwrap()
    }

    #[test]
    fn the_view_alone_is_parsed_as_among_all_commands() {
        let whole = |of: &[OsString]| command().try_get_matches_from(of).map(|it| Cli::from_arg_matches(&it).unwrap());
        let of_view = command();
        let mut lines = vec![vec!["gpuwatch".to_owned()]];
        for arg in of_view.get_arguments() {
            let Some(long) = arg.get_long() else { continue };
            for value in
                ["", "=1s", "=7", "=true", "=false", "=dusk", "=training", "=node1", "=http://host:9090", "=/tmp/x"]
            {
                lines.push(vec!["gpuwatch".to_owned(), format!("--{long}{value}")]);
            }
        }
        let mut alone = 0;
        for line in &lines {
            let of: Vec<OsString> = line.iter().map(OsString::from).collect();
            let Ok((described, matches)) = match_arguments(&of) else {
                assert!(whole(&of).is_err(), "{line:?}");
                continue;
            };
            alone += usize::from(described().get_subcommands().next().is_none());
            let parsed = Cli::from_arg_matches(&matches).unwrap();
            assert_eq!(format!("{parsed:?}"), format!("{:?}", whole(&of).unwrap()), "{line:?}");
        }
        assert!(alone > of_view.get_arguments().count(), "{alone} lines of {}", lines.len());
        for line in [&["gpuwatch", "demo"][..], &["gpuwatch", "--bell", "demo"], &["gpuwatch", "no-such-command"]] {
            let both = (
                match_arguments(&arguments(line)).map(|it| it.1.subcommand_name().map(str::to_owned)),
                whole(&arguments(line)),
            );
            assert_eq!(both.0.is_ok(), both.1.is_ok(), "{line:?}");
            if let (Err(one), Err(other)) = both {
                assert_eq!(one.to_string(), other.to_string(), "{line:?}");
            }
        }
    }

    #[test]
    fn every_flag_has_a_key_or_a_reason_and_every_key_a_flag() {
        let command = command();
        let commands: Vec<&Command> = SHOWING
            .iter()
            .map(|it| it.get(1).map_or(&command, |name| command.find_subcommand(name).unwrap()))
            .collect();
        let longs = |it: &Command| {
            it.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect::<Vec<_>>()
        };
        let flags: Vec<String> = commands.into_iter().flat_map(longs).collect();
        for flag in &flags {
            let is_known = KEYS.iter().any(|it| it.name == flag) || EXCEPTIONS.iter().any(|it| it.0 == flag);
            assert!(is_known, "--{flag} has no key in the config, and no reason why");
        }
        for name in KEYS.iter().map(|it| it.name).chain(EXCEPTIONS.iter().map(|it| it.0)) {
            assert!(flags.iter().any(|it| it == name), "{name} is the name of no flag");
        }
    }

    #[test]
    fn a_flag_overrides_the_file_and_the_file_overrides_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        fs::write(
            &file,
            "[view]\ntheme = 'paper'\nreadonly = true\n[driver]\ninterval = '2s'\n[alerts]\nbell = true\n\
                          on-alert = 'sh'\non-alert-arg = ['-c', 'true']\n[recordings]\nkeep = 7\n",
        )
        .unwrap();
        let args = parsed(&file, &["gpuwatch"]).0.watch;
        assert_eq!(
            (args.screen.theme.as_str(), args.screen.readonly, args.bell, args.notify),
            ("paper", true, true, false)
        );
        assert_eq!(args.watching.interval, std::time::Duration::from_secs(2));
        assert_eq!(args.on_alert.on_alert_arg, arguments(&["-c", "true"]));
        let mut all =
            arguments(&["gpuwatch", "--theme", "dusk", "--bell=false", "--interval=1s", "--on-alert", "true"]);
        all.push(format!("--config={}", file.display()).into());
        let args = parse(all).unwrap().0.watch;
        assert_eq!((args.screen.theme.as_str(), args.screen.readonly, args.bell), ("dusk", true, false));
        assert_eq!(args.watching.interval, std::time::Duration::from_secs(1));
        assert_eq!(args.on_alert.on_alert_arg, arguments(&[]), "they are another program's");
        let Some(Subcommands::Run(run)) = parsed(&file, &["gpuwatch", "run", "x"]).0.command else { panic!("no run") };
        assert_eq!((run.keep.keep, run.keep.keep_bytes), (7, 4 << 30));
    }

    #[test]
    fn an_unaccepted_value_is_reported_with_its_line_its_key_and_the_nearest_value() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        for (text, parts) in [
            ("[driver]\n\ninterval = '5'", &["c.toml:3: driver.interval = \"5\": ", "has no unit"][..]),
            (
                "[view]\ncolor = 'nevr'",
                &["c.toml:2: view.color = \"nevr\": there are auto, ", "the nearest is \"never\""],
            ),
            ("[view]\ntheme = 'dsk'", &["c.toml:2: view.theme = \"dsk\": ", "dusk"]),
            ("[recordings]\nkeep = 0", &["c.toml:2: recordings.keep = \"0\": 0 is not in 1"]),
            ("[recordings]\nkeep-bytes = 'much'", &["c.toml:2: recordings.keep-bytes = \"much\": a size begins"]),
            (
                "[alerts]\non-alert = 'no-such-program'",
                &["c.toml:2: alerts.on-alert = ", "there is no program of that name"],
            ),
        ] {
            fs::write(&file, text).unwrap();
            for of in [&["gpuwatch"][..], &["gpuwatch", "run", "x"]] {
                let fault = parsed(&file, of).1.unwrap_err().to_string();
                assert!(parts.iter().all(|it| fault.contains(it)), "{fault}");
            }
        }
    }
}

//! `gpuwatch generate`: the commented config, completions and the manual.

use super::{
    ConfigUse, Invocation, Subcommand,
    command_line::{self, find},
};
use crate::{
    config::keys::{KEYS, Kind, LISTS, SECTIONS},
    screen::keys,
    storage::output,
};
use anyhow::{Context, Result};
use clap::{Command, builder::StyledStr};
use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

/// The width of comments.
const WIDTH: usize = 100;

/// The arguments of `gpuwatch generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuwatch generate config > ~/.config/gpuwatch/config.toml\n  gpuwatch generate \
                            completions bash > ~/.local/share/bash-completion/completions/gpuwatch\n  gpuwatch generate \
                            man ~/.local/share/man/man1")]
pub(super) struct GenerateArgs {
    /// What to print.
    #[command(subcommand)]
    what: Generated,
}

/// What can be generated.
#[derive(Debug, clap::Subcommand)]
enum Generated {
    /// The config with every key, each at its default and commented out.
    Config,
    /// Completions for a shell.
    Completions {
        /// The shell to complete for.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// The manual's page; with a directory, a page for each command in it.
    Man {
        /// The directory to write the pages into.
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

impl Subcommand for GenerateArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        generate(&self.what)?;
        Ok(0)
    }
}

fn generate(what: &Generated) -> Result<()> {
    let mut command = command_line::command();
    match what {
        Generated::Config => output::print(&config(&command))?,
        Generated::Completions { shell } => {
            let mut text = Vec::new();
            // Hidden commands are not completed.
            let shown = command.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
            let mut shown = Command::new("gpuwatch").args(command.get_arguments().cloned()).subcommands(shown);
            clap_complete::generate(*shell, &mut shown, "gpuwatch", &mut text);
            output::write(|out| out.write_all(&text))?;
        }
        Generated::Man { directory: None } => {
            let page = page(command)?;
            output::write(|out| out.write_all(&page))?;
        }
        Generated::Man { directory: Some(directory) } => {
            let within = || format!("cannot write the manual into {}", directory.display());
            fs::create_dir_all(directory).with_context(within)?;
            command.build();
            let pages = command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help").cloned();
            for it in pages.collect::<Vec<_>>() {
                let name = format!("gpuwatch-{}", it.get_name());
                let text = page(it.display_name(name.clone()))?;
                fs::write(directory.join(format!("{name}.1")), text).with_context(within)?;
            }
            fs::write(directory.join("gpuwatch.1"), page(command_line::command())?).with_context(within)?;
        }
    }
    Ok(())
}

/// Returns every key at its default, commented out.
pub(super) fn config(command: &Command) -> String {
    let mut text = String::from(
        "# gpuwatch's config: $XDG_CONFIG_HOME/gpuwatch/config.toml, or --config FILE, or GPUWATCH_CONFIG.\n\
         # The commented lines show the defaults. Flags and the environment take precedence.\n",
    );
    // Writing to a string cannot fail.
    for section in SECTIONS {
        let _ = write!(text, "\n[{section}]\n");
        for (name, help) in LISTS.iter().filter(|_| section == "alerts") {
            let _ = write!(text, "{}#{name} = []\n\n", comment(help));
        }
        for key in KEYS.iter().filter(|it| it.section == section) {
            let Some(arg) = find(command, key.name) else { continue };
            let help = arg.get_help().map(StyledStr::to_string).unwrap_or_default();
            let values: Vec<String> =
                arg.get_default_values().iter().map(|it| it.to_string_lossy().into_owned()).collect();
            let value = match key.kind {
                Kind::Text => format!("{:?}", values.join("")),
                Kind::Switch => values.join(""),
                Kind::List => format!("{values:?}"),
            };
            let names: Vec<String> = arg.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
            let known = if names.is_empty() || key.kind == Kind::Switch {
                String::new()
            } else {
                format!(" One of: {}.", names.join(", "))
            };
            let _ = write!(
                text,
                "{}#{} = {value}\n\n",
                comment(&format!("{}.{known}", help.trim_end_matches('.'))),
                key.name
            );
        }
        text.pop();
    }
    text
}

/// Wraps words into lines of at most [`WIDTH`] characters, each after `# `.
fn comment(words: &str) -> String {
    let mut text = String::new();
    let mut taken = WIDTH;
    for word in words.split_whitespace() {
        let width = word.chars().count() + 1;
        if taken + width > WIDTH {
            text.push_str(if text.is_empty() { "#" } else { "\n#" });
            taken = 1;
        }
        text.push(' ');
        text.push_str(word);
        taken += width;
    }
    text + "\n"
}

/// Returns a page of the manual; the program's page has the keys of its screens.
fn page(command: Command) -> io::Result<Vec<u8>> {
    let is_program = command.get_name() == "gpuwatch";
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if is_program {
        text.push_str(".SH KEYS\n");
        // Writing to a string cannot fail.
        for section in keys::sections() {
            let _ = writeln!(text, ".SS {}", roff(section.title));
            for (keys, help) in section.keys {
                let _ = write!(text, ".TP\n\\fB{}\\fR\n{}\n", roff(keys), roff(help));
            }
        }
    }
    // Non-ASCII characters are named, so that it needs no preprocessor.
    let ascii = text.chars().fold(String::new(), |mut all, it| {
        if it.is_ascii() {
            all.push(it);
        } else {
            let _ = write!(all, "\\[u{:04X}]", u32::from(it));
        }
        all
    });
    Ok(ascii.into_bytes())
}

/// Escapes a text with a zero-width mark, because lines that begin with a dot are commands.
fn roff(text: &str) -> String {
    format!("\\&{}", text.replace('\\', "\\e").replace('-', "\\-"))
}

#[cfg(test)]
mod tests {
    use super::{
        super::command_line::{
            Cli,
            tests::{SHOWING, parsed},
        },
        *,
    };
    use crate::model::alerts::Policy;

    #[test]
    fn the_generated_file_has_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, full) = (dir.path().join("empty.toml"), dir.path().join("full.toml"));
        fs::write(&empty, "").unwrap();
        let text = config(&command_line::command());
        let written: String = text
            .lines()
            .map(|it| {
                it.strip_prefix('#').filter(|line| !line.starts_with([' ', '#']) && line.contains(" = ")).unwrap_or(it)
            })
            .map(|it| it.to_owned() + "\n")
            .collect();
        fs::write(&full, &written).unwrap();
        for key in KEYS {
            assert!(written.lines().any(|it| it.starts_with(&format!("{} = ", key.name))), "{}:\n{written}", key.name);
        }
        for of in SHOWING {
            let (plain, spelled) = (parsed(&empty, of), parsed(&full, of));
            let shown = |it: &Cli| format!("{it:?}").replace("empty.toml", "full.toml");
            assert_eq!(shown(&plain.0), shown(&spelled.0), "{of:?}");
            assert_eq!((plain.1, spelled.1), (Ok(Policy::default()), Ok(Policy::default())), "{written}");
        }
    }
}

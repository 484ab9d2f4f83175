//! Quotes words and exports for shells. All quoting is here.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// The shells that quote differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// sh, bash, zsh, dash, ksh.
    #[default]
    Sh,
    /// fish.
    Fish,
    /// csh, tcsh.
    Csh,
}

impl Shell {
    /// Returns the line that sets `name` to `value` for all later commands, with its newline.
    pub fn export(self, name: &OsStr, value: &OsStr) -> Vec<u8> {
        let name = name.as_bytes();
        let quoted = self.quote(value.as_bytes());
        let (before, between): (&[u8], &[u8]) = match self {
            Self::Sh => (b"export ", b"="),
            Self::Fish => (b"set -gx ", b" "),
            Self::Csh => (b"setenv ", b" "),
        };
        [before, name, between, &quoted, b"\n"].concat()
    }

    /// Puts a value in single quotes, where only the closing quote needs an escape.
    pub fn quote(self, value: &[u8]) -> Vec<u8> {
        let mut quoted = vec![b'\''];
        for byte in value {
            match (self, byte) {
                (Self::Fish, b'\'' | b'\\') | (Self::Csh, b'!' | b'\n') => quoted.extend([b'\\', *byte]),
                (Self::Sh | Self::Csh, b'\'') => quoted.extend(b"'\\''"),
                _ => quoted.push(*byte),
            }
        }
        quoted.push(b'\'');
        quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn sh_reads_back_what_was_exported() {
        for value in ["plain", "it's", "a b$HOME`id`\"\\", "two\nlines", "-n", "", "ünï"] {
            let mut script = Shell::Sh.export(OsStr::new("GIVEN"), OsStr::new(value));
            script.extend(b"printf %s \"$GIVEN\"");
            let printed = Command::new("/bin/sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap().stdout;
            assert_eq!(String::from_utf8(printed).unwrap(), value);
        }
    }

    #[test]
    fn each_shell_has_its_own_syntax() {
        let line = |shell: Shell| String::from_utf8(shell.export(OsStr::new("A"), OsStr::new("it's!"))).unwrap();
        assert_eq!(line(Shell::Sh), "export A='it'\\''s!'\n");
        assert_eq!(line(Shell::Fish), "set -gx A 'it\\'s!'\n");
        assert_eq!(line(Shell::Csh), "setenv A 'it'\\''s\\!'\n");
    }
}

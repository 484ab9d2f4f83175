//! Detects a command that starts a Python without the probe.

use std::path::Path;

/// Returns the Python and the option by which it ignores the environment, as in `python3 -I`.
///
/// Skips options of other commands (`nice -n 5 python -I train.py`); options after a script's name belong to the
/// script.
pub fn without_probe<S: AsRef<str>>(argv: &[S]) -> Option<String> {
    let mut words = argv.iter().map(AsRef::as_ref);
    let python = words.by_ref().map(name).find(|it| is_python(it))?;
    while let Some(option) = words.next().and_then(|it| it.strip_prefix('-')) {
        if option.starts_with('-') {
            continue;
        }
        for letter in option.chars() {
            match letter {
                'I' | 'E' | 'S' => return Some(format!("{python} -{letter}")),
                // A command or a module ends the options.
                'c' | 'm' => return None,
                // Their value is the rest of the argument, or the next one.
                'W' | 'X' => {
                    if option.ends_with(letter) {
                        words.next();
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    None
}

/// Describes the problem and what to do.
pub fn words(option: &str) -> String {
    let name = option.split(' ').next_back().unwrap_or_default();
    format!("`{option}` keeps the probe out: start Python without {name}")
}

fn name(word: &str) -> &str {
    Path::new(word).file_name().and_then(|it| it.to_str()).unwrap_or_default()
}

/// Matches `python`, `python3`, `python3.11`.
fn is_python(name: &str) -> bool {
    let version = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    version.is_some_and(|it| it.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_keep_the_probe_out_are_found() {
        let found = [
            ("python -I train.py", "python -I"),
            ("/usr/bin/python3.11 -uS train.py", "python3.11 -S"),
            ("nice -n 5 python3 -X dev -W error -E train.py", "python3 -E"),
            ("env A=1 python -Wignore -Im torch.distributed.run", "python -I"),
            ("python --check-hash-based-pycs default", ""),
            ("python -u train.py -I -E -S", ""),
            ("python -c -S", ""),
            ("python -m module -I", ""),
            ("python -XI train.py", ""),
            ("torchrun -I", ""),
            ("pythonic -I", ""),
            ("python", ""),
            ("", ""),
        ];
        for (argv, option) in found {
            let argv: Vec<&str> = argv.split_whitespace().collect();
            assert_eq!(without_probe(&argv).unwrap_or_default(), option, "{argv:?}");
        }
    }
}

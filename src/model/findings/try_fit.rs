//! The next command for a job that is too large: `gpuwatch fit` with the job's own command filled in.

use crate::facts::text::{COMMAND_MAX, Foreign, command};

/// Returns a line with the command that finds the largest batch that fits, or on which devices the job fits as it is;
/// `None` without the job's command.
pub(super) fn words(argv: &[String], varies: bool) -> Option<String> {
    if argv.len() < 2 {
        return None;
    }
    if !varies {
        let line = command(["gpuwatch", "fit", "--"].into_iter().chain(argv.iter().map(String::as_str)), COMMAND_MAX);
        return Some(format!("to find a device on which it fits: {}", Foreign::new(line)));
    }
    let mut words: Vec<String> = argv.to_vec();
    let batch = batch(&mut words);
    let range = format!("batch=1..{}", batch.unwrap_or(64));
    let start = ["gpuwatch", "fit", "--vary", &range, "--"].into_iter();
    let line = command(start.chain(words.iter().map(String::as_str)), COMMAND_MAX);
    let how = if batch.is_some() { "" } else { " (the script reads it from the environment variable `batch`)" };
    Some(format!("to find the largest batch that fits: {}{how}", Foreign::new(line)))
}

/// Puts `{batch}` in the place of the batch size of a command, and returns that size.
fn batch(words: &mut [String]) -> Option<u64> {
    let is_name = |it: &str| {
        let name = it.trim_start_matches('-').rsplit('.').next().unwrap_or_default().to_lowercase();
        let name = name.replace(['-', '_'], "");
        name == "bs" || ["batch", "batchsize"].iter().any(|ending| name.ends_with(ending)) && !name.starts_with("num")
    };
    for place in 1..words.len() {
        let word = words.get(place)?.clone();
        if let Some((name, value)) = word.split_once('=') {
            if let Some(size) = value.parse().ok().filter(|it| *it > 0 && is_name(name)) {
                *words.get_mut(place)? = format!("{name}={{batch}}");
                return Some(size);
            }
        } else if word.starts_with('-')
            && is_name(&word)
            && let Some(value) = words.get_mut(place + 1)
            && let Some(size) = value.parse().ok().filter(|it| *it > 0)
        {
            "{batch}".clone_into(value);
            return Some(size);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(of: &str) -> Option<String> {
        words(&of.split(' ').map(str::to_owned).collect::<Vec<_>>(), true)
    }

    #[test]
    fn the_batch_size_of_the_command_varies() {
        let start = "to find the largest batch that fits: gpuwatch fit --vary batch=1..";
        for (command, expected) in [
            ("python train.py --batch-size 48 --lr 1", "48 -- python train.py --batch-size '{batch}' --lr 1"),
            ("python t.py --per_device_train_batch_size=8", "8 -- python t.py '--per_device_train_batch_size={batch}'"),
            ("python -m app data.batch_size=16", "16 -- python -m app 'data.batch_size={batch}'"),
            (
                "python t.py --limit_train_batches=100 --train-batch 8",
                "8 -- python t.py --limit_train_batches=100 --train-batch '{batch}'",
            ),
            (
                "python t.py --num-batches 5 --eval_every_batches 9 --bs 4",
                "4 -- python t.py --num-batches 5 --eval_every_batches 9 --bs '{batch}'",
            ),
            ("python train.py", "64 -- python train.py (the script reads it from the environment variable `batch`)"),
            ("python train.py --batch auto", "64 -- python train.py --batch auto (the script reads it"),
        ] {
            let found = line(command).unwrap();
            assert!(found.starts_with(&format!("{start}{expected}")), "{found}");
        }
        assert_eq!(line("python"), None);
    }
}

//! Hides secrets in any command line: hiding them twice changes nothing.

#![no_main]

use gpuwatch_probe::{
    secrets::{arguments, source, text},
    wire::limits::{ARGUMENTS_MAX, ARGV_MAX, TEXT_MAX, arguments as cut, shortened},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(line) = str::from_utf8(bytes) else { return };
    let argv: Vec<String> = line.split('\n').map(str::to_owned).collect();
    let shown = arguments(&argv);
    assert_eq!((shown.len(), &arguments(&shown)), (argv.len(), &shown));
    let once = text(line).into_owned();
    assert_eq!(text(&once), once);
    let _ = source(line);
    let short = shortened(line, TEXT_MAX / 64);
    assert_eq!(shortened(&short, TEXT_MAX / 64), short);
    let few = cut(shown, ARGV_MAX / 64, ARGUMENTS_MAX / 64);
    assert_eq!(cut(few.clone(), ARGV_MAX / 64, ARGUMENTS_MAX / 64), few);
});

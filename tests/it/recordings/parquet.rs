//! `gpuwatch export --format parquet`: the same rows as the other formats, for other programs' readers.

use crate::{
    commands::check::{HEALTHY, lines_of, write},
    helpers::{terminal::PROGRAM, venv::Venv},
    probe::pytorch::script,
};
use gpuwatch::facts::event::{Line, wire::Job};
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::Field,
};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// Programs that read Parquet.
static READERS: Venv = Venv {
    variable: "GPUWATCH_READERS_VENV",
    name: "venv-parquet-1",
    holds: "DuckDB, pandas and pyarrow (a download of about 110 MB)",
    packages: &[&[
        "duckdb==2.0.0",
        "numpy==2.4.6",
        "pandas==3.1.1",
        "pyarrow==26.0.1",
        "python-dateutil==4.0.0",
        "tzdata==2026.6",
    ]],
    above: None,
    python: OnceLock::new(),
};

/// Two ranks of one run on two hosts; the second holds twice as much.
fn run(dir: &Path) -> PathBuf {
    let folder = dir.join("run");
    fs::create_dir(&folder).unwrap();
    for rank in 0..2 {
        let lines = lines_of(HEALTHY, |line| match line {
            Line::Hello(it) => {
                it.host = format!("node-{rank}");
                it.rank = Some(rank);
                it.run = Some("night".to_owned());
                it.job = Some(Job { scheduler: "slurm".to_owned(), id: "4711".to_owned() });
            }
            Line::Sample(it) => {
                let double = |known: &mut Option<u64>| *known = known.map(|it| it * (rank + 1));
                double(&mut it.counters.allocated);
                double(&mut it.counters.reserved);
            }
            _ => {}
        });
        write(&folder.join(format!("{rank}.jsonl.zst")), &lines);
    }
    folder
}

fn exported(from: &Path, format: &str, to: &Path) -> std::process::Output {
    let out = File::create(to).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["export", "--format", format]).arg(from).stdout(out).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

fn rows_of(from: &Path, dir: &Path) -> Vec<Value> {
    let path = dir.join("rows.jsonl");
    assert!(exported(from, "jsonl", &path).status.success());
    fs::read_to_string(path).unwrap().lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

#[test]
fn a_parquet_file_has_the_rows_of_the_other_formats() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (run(dir.path()), dir.path().join("run.parquet"));
    let output = exported(&from, "parquet", &to);
    assert!(output.status.success(), "{output:?}");
    let expected = rows_of(&from, dir.path());
    let reader = SerializedFileReader::new(File::open(&to).unwrap()).unwrap();
    let mut rows = 0;
    for (row, object) in reader.get_row_iter(None).unwrap().zip(&expected) {
        rows += 1;
        for (name, field) in row.unwrap().get_column_iter() {
            let name = if name == "time" { "unix_us" } else { name };
            let value = match field {
                Field::Null => Value::Null,
                Field::Long(it) | Field::TimestampMicros(it) => json!(it),
                Field::Str(it) => json!(it),
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(object.get(name).cloned().unwrap_or_default(), value, "{name}: {object}");
        }
        assert_eq!((&object["run"], &object["job"]), (&json!("night"), &json!("4711")));
    }
    assert!(rows > 100 && rows == expected.len(), "{rows}");
    let written = fs::metadata(&to).unwrap().len();
    let plain = fs::metadata(dir.path().join("rows.jsonl")).unwrap().len();
    assert!(written * 8 < plain, "{written} {plain}");
}

#[test]
fn a_damaged_recording_makes_no_parquet_file_that_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let (file, to) = (dir.path().join("a.jsonl.zst"), dir.path().join("a.parquet"));
    let mut lines = lines_of(HEALTHY, |_| ());
    lines.insert(40, "{\"at_us\": \"no number\"}\n".to_owned());
    write(&file, &lines);
    let output = exported(&file, "parquet", &to);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("line 41 is not a line of a recording"), "{errors}");
    assert!(errors.contains("--format csv"), "{errors}");
    assert!(SerializedFileReader::new(File::open(&to).unwrap()).is_err());
    // Without its end, all of it can be read that there is.
    let mut lines = lines_of(HEALTHY, |_| ());
    lines.pop();
    write(&file, &lines);
    let output = exported(&file, "parquet", &to);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.contains("not closed"), "{errors}");
    let reader = SerializedFileReader::new(File::open(&to).unwrap()).unwrap();
    assert_eq!(
        usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap(),
        rows_of(&file, dir.path()).len()
    );
    fs::write(&file, "no recording").unwrap();
    assert!(!exported(&file, "parquet", &to).status.success());
}

/// The queries of the document, and the types, units and sums that the readers see.
#[test]
fn duckdb_and_pandas_read_types_units_and_the_documented_queries() {
    test_tiers::full!("DuckDB, pandas and pyarrow");
    let python = test_tiers::needs!(READERS.found());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recordings.md");
    let page = fs::read_to_string(page).unwrap();
    let queries: Vec<&str> = page.split("```sql\n").skip(1).filter_map(|it| it.split("```").next()).collect();
    assert_eq!(queries.len(), 3);
    let dir = tempfile::tempdir().unwrap();
    let from = run(dir.path());
    assert!(exported(&from, "parquet", &dir.path().join("run.parquet")).status.success());
    let expected = rows_of(&from, dir.path());
    let mut command = Command::new(python);
    command.arg(script("parquet.py")).args(&queries).current_dir(dir.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, duckdb, pandas) in [
        ("time", "TIMESTAMP WITH TIME ZONE", "datetime64[us, UTC]"),
        ("host", "VARCHAR", "str"),
        ("rank", "BIGINT", "int64"),
        ("job", "VARCHAR", "str"),
        ("allocated", "BIGINT", "int64"),
        ("step_us", "BIGINT", "float64"),
    ] {
        assert_eq!((&read["duckdb"][name], &read["pandas"][name]), (&json!(duckdb), &json!(pandas)), "{name}");
    }
    let units = [("allocated", "bytes"), ("retries", "count"), ("step_us", "µs"), ("power_mw", "mW")];
    for (name, unit) in units {
        assert_eq!((&read["duckdb_units"][name], &read["pyarrow_units"][name]), (&json!(unit), &json!(unit)), "{name}");
    }
    let sum = |name: &str| expected.iter().filter_map(|it| it[name].as_u64()).sum::<u64>();
    for name in ["rank", "allocated", "reserved", "step_us", "rss"] {
        assert_eq!(
            (&read["duckdb_sums"][name], &read["pandas_sums"][name]),
            (&json!(sum(name)), &json!(sum(name))),
            "{name}"
        );
    }
    let answers = read["queries"].as_array().unwrap();
    // The rank that holds twice as much is the first of the first query.
    let highest =
        |rank: u64| expected.iter().filter(|it| it["rank"] == rank).filter_map(|it| it["reserved"].as_u64()).max();
    let bytes = |row: usize| answers[0][row].as_array().unwrap().clone();
    assert_eq!(bytes(0)[..3], [json!("node-1"), json!(1), json!(highest(1))]);
    assert_eq!(bytes(1)[..3], [json!("node-0"), json!(0), json!(highest(0))]);
    let rates: Vec<f64> = answers[1].as_array().unwrap().iter().map(|it| it[1].as_f64().unwrap()).collect();
    assert!(rates.len() == 2 && rates.iter().all(|it| it.abs() < 1.0), "{rates:?}");
    assert!(!answers[2].as_array().unwrap().is_empty(), "{answers:?}");
}

//! The text that Prometheus reads, and a file with it: its own format, which textfile collectors and `promtool` take,
//! and that of `OpenMetrics` 1.0.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>,
//! <https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md>

use super::{
    families::{Family, Kind, Row},
    series::Series,
};
use crate::{
    facts::text::Foreign,
    net::escape_label,
    storage::{input, output},
};
use anyhow::{Context, Result, bail};
use std::{
    fmt::{self, Write},
    fs,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

/// A format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus, version 0.0.4.
    Prometheus,
    /// `OpenMetrics`, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format that a request's `Accept` header prefers.
    pub fn accepted(header: &str) -> Self {
        if header.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the series as text, family by family.
    pub fn text(self, series: &[Series]) -> String {
        let mut out = String::new();
        for row in Family::TABLE {
            let own: Vec<&Series> = series.iter().filter(|it| it.family == row.family).collect();
            if !own.is_empty() {
                self.head(&mut out, row);
            }
            for it in own {
                line(&mut out, row, it);
            }
        }
        if self == Self::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }

    fn head(self, out: &mut String, row: &Row) {
        let kind = match row.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        // OpenMetrics describes the counter, Prometheus its series.
        let name = match self {
            Self::OpenMetrics => row.name.to_owned(),
            Self::Prometheus => figure_name(row),
        };
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", row.meaning);
        if self == Self::OpenMetrics && !row.unit.is_empty() {
            let _ = writeln!(out, "# UNIT {name} {}", row.unit);
        }
    }
}

fn figure_name(row: &Row) -> String {
    format!("{}{}", row.name, if row.kind == Kind::Counter { "_total" } else { "" })
}

fn line(out: &mut String, row: &Row, figure: &Series) {
    out.push_str(&figure_name(row));
    for (place, (name, value)) in figure.labels.iter().enumerate() {
        let before = if place == 0 { '{' } else { ',' };
        let _ = write!(out, "{before}{name}=\"{}\"", escape_label(&value.to_string()));
    }
    if !figure.labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {}", figure.value);
}

/// How every file of gpuwatch's begins.
const BEGINNING: &str = "# HELP gpuwatch_";

/// The file. Dropping it removes it, so that a collector reads no figures of a program that has ended.
#[derive(Debug)]
pub struct Textfile {
    path: PathBuf,
}

impl Textfile {
    /// Takes a path whose file does not exist, or was written by an earlier gpuwatch.
    ///
    /// # Errors
    /// Fails if there is another file, or if the path has no name.
    pub fn new(path: &Path) -> Result<Self> {
        if path.file_name().is_none() {
            bail!("{} names no file", path.display());
        }
        match beginning(path) {
            Ok(bytes) if bytes == BEGINNING.as_bytes() => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(_) => bail!("{} is not gpuwatch's and is not written over: name another file", path.display()),
            Err(error) => return Err(error).with_context(|| format!("cannot replace {}", path.display())),
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Replaces its text at once: a reader gets the old or the new one. Everybody may read it.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(&self, text: &str) -> Result<()> {
        output::replace(&self.path, 0o644, text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl fmt::Display for Textfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Foreign::new(self.path.to_string_lossy()))
    }
}

impl Drop for Textfile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns as many bytes of a file as gpuwatch's own begins with.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted() -> Vec<Series> {
        let labels = vec![("gpu_uuid", "a\"b\\c\u{1b}[2J\n".into())];
        vec![
            Series { family: Family::Ooms, labels, value: 3.0 },
            Series { family: Family::DeviceTotal, labels: Vec::new(), value: 150_323_855_360.0 },
        ]
    }

    #[test]
    fn both_formats_have_their_own_heads_and_the_same_series() {
        let body = "gpuwatch_ooms_total{gpu_uuid=\"a\\\"b\\\\c\\\\u{1b}[2J\\\\u{a}\"} 3\n";
        let prometheus = Format::Prometheus.text(&planted());
        assert!(prometheus.ends_with(&format!("# TYPE gpuwatch_ooms_total counter\n{body}")), "{prometheus}");
        assert!(prometheus.contains("\ngpuwatch_device_memory_total_bytes 150323855360\n"), "{prometheus}");
        assert!(!prometheus.contains("# UNIT") && !prometheus.contains("# EOF"), "{prometheus}");
        let open = Format::OpenMetrics.text(&planted());
        assert!(open.ends_with(&format!("# TYPE gpuwatch_ooms counter\n{body}# EOF\n")), "{open}");
        assert!(open.contains("# UNIT gpuwatch_device_memory_total_bytes bytes\n"), "{open}");
    }

    #[test]
    fn a_scrape_gets_the_format_that_it_accepts() {
        let newer = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(Format::accepted(newer), Format::OpenMetrics);
        assert_eq!((Format::accepted("*/*"), Format::accepted("")), (Format::Prometheus, Format::Prometheus));
    }

    #[test]
    fn a_file_of_other_programs_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpuwatch.prom");
        fs::write(&path, "mine\n").unwrap();
        assert!(Textfile::new(&path).unwrap_err().to_string().contains("not written over"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n");
        fs::remove_file(&path).unwrap();
        let own = Textfile::new(&path).unwrap();
        let text = format!("{BEGINNING}step Steps.\n");
        own.write(&text).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(Textfile::new(&path).is_ok());
        own.write(&text).unwrap();
        drop(own);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(Textfile::new(Path::new("/")).is_err());
    }
}

//! A table as Parquet: whole numbers, texts and a time, in row groups of zstd. Units are in the file's metadata, as
//! JSON under `units`: Parquet's schema has no place for them.
//!
//! <https://parquet.apache.org/docs/file-format/>

use super::{ExportRow, FIGURES, metrics};
use crate::facts::event::wire::{Counters, Parts, Unit};
use parquet::{
    basic::{Compression, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, DataType, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};
use serde_json::{Map, Value};
use std::{
    io::{self, Write},
    mem,
    sync::Arc,
};

/// Rows of a group: less than 16 MiB until it is written.
const ROWS: usize = 16 << 10;

const LEVEL: i32 = 3;

/// The columns with texts; all others are whole numbers.
const TEXTS: [&str; 5] = ["host", "run", "job", "device_id", "edge"];

/// The column that is a time here: µs of Unix time.
const TIME: &str = "unix_us";

/// The cells of a column since the last group.
struct Column {
    name: &'static str,
    cells: Cells,
    /// 1 for each cell that is known, 0 for each that is not.
    levels: Vec<i16>,
}

/// The known ones.
enum Cells {
    Numbers(Vec<i64>),
    Texts(Vec<ByteArray>),
}

/// A Parquet file that is written row by row.
pub(super) struct File<'a, W> {
    out: &'a mut W,
    /// What is written is passed on after each group.
    writer: SerializedFileWriter<Vec<u8>>,
    columns: Vec<Column>,
}

impl<'a, W: Write> File<'a, W> {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub(super) fn begin(names: &[&'static str], out: &'a mut W) -> io::Result<Self> {
        let columns: Vec<_> = names.iter().map(|it| Column::new(it)).collect();
        let fields: String = columns.iter().map(Column::field).collect();
        let schema = parse_message_type(&format!("message samples {{ {fields} }}")).map_err(unwritten)?;
        let level = ZstdLevel::try_new(LEVEL).map_err(unwritten)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(format!("gpuwatch {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![KeyValue::new("units".to_owned(), units(names))]))
            .build();
        let writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).map_err(unwritten)?;
        Ok(Self { out, writer, columns })
    }

    /// Adds a row with the columns in their order.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub(super) fn row(&mut self, row: ExportRow) -> io::Result<()> {
        for (column, (_, value)) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
        if self.rows() == ROWS { self.group() } else { Ok(()) }
    }

    /// Writes the last rows and the footer. A file without it cannot be read.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub(super) fn end(mut self) -> io::Result<()> {
        if self.rows() > 0 {
            self.group()?;
        }
        let rest = self.writer.into_inner().map_err(unwritten)?;
        self.out.write_all(&rest)
    }

    fn rows(&self) -> usize {
        self.columns.first().map_or(0, |it| it.levels.len())
    }

    fn group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(unwritten)?;
        for column in &mut self.columns {
            column.write(&mut group).map_err(unwritten)?;
        }
        group.close().map_err(unwritten)?;
        self.writer.flush()?;
        let written = mem::take(self.writer.inner_mut());
        self.out.write_all(&written)
    }
}

impl Column {
    fn new(name: &'static str) -> Self {
        let cells = if TEXTS.contains(&name) { Cells::Texts(Vec::new()) } else { Cells::Numbers(Vec::new()) };
        Self { name, cells, levels: Vec::new() }
    }

    /// Returns its field of the schema.
    fn field(&self) -> String {
        let name = shown(self.name);
        match self.cells {
            Cells::Texts(_) => format!("OPTIONAL BINARY {name} (STRING); "),
            Cells::Numbers(_) if self.name == TIME => format!("OPTIONAL INT64 {name} (TIMESTAMP(MICROS,true)); "),
            Cells::Numbers(_) => format!("OPTIONAL INT64 {name}; "),
        }
    }

    fn push(&mut self, value: Option<Value>) {
        let before = self.cells.len();
        match (&mut self.cells, value) {
            (Cells::Texts(all), Some(Value::String(it))) => all.push(ByteArray::from(it.into_bytes())),
            // Subtracting unsigned numbers fails in SQL, and no size comes near the largest signed one.
            (Cells::Numbers(all), Some(it)) => all.extend(it.as_i64()),
            _ => {}
        }
        self.levels.push(i16::from(self.cells.len() > before));
    }

    fn write(&mut self, group: &mut SerializedRowGroupWriter<Vec<u8>>) -> Result<(), ParquetError> {
        match &mut self.cells {
            Cells::Numbers(all) => write::<Int64Type>(group, &mem::take(all), &self.levels)?,
            Cells::Texts(all) => write::<ByteArrayType>(group, &mem::take(all), &self.levels)?,
        }
        self.levels.clear();
        Ok(())
    }
}

impl Cells {
    fn len(&self) -> usize {
        match self {
            Self::Numbers(all) => all.len(),
            Self::Texts(all) => all.len(),
        }
    }
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<Vec<u8>>,
    values: &[T::T],
    levels: &[i16],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(values, Some(levels), None)?;
    column.close()
}

/// Returns a column's name: the time is a timestamp here.
fn shown(name: &str) -> &str {
    if name == TIME { "time" } else { name }
}

/// Returns the units of columns that have one, as JSON.
fn units(names: &[&str]) -> String {
    let unit = |name: &str| {
        let counter = Counters::TABLE.iter().find(|it| it.name == name).map(|it| match it.unit {
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        });
        let part = || Parts::TABLE.iter().any(|it| it.0 == name).then_some("bytes");
        let metric = || metrics().find(|it| it.name == name).map(|it| it.unit.name());
        let figure = || FIGURES.iter().find(|it| it.0 == name).map(|it| it.1.row().unit.name());
        let time = || name.ends_with("_us").then_some("µs");
        counter.or_else(part).or_else(metric).or_else(figure).or_else(time)
    };
    let all = names.iter().filter(|it| **it != TIME).filter_map(|it| Some(((*it).to_owned(), unit(it)?.into())));
    Value::Object(all.collect::<Map<_, _>>()).to_string()
}

fn unwritten(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(it) => io::Error::other(it),
        other => io::Error::other(other),
    }
}

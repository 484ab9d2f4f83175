"""Reads run.parquet by DuckDB, pandas and pyarrow; its arguments are queries. Prints what they found as JSON."""

import json
import sys

import duckdb
import pandas
import pyarrow.parquet

FILE = "run.parquet"
SUMS = ("rank", "allocated", "reserved", "step_us", "rss")

described = duckdb.sql("DESCRIBE SELECT * FROM '%s'" % FILE).fetchall()
metadata = duckdb.sql("SELECT key, value FROM parquet_kv_metadata('%s')" % FILE).fetchall()
sums = duckdb.sql("SELECT %s FROM '%s'" % (", ".join("sum(%s)" % it for it in SUMS), FILE)).fetchall()[0]
frame = pandas.read_parquet(FILE)
schema = pyarrow.parquet.read_schema(FILE)
print(
    json.dumps(
        {
            "duckdb": {name: kind for name, kind, *_ in described},
            "pandas": {name: str(kind) for name, kind in frame.dtypes.items()},
            "duckdb_units": json.loads(dict(metadata)[b"units"]),
            "pyarrow_units": json.loads(schema.metadata[b"units"]),
            "duckdb_sums": {name: int(it) for name, it in zip(SUMS, sums)},
            "pandas_sums": {name: int(frame[name].sum()) for name in SUMS},
            "queries": [[list(row) for row in duckdb.sql(it).fetchall()] for it in sys.argv[1:]],
        }
    )
)

"""Reads a recording with pandas, DuckDB and zstandard, and prints how many samples each sees, and what they add up
to."""

import json
import sys

import duckdb
import pandas
import zstandard

path = sys.argv[1]
reported = {}

frame = pandas.read_json(path, lines=True, compression="zstd")
samples = frame[frame["type"] == "sample"]
reported["pandas"] = {"samples": len(samples), "allocated": int(samples["allocated"].astype("int64").sum())}

query = "select count(*), sum(allocated) from read_json_auto(?, compression = 'zstd') where type = 'sample'"
count, allocated = duckdb.execute(query, [path]).fetchone()
reported["duckdb"] = {"samples": count, "allocated": int(allocated)}

# In a cut file, the last line may be incomplete.
with zstandard.open(path, "rt") as lines:
    rows = [row for row in map(json.loads, (line for line in lines if line.endswith("\n"))) if row["type"] == "sample"]
reported["zstandard"] = {"samples": len(rows), "allocated": sum(row["allocated"] for row in rows)}

print(json.dumps(reported))

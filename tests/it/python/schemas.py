"""Checks the schemas of a folder, and lines of `{"schema": name, "value": …}` against them; prints what is wrong."""

import json
import sys
from pathlib import Path

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

BASE = "https://schemas.invalid/"
registry = Registry()
for file in Path(sys.argv[1]).glob("*.json"):
    schema = json.loads(file.read_text())
    Draft202012Validator.check_schema(schema)
    registry = registry.with_resource(BASE + file.name, Resource.from_contents(schema))

checked = 0
for line in sys.stdin:
    asked = json.loads(line)
    validator = Draft202012Validator({"$ref": f"{BASE}{asked['schema']}.json"}, registry=registry)
    for fault in validator.iter_errors(asked["value"]):
        print(asked["schema"], fault.json_path, fault.message)
    checked += 1
print("checked", checked)

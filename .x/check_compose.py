"""Checks a compose file: against the published schema, and that what it refers to exists. Usage: check_compose.py FILE SCHEMA"""

import json
import pathlib
import sys

import jsonschema
import yaml

path = pathlib.Path(sys.argv[1])
compose = yaml.safe_load(path.read_text())
faults = []
schema = json.loads(pathlib.Path(sys.argv[2]).read_text())
# The schema is of 2021: the project's name at the top level is newer.
for error in jsonschema.Draft7Validator(schema).iter_errors({key: value for key, value in compose.items() if key != "name"}):
    faults.append(f"{'.'.join(map(str, error.path))}: {error.message}")

services = compose.get("services", {})
for name, service in services.items():
    for dependency in service.get("depends_on", {}):
        if dependency not in services:
            faults.append(f"services.{name}.depends_on names {dependency}, which is no service")
    for volume in service.get("volumes", []):
        source = volume.split(":")[0] if isinstance(volume, str) else volume.get("source", "")
        if source.startswith("."):
            if not (path.parent / source).exists():
                faults.append(f"services.{name}.volumes: {source} does not exist")
        elif source and source not in compose.get("volumes", {}):
            faults.append(f"services.{name}.volumes: {source} is not declared")
    build = service.get("build")
    if isinstance(build, dict):
        dockerfile = path.parent / build.get("context", ".") / build.get("dockerfile", "Dockerfile")
        if not dockerfile.exists():
            faults.append(f"services.{name}.build: {dockerfile} does not exist")

for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)

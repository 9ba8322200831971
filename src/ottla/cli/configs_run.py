"""What the verbs of `ottla configs` do, and `ottla topics alter`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences
from ottla.cli.errors import CommandFailed, UsageError
from ottla.cli.table import table
from ottla.client import Admin, ConfigChange, ConfigEntry, ConfigOperation, Resource, ResourceKind


def describe(options: argparse.Namespace) -> int:
    resource = _resource(options)
    names = options.names or None
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        [described] = admin.describe_configs([resource], names, with_documentation=options.documentation)
    entries = sorted(described.entries)
    unknown = sorted(set(options.names) - {entry.name for entry in entries})
    if unknown:
        raise CommandFailed(f"{resource}: there is no configuration {', '.join(unknown)}")
    if names is None and not options.all:
        entries = [entry for entry in entries if not entry.is_default]
    rows = [_row(entry, with_documentation=options.documentation) for entry in entries]
    if options.json:
        for row in rows:
            print(json.dumps(row))
    elif rows:
        print(*_lines(rows), sep="\n")
    return 0


def alter(options: argparse.Namespace) -> int:
    resource = _resource(options)
    return alter_resources(options, resource.kind, [resource.name])


def alter_resources(options: argparse.Namespace, kind: ResourceKind, names: Sequence[str]) -> int:
    changes = [
        *(ConfigChange(name, ConfigOperation.SET, value) for name, value in options.set),
        *(ConfigChange(name, ConfigOperation.APPEND, value) for name, value in options.append),
        *(ConfigChange(name, ConfigOperation.SUBTRACT, value) for name, value in options.subtract),
        *(ConfigChange(name, ConfigOperation.DELETE) for name in options.unset),
    ]
    if not changes:
        raise UsageError(
            "nothing to change: give --set, --unset, --append or --subtract; see 'ottla configs alter --help'"
        )
    done = "can be altered" if options.dry_run else "altered"
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        for name in names:
            resource = Resource(kind, name)
            admin.alter_configs(resource, changes, validate_only=options.dry_run)
            row = {"type": kind.name.lower(), "name": name, "changes": len(changes)}
            print(json.dumps(row) if options.json else f"{resource}: {done}")
    return 0


def _resource(options: argparse.Namespace) -> Resource:
    if options.topic is not None:
        return Resource(ResourceKind.TOPIC, options.topic)
    if options.broker != "default" and not options.broker.isdecimal():
        raise UsageError(f"--broker: {options.broker!r} is no id; see 'ottla configs --help'")
    return Resource(ResourceKind.BROKER, "" if options.broker == "default" else options.broker)


def _row(entry: ConfigEntry, *, with_documentation: bool) -> dict[str, Any]:
    row = {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower(),
        "type": entry.type,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
    }
    return row | {"documentation": entry.documentation} if with_documentation else row


def _lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    cells = [[row["name"], _value(row), row["source"].replace("_", " "), row["type"]] for row in rows]
    lines = table(["name", "value", "source", "type"], cells)
    if "documentation" not in rows[0]:
        return lines
    explained = [lines[0]]
    for line, row in zip(lines[1:], rows, strict=True):
        explained += [line, f"    {row['documentation'] or ''}"]
    return explained


def _value(row: dict[str, Any]) -> str:
    if row["value"] is None:
        return "(hidden)" if row["is_sensitive"] else "null"
    return str(row["value"])

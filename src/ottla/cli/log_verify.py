"""`ottla log verify`: check files and say of each whether it is sound."""

from __future__ import annotations

import argparse
import json

from ottla.cli.errors import FAILED, CommandFailed
from ottla.cli.progress import Progress
from ottla.log.inspect.folder import NotALog, check_path, files_at
from ottla.log.inspect.report import FileReport


def verify(options: argparse.Namespace) -> int:
    show = _show_json if options.json else _show
    file_count = wrong_count = size_bytes = 0
    try:
        progress = Progress(sum(file.path.stat().st_size for path in options.paths for file in files_at(path)))
        for path in options.paths:
            for report in check_path(path, is_compacted=options.compacted, progress=progress.advance):
                progress.clear()
                show(report)
                file_count += 1
                wrong_count += not report.is_ok
                size_bytes += report.size_bytes
    except NotALog as error:
        raise CommandFailed(str(error)) from None
    if options.json:
        summary = {"type": "summary", "files": file_count, "wrong": wrong_count, "size_bytes": size_bytes}
        print(json.dumps(summary | {"ok": not wrong_count}))
    else:
        verdict = f"{wrong_count} of them wrong" if wrong_count else "all sound"
        print(f"{file_count:,} {'file' if file_count == 1 else 'files'}, {size_bytes:,} bytes: {verdict}")
    return FAILED if wrong_count else 0


def _show(report: FileReport) -> None:
    facts = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in report.facts.items())
    print(f"{'ok   ' if report.is_ok else 'WRONG'}  {report.file.path}" + (f"  ({facts})" if facts else ""))
    for problem in report.problems:
        place = "" if problem.position is None else f"byte {problem.position}: "
        print(f"         {place}{problem.reason}")


def _show_json(report: FileReport) -> None:
    shown = {
        "type": "file",
        "path": str(report.file.path),
        "kind": report.file.kind.value,
        "size_bytes": report.size_bytes,
        "ok": report.is_ok,
        "problems": [{"position": problem.position, "reason": problem.reason} for problem in report.problems],
        "facts": report.facts,
    }
    print(json.dumps(shown))

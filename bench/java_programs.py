"""Programs in Java that others have made, from Maven, to measure beside ours; None where they are not to be had."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.apache_kafka.distribution import made_once

HERE = Path(__file__).parent
CACHE = HERE.parent / ".cache"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>ottla</groupId><artifactId>bench</artifactId><version>1</version><dependencies>{}</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
QUIET = "org.slf4j:slf4j-nop:2.0.17"


def classpath(name: str, *artifacts: str, program: str | None = None) -> str | None:
    """Where the artifacts (GROUP:NAME:VERSION) and what they need lie, and the classes of a program of this folder."""
    missing = [command for command in ("java", "javac", "mvn") if shutil.which(command) is None]
    if missing:
        print(f"not measured beside {name}: there is no {', '.join(missing)}")
        return None

    def fetch(folder: Path) -> None:
        pom = folder.with_name("pom.xml")
        pom.write_text(POM.format("".join(DEPENDENCY.format(*each.split(":")) for each in (*artifacts, QUIET))))
        _run("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}")

    try:
        jars = made_once(CACHE / name / "jars", fetch)
        if program is None:
            return f"{jars}/*"
        source = HERE / program
        classes = made_once(
            CACHE / name / f"classes-{source.stat().st_mtime_ns}",
            lambda folder: _run("javac", "-cp", f"{jars}/*", "-d", str(folder), str(source)),
        )
    except subprocess.CalledProcessError as error:
        print(f"not measured beside {name}: {(error.stdout.strip().splitlines() or ['no output'])[0]}")
        return None
    return f"{classes}{os.pathsep}{jars}/*"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

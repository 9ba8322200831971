"""Apache Kafka's jars and our Java helpers, fetched and compiled once into a cache in the repository.

Nothing happens at import. Several processes may ask at the same time: one works, the others wait.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "4.3.1"
HELPERS = Path(__file__).parent
CACHE = HELPERS.parents[1] / ".cache" / f"apache-kafka-{VERSION}"

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>apache-kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class KafkaUnavailable(Exception):
    """Apache Kafka cannot run here; the message says what to install."""


def classpath() -> str:
    """The class path of Apache Kafka's classes and ours; KafkaUnavailable if there is none to be had."""
    missing = [command for command in ("java", "javac", "mvn") if shutil.which(command) is None]
    if missing:
        raise KafkaUnavailable(
            f"Apache Kafka {VERSION} needs {', '.join(missing)}: install a JDK (17 or later) and Maven"
        )
    jars = made_once(CACHE / "jars", _fetch_jars)
    sources = sorted(HELPERS.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]

    def compile_helpers(folder: Path) -> None:
        _run("javac", "-cp", f"{jars}/*", "-d", str(folder), *map(str, sources))

    classes = made_once(CACHE / f"classes-{digest}", compile_helpers)
    return f"{classes}{os.pathsep}{jars}/*"


def _fetch_jars(folder: Path) -> None:
    pom = folder.with_name("pom.xml")
    pom.write_text(POM)
    try:
        _run("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}")
    except subprocess.CalledProcessError as error:
        reason = (error.stdout.strip().splitlines() or ["no output"])[0]
        raise KafkaUnavailable(f"Maven could not fetch Apache Kafka {VERSION}: {reason}") from error


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, filled by `make` if it is not there yet. It appears whole or not at all."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock")):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

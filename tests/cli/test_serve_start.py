"""How soon a broker is there is decided by what it imports."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from ottla.client import Admin, ClientError, ConfigSource, NewTopic, Producer, Resource, ResourceKind
from tests.faults.broker_process import BrokerProcess

SLOW_AND_NOT_NEEDED = {
    *("asyncio", "base64", "email", "http", "importlib.metadata", "ipaddress", "pathlib", "pkgutil", "platform"),
    *("shutil", "subprocess", "tempfile", "tomllib", "urllib", "uuid", "zipfile"),
    *("crc32c", "cramjam", "lz4", "pyarrow", "re2", "zstandard"),
    *("ottla.broker.coordinators.coordinator", "ottla.broker.network.http", "ottla.client", "ottla.coordinator"),
}

SERVE = """
import sys
from ottla.broker.loop import loop

class Once(loop.Loop):
    def run(self):
        print(*sys.modules, flush=True)

loop.Loop = Once
from ottla.cli.serve import run
run(sys.argv[1:])
"""


def test_a_broker_that_is_ready_has_loaded_nothing_slow(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVE, "--listen", "127.0.0.1:0", "--data", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    _, modules = ended.stdout.splitlines()
    assert SLOW_AND_NOT_NEEDED & set(modules.split()) == set()


def start(*arguments: str, stdout: int | None = subprocess.PIPE, before: str = "") -> subprocess.CompletedProcess[str]:
    """A start that fails at once; `before` is code that the process runs first."""
    command = [sys.executable, "-c", f"import os, sys\n{before}\nfrom ottla.cli.main import main\nsys.exit(main())"]
    command += ["serve", "--listen", "127.0.0.1:0", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


def test_data_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("mine")
    ended = start("--data", str(path))
    sentence = f"ottla: {path}: this is a file; give --data a folder, which is made if it is missing\n"
    assert (ended.returncode, ended.stderr) == (1, sentence)
    assert path.read_text() == "mine"


REFUSE_LIKE_THE_SYSTEM = """
import errno
from ottla.log.files import DiskFiles
def lock(self, path):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
DiskFiles.lock = lock
"""


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o555)
    may_everything = os.geteuid() == 0
    ended = start("--data", str(data), before=REFUSE_LIKE_THE_SYSTEM if may_everything else "")
    sentence = f"ottla: {data}: the data cannot be opened: permission denied ({data}/.lock)\n"
    assert (ended.returncode, ended.stderr) == (1, sentence)


def test_a_folder_that_cannot_be_made() -> None:
    ended = start("--data", "/proc/data")
    sentence = "ottla: /proc/data: the data cannot be opened: no such file or directory\n"
    assert (ended.returncode, ended.stderr) == (1, sentence)


def test_an_output_that_is_closed(tmp_path: Path) -> None:
    code = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'ottla', *sys.argv[1:]])"
    for arguments in (["serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")], ["--version"]):
        ended = subprocess.run(
            [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
        sentence = "ottla: standard output is closed; send it to a file, or to /dev/null\n"
        assert (ended.returncode, ended.stderr) == (1, sentence)
    assert not (tmp_path / "data").exists()


def test_an_output_that_is_full(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = start("--data", str(tmp_path), stdout=full.fileno())
    assert (ended.returncode, ended.stderr) == (1, "ottla: standard output: no space left on device\n")


STOP_AT_ONCE_ON_A_FULL_DISK = """
import errno
from ottla.broker.loop.loop import Loop
from ottla.log.manager import LogManager
def close(self, now_ms):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.folder)
Loop.run = lambda self: None
LogManager.close = close
"""


def test_a_stop_that_cannot_write(tmp_path: Path) -> None:
    ended = start("--data", str(tmp_path), before=STOP_AT_ONCE_ON_A_FULL_DISK)
    assert ended.returncode == 1
    [told] = ended.stderr.splitlines()
    assert told.startswith(f"ottla: {tmp_path}: stopped, but not everything could be written (")
    assert "No space left on device" in told


def test_a_broker_whose_only_disk_fails_stops_and_says_why(tmp_path: Path) -> None:
    """A file that may not grow any more is an error of the disk that lasts."""
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))"
    command = f"{small}\nfrom ottla.cli.main import main\nimport sys; sys.exit(main())"
    arguments = ["serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().split("serves on ")[1].split(",")[0]
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic("t")])
        with Producer(bootstrap, acks=1, delivery_timeout_ms=2000) as producer, contextlib.suppress(ClientError):
            for _ in range(40):
                producer.send("t", bytes(10_000))
                producer.flush()
        _, told = process.communicate(timeout=30)  # which closes the pipes
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    assert "ottla: the broker has stopped: all data folders failed: " in told.splitlines()[-1]
    assert "Traceback" not in told


def test_a_mistyped_setting_is_named_at_the_start_and_protection_that_is_not_there_is_refused(tmp_path: Path) -> None:
    at_once = "from ottla.broker.loop.loop import Loop\nLoop.run = lambda self: None"
    ended = start("--data", str(tmp_path), "--set", "log.retention.hour=7", before=at_once)
    assert ended.returncode == 0
    [told] = ended.stderr.splitlines()
    assert "WARNING a setting changes nothing setting=log.retention.hour" in told
    assert "the nearest is log.retention.hours" in told
    ended = start("--data", str(tmp_path), "--set", "authorizer.class.name=Mine")
    assert ended.returncode == 2
    assert ended.stderr.startswith("ottla: authorizer.class.name: Ottla has no access control")


def test_which_of_two_folders_holds_is_told(tmp_path: Path) -> None:
    at_once = "from ottla.broker.loop.loop import Loop\nLoop.run = lambda self: None"
    other = f"log.dirs={tmp_path / 'other'}"
    ended = start("--data", str(tmp_path / "data"), "--set", other, before=at_once)
    assert ended.returncode == 0
    [told] = ended.stderr.splitlines()
    assert f"a setting is given twice setting=log.dirs holds=--data ignored='--set {other}'" in told.replace('"', "'")
    assert not (tmp_path / "other").exists()
    ended = start("--data", "")
    assert (ended.returncode, ended.stderr) == (2, "ottla: --data: no folder is named\n")


def test_what_the_command_line_sets_is_described_as_the_broker_s_own(tmp_path: Path) -> None:
    names = ("num.partitions", "log.segment.bytes", "listeners", "log.dirs", "max.connections")
    with (
        BrokerProcess(tmp_path / "data", "--set", "num.partitions=3", "--set", "log.segment.bytes=2000000") as broker,
        Admin(broker.bootstrap) as admin,
    ):
        admin.create_topics([NewTopic("t")])
        of_broker = admin.describe_configs([Resource(ResourceKind.BROKER, "1")], names)[0].entries
        of_topic = admin.describe_configs([Resource(ResourceKind.TOPIC, "t")], ["segment.bytes"])[0].entries
    sources = {entry.name: entry.source for entry in [*of_broker, *of_topic]}
    static = dict.fromkeys((*names[:-1], "segment.bytes"), ConfigSource.STATIC_BROKER)
    assert sources == static | {"max.connections": ConfigSource.DEFAULT}

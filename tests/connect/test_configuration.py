"""The file of connectors: every mistake is one sentence, and no secret is shown."""

from pathlib import Path

import pytest

from ottla.connect.configuration import Configuration, ConfigurationRefused, load
from ottla.connect.secrets import Secrets

GOOD = """
bootstrap = "localhost:9092"
[connectors.out]
type = "sql-sink"
url = "mysql://shop:${env:PASSWORD}@db/shop"
topics = ["orders"]
"""


def read(folder: Path, text: str, **environment: str) -> Configuration:
    path = folder / "c.toml"
    path.write_text(text)
    return load(path, environment)


def test_secrets_come_from_the_environment_or_a_file_and_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret/+\n")
    text = GOOD + '[connectors.other]\ntype = "files-sink"\npath = "${file:token}/x"\ntopics = ["a"]\n'
    configuration = read(tmp_path, text, PASSWORD="p@ss word")
    assert configuration.connectors["out"].settings["url"] == "mysql://shop:p@ss word@db/shop"
    assert configuration.connectors["other"].settings["path"] == "s3cret/+/x"
    hide = configuration.secrets.hide
    assert hide("Access denied: p@ss word, p%40ss%20word, p%40ss+word and s3cret/+") == (
        "Access denied: ***, ***, *** and ***"
    )


def test_a_password_that_stands_in_the_file_is_hidden_too(tmp_path: Path) -> None:
    configuration = read(tmp_path, GOOD.replace("${env:PASSWORD}", "hunter2"))
    assert configuration.secrets.hide("for mysql://shop:hunter2@db/shop") == "for mysql://shop:***@db/shop"


@pytest.mark.parametrize(
    ("url", "said", "shown"),
    [
        # What stands behind an @ that is not quoted is taken for the host.
        ("mysql://shop:hun@ter2@db/shop", "no host ter2@db", "no host ***@db"),
        ("mysql://shop:hun@te/r2@db/shop", "no host te, no database r2@db", "no host ***, no database ***@db"),
        ("mysql://shop:hun ter2@db/shop", "using hun ter2", "using ***"),
        ("mysql://shop@eu:hunter2@db/shop", "using hunter2", "using ***"),
        (" mysql://shop:hunter2@db/shop", "using hunter2", "using ***"),
        # A driver shows a text within a text.
        ("mysql://shop:\"it's@db/shop", str([repr("using \"it's")]), r"['\'using ***\'']"),
        ("postgresql://shop@db/shop?sslmode=on&password=hunter2", "no option hunter2 on db", "no option *** on db"),
    ],
)
def test_passwords_in_urls_are_hidden(tmp_path: Path, url: str, said: str, shown: str) -> None:
    secrets = Secrets({}, tmp_path)
    assert secrets.resolve("url", url) == url
    assert secrets.hide(said) == shown


SINK = '[connectors.a]\ntype = "files-sink"\ntopics = ["t"]\npath = "p"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is no connector: begin one with [connectors.NAME]"),
        ("x = [", "Invalid value"),
        ("bootstap = 'a:1'\n" + SINK, "there is no setting 'bootstap'; there are bootstrap,"),
        ("bootstrap = 1\n" + SINK, "bootstrap is a text, not 1"),
        ("bootstrap = ['a:1']\n" + SINK, "bootstrap is a text, not a list"),
        ("bootstrap = 'a:b'\n" + SINK, "bootstrap: 'a:b' is no address: it is HOST:PORT"),
        ("bootstrap = '${env:GONE}'\n" + SINK, "bootstrap: the environment has no variable GONE"),
        ("connectors = [1]", "connectors is a table, not a list"),
        ("[connectors.a]\npath = 'x'", "connector a: type is missing"),
        ("[connectors.a]\ntype = 'fils'", "connector a: there is no type 'fils'; there are files-source,"),
        ("[connectors.a]\ntype = 'nothing.here:X'", "connector a: nothing is not installed"),
        ("[connectors.a]\ntype = 'gone.py:X'", "connector a: gone.py: no such file or directory"),
        ("[connectors.a]\ntype = 'broken.py:X'", "connector a: broken.py cannot be loaded: SyntaxError: "),
        ("session_timeout_ms = 0\n" + SINK, "session_timeout_ms is at least 1000, and at most 1800000, not 0"),
        ("session_timeout_ms = 999\n" + SINK, "session_timeout_ms is at least 1000, and at most 1800000, not 999"),
        (f"session_timeout_ms = {1 << 40}\n" + SINK, "session_timeout_ms is at least 1000, and at most 1800000, not "),
        (GOOD.replace("env:PASSWORD", "file:bytes"), "bytes is no text"),
        ("[connectors.a]\ntype = 'json:JSONDecoder'", "json:JSONDecoder is no Source and no Sink"),
        ("[connectors.a]\ntype = 'files-source'\npath = 'x'", "connector a: topic is missing"),
        (SINK + "pth = 'x'", "connector a: files-sink has no setting 'pth'; there are path, format"),
        (SINK + "tasks = 0", "connector a: tasks is at least 1, not 0"),
        (SINK + "tasks = true", "connector a: tasks is a whole number, not True"),
        (SINK + "tasks = 10_000", "connector a: tasks is at most 1,000, not 10,000"),
        (SINK + "dead_letter = ''", "connector a: dead_letter: '' is no name for a topic"),
        (SINK.replace('["t"]', "['a b']"), "connector a: topics: 'a b' is no name for a topic"),
        (SINK + "format = 'csv'", "connector a: format is one of jsonl, parquet, not 'csv'"),
        (SINK + "topics_pattern = 'x'", "connector a: a sink has topics = [...] or topics_pattern"),
        (
            SINK.replace('topics = ["t"]', "topics_pattern = '['"),
            "connector a: topics_pattern is no regular expression",
        ),
        (SINK.replace('["t"]', "'t'"), "connector a: topics is a list, each a text, not a text"),
        (
            SINK.replace('["t"]', "[1]"),
            "connector a: topics is a list, each a text, and this one has something",
        ),
        (GOOD, "connector out: the environment has no variable PASSWORD"),
        (GOOD.replace("env:PASSWORD", "file:gone"), "gone: no such file or directory"),
        ("[connectors.'a/b']\ntype = 'x'", "connector a/b: a name is made of up to 100 letters"),
        ("[connectors.a]\ntype='files-source'\npath='p'\ntopic='t'\ntopics=['x']", "connector a: topics are of sinks"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "broken.py").write_text("class X(\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationRefused) as refused:
        read(tmp_path, text)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


MYSQL = "[connectors.a]\ntype = 'mysql-source'\nuser = 'u'\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tables = ['shop']", "tables are named DATABASE.TABLE, as in shop.orders or shop.*, not 'shop'"),
        ("tables = []", "tables is empty"),
        ("tables = ['a.*']\nstart = 'noon'", "start is snapshot, now, FILE:POSITION or a GTID"),
        ("tables = ['a.*']\npartitions = 0", "partitions is at least 1, not 0"),
        ("tables = ['a.*']\ntopic = '{schema}.x'", "topic may hold {database} and {table}, and nothing else"),
        ("tables = ['a.*']\ntopic = '{'", "topic may hold {database} and {table}, and nothing else"),
        ("tables = ['a.*']\nchunk_rows = 0", "chunk_rows is at least 1, not 0"),
        ("tables = ['a.*']\nport = 70_000", "port is from 1 to 65535, not 70000"),
        ("tables = ['a.*']\nhost = ''", "host is empty"),
        ("tables = ['a.*']\ntransactions_topic = 'a/b'", "transactions_topic: 'a/b' is no name for a topic"),
    ],
)
def test_a_mistake_in_the_settings_of_mysql(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationRefused) as refused:
        read(tmp_path, MYSQL + text).connectors["a"].make()
    assert f"connector a: {sentence}" in str(refused.value)


FILES = "[connectors.a]\ntype = 'files-source'\n"
SQL = "[connectors.a]\ntype = 'sql-sink'\nurl = 'sqlite://'\ntopics = ['t']\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (FILES + "path = ''\ntopic = 't'", "path is empty"),
        (FILES + "path = 'p'\ntopic = ''", "topic: '' is no name for a topic"),
        (FILES + "path = 'p'\ntopic = 't'\npoll_ms = 0", "poll_ms is at least 1, not 0"),
        (SINK.replace('"p"', '""'), "path is empty"),
        (SQL + "table = '{schema}'", "table may hold {topic} and {table}, and nothing else in braces: '{schema}'"),
        (SQL + "table = ''", "table is empty"),
    ],
)
def test_a_mistake_in_the_settings_of_files_and_sql(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationRefused) as refused:
        read(tmp_path, text).connectors["a"].make()
    assert f"connector a: {sentence}" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "password = ['${env:PW}']\ntables = ['a.*']",
        "password = {a = '${env:PW}'}\ntables = ['a.*']",
        "password = 12345678\ntables = ['a.*']",
        "password = '${env:PW}'\ntables = ['${env:PW}']",
        "tables = ['a.*']\nstart = '${env:PW}'",
        "tables = ['a.*']\ntopic = '${env:PW}{x}'",
        "tables = ['a.*']\n\n[connectors.b]\ntype = 'files-sink'\npath = 'p'\ntopics = ['t/${env:PW}']",
    ],
)
def test_a_mistake_shows_no_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationRefused) as refused:
        read(tmp_path, MYSQL + text, PW="12345678").connectors["a"].make()
    assert "12345678" not in str(refused.value)


def test_the_addresses_of_the_cluster_may_come_from_the_environment(tmp_path: Path) -> None:
    assert read(tmp_path, "bootstrap = '${env:HERE}:9092'\n" + SINK, HERE="kafka").bootstrap == "kafka:9092"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationRefused, match=r"gone\.toml: no such file or directory"):
        load(tmp_path / "gone.toml")

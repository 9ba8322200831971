"""The file of connectors: every mistake is one sentence, and no secret is shown."""

from pathlib import Path

import pytest

from ottla.connect.configuration import Configuration, ConfigurationRefused, load

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


SINK = '[connectors.a]\ntype = "files-sink"\ntopics = ["t"]\npath = "p"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is no connector: begin one with [connectors.NAME]"),
        ("x = [", "Invalid value"),
        ("bootstap = 'a:1'\n" + SINK, "there is no setting 'bootstap'; there are bootstrap,"),
        ("bootstrap = 1\n" + SINK, "bootstrap is a text, not 1"),
        ("[connectors.a]\npath = 'x'", "connector a: type is missing"),
        ("[connectors.a]\ntype = 'fils'", "connector a: there is no type 'fils'; there are files-source,"),
        ("[connectors.a]\ntype = 'nothing.here:X'", "connector a: nothing is not installed"),
        ("[connectors.a]\ntype = 'gone.py:X'", "connector a: gone.py: no such file or directory"),
        ("[connectors.a]\ntype = 'broken.py:X'", "connector a: broken.py cannot be loaded: SyntaxError: "),
        ("session_timeout_ms = 0\n" + SINK, "session_timeout_ms is at least 1, not 0"),
        (GOOD.replace("env:PASSWORD", "file:bytes"), "bytes is no text"),
        ("[connectors.a]\ntype = 'json:JSONDecoder'", "json:JSONDecoder is no Source and no Sink"),
        ("[connectors.a]\ntype = 'files-source'\npath = 'x'", "connector a: topic is missing"),
        (SINK + "pth = 'x'", "connector a: files-sink has no setting 'pth'; there are path, format"),
        (SINK + "tasks = 0", "connector a: tasks is at least 1, not 0"),
        (SINK + "tasks = true", "connector a: tasks is a whole number, not True"),
        (SINK + "format = 'csv'", "connector a: format is one of jsonl, parquet, not a text"),
        (SINK + "topics_pattern = 'x'", "connector a: a sink has topics = [...] or topics_pattern"),
        (
            SINK.replace('topics = ["t"]', "topics_pattern = '['"),
            "connector a: topics_pattern is no regular expression",
        ),
        (SINK.replace('["t"]', "'t'"), "connector a: topics is a list, each a text, not a text"),
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
    ],
)
def test_a_mistake_in_the_settings_of_mysql(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationRefused) as refused:
        read(tmp_path, MYSQL + text).connectors["a"].make()
    assert f"connector a: {sentence}" in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationRefused, match=r"gone\.toml: no such file or directory"):
        load(tmp_path / "gone.toml")

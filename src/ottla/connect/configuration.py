"""The file that describes connectors, read and checked: every mistake is one sentence that names its place."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ottla.client import ClientOptions
from ottla.client.network.address import parse_addresses
from ottla.connect.interface import Connector, Sink, Source
from ottla.connect.secrets import SecretMissing, Secrets, may_be_secret
from ottla.connect.task_machine import Retries
from ottla.connect.topics import check_topic_name

DEFAULT_BOOTSTRAP = "localhost:9092"
BUILT_IN = {
    "files-source": "ottla.connect.files_source:FilesSource",
    "files-sink": "ottla.connect.files_sink:FilesSink",
    "mysql-source": "ottla.connect.mysql.source:MysqlSource",
    "sql-sink": "ottla.connect.sql_sink:SqlSink",
}
EXTRAS = {"sqlalchemy": "connect", "pyarrow": "connect", "pymysql": "mysql"}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_WORDS: dict[Any, str] = {
    str: "a text", int: "a whole number", bool: "true or false", float: "a number", list: "a list", dict: "a table",
}  # fmt: skip
DEFAULT_SESSION_MS, LEAST_SESSION_MS, MOST_SESSION_MS = 10_000, 1_000, 1_800_000
"""The most is what a broker allows unless it is told otherwise, as is the least of 6,000 there."""
MOST_TASKS = 1_000
"""Each is a thread, and of a source a partition of its topic of positions."""


class ConfigurationRefused(ValueError):
    """The file, or something in it, is wrong; the text says what and where."""


@dataclass(frozen=True, slots=True)
class Common:
    """The settings that every connector has, whatever its type."""

    tasks: int = 1
    topics: list[str] = field(default_factory=list)
    """Of a sink."""
    topics_pattern: str | None = None
    dead_letter: str | None = None
    retries: int = Retries().most
    backoff_ms: int = Retries().backoff_ms
    transaction_ms: int = 200
    """Of a source: how long records may be gathered for one transaction while there are more."""
    transaction_records: int = 20_000


@dataclass(frozen=True, slots=True)
class ConnectorConfiguration:
    name: str
    type_name: str
    connector: type[Connector]
    settings: Mapping[str, Any]
    common: Common
    secrets: Secrets

    @property
    def is_source(self) -> bool:
        return issubclass(self.connector, Source)

    def make(self) -> Any:
        """A new connector; ConfigurationRefused where it does not like its settings."""
        try:
            return self.connector(**self.settings)
        except ValueError as error:
            raise ConfigurationRefused(self.secrets.hide(f"connector {self.name}: {error}")) from None


@dataclass(frozen=True, slots=True)
class Configuration:
    bootstrap: str
    session_timeout_ms: int
    connectors: Mapping[str, ConnectorConfiguration]
    secrets: Secrets

    @property
    def client_options(self) -> ClientOptions:
        return ClientOptions(client_id="ottla-connect")

    def chosen(self, name: str | None) -> list[ConnectorConfiguration]:
        if name is None:
            return list(self.connectors.values())
        if name not in self.connectors:
            raise ConfigurationRefused(f"there is no connector {name!r}; there are {', '.join(self.connectors)}")
        return [self.connectors[name]]


def load(path: Path, environment: Mapping[str, str] | None = None) -> Configuration:
    return load_document(path, environment, read)


def load_document(
    path: Path, environment: Mapping[str, str] | None, read: Callable[..., Configuration]
) -> Configuration:
    """What `read` makes of a file; what is wrong with it is told with the file's name."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationRefused(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationRefused(f"{path}: {error}") from None
    environment = os.environ if environment is None else environment
    secrets = Secrets(environment, path.parent)
    try:
        return read(document, secrets, environment, path.parent)
    except ConfigurationRefused as error:
        raise ConfigurationRefused(secrets.hide(f"{path}: {error}")) from None


def read(document: Mapping[str, Any], secrets: Secrets, environment: Mapping[str, str], folder: Path) -> Configuration:
    known = {"bootstrap": str, "session_timeout_ms": int, "connectors": dict}
    for name, value in document.items():
        if name not in known:
            raise ConfigurationRefused(f"there is no setting {name!r}; there are {', '.join(known)}")
        if type(value) is not known[name]:
            raise ConfigurationRefused(f"{name} is {_WORDS[known[name]]}, not {_shown(name, value)}")
    if not document.get("connectors"):
        raise ConfigurationRefused("there is no connector: begin one with [connectors.NAME]")
    connectors = {name: _read_connector(name, given, secrets, folder) for name, given in document["connectors"].items()}
    session_timeout_ms = document.get("session_timeout_ms", DEFAULT_SESSION_MS)
    if not LEAST_SESSION_MS <= session_timeout_ms <= MOST_SESSION_MS:
        raise ConfigurationRefused(
            f"session_timeout_ms is at least {LEAST_SESSION_MS}, and at most {MOST_SESSION_MS}, "
            f"not {session_timeout_ms}"
        )
    bootstrap = _read_bootstrap(document.get("bootstrap"), secrets, environment)
    return Configuration(bootstrap, session_timeout_ms, connectors, secrets)


def _read_bootstrap(given: str | None, secrets: Secrets, environment: Mapping[str, str]) -> str:
    try:
        resolved: str = secrets.resolve("bootstrap", given or "")
        bootstrap = resolved or environment.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP
        parse_addresses(bootstrap)
    except ValueError as error:  # SecretMissing is one, too
        raise ConfigurationRefused(f"bootstrap: {error}") from None
    return bootstrap


def _read_connector(name: str, given: Any, secrets: Secrets, folder: Path) -> ConnectorConfiguration:
    about = f"connector {name}"
    if _NAME.fullmatch(name) is None:
        raise ConfigurationRefused(f"{about}: a name is made of up to 100 letters, digits, dots, dashes, underscores")
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        raise ConfigurationRefused(f"{about}: type is missing; there are {', '.join(BUILT_IN)}, or MODULE:CLASS")
    try:
        settings = {key: secrets.resolve(key, value) for key, value in given.items() if key != "type"}
    except SecretMissing as error:
        raise ConfigurationRefused(f"{about}: {error}") from None
    connector = _find(about, given["type"], folder)
    common_names = {each.name for each in fields(Common)}
    parameters = _parameters(connector)
    common_given = {key: value for key, value in settings.items() if key in common_names and key not in parameters}
    own = {key: value for key, value in settings.items() if key not in common_given}
    _check_types(about, common_given, typing.get_type_hints(Common), "connectors")
    _check_own(about, given["type"], own, connector, common_names)
    common = Common(**common_given)
    _check_common(about, common, connector)
    return ConnectorConfiguration(name, given["type"], connector, own, common, secrets)


def _check_common(about: str, common: Common, connector: type[Connector]) -> None:
    for name in ("tasks", "transaction_ms", "transaction_records", "backoff_ms"):
        if getattr(common, name) < 1:
            raise ConfigurationRefused(f"{about}: {name} is at least 1, not {getattr(common, name)}")
    if common.tasks > MOST_TASKS:
        raise ConfigurationRefused(f"{about}: tasks is at most {MOST_TASKS:,}, not {common.tasks:,}")
    if common.retries < 0:
        raise ConfigurationRefused(f"{about}: retries is at least 0, not {common.retries}")
    try:
        for topic in common.topics:
            check_topic_name("topics", topic)
        if common.dead_letter is not None:
            check_topic_name("dead_letter", common.dead_letter)
    except ValueError as error:
        raise ConfigurationRefused(f"{about}: {error}") from None
    if issubclass(connector, Sink):
        if bool(common.topics) == bool(common.topics_pattern):
            raise ConfigurationRefused(f'{about}: a sink has topics = [...] or topics_pattern = "..."')
        try:
            re.compile(common.topics_pattern or "")
        except re.error as error:
            raise ConfigurationRefused(f"{about}: topics_pattern is no regular expression: {error}") from None
    elif common.topics or common.topics_pattern:
        raise ConfigurationRefused(
            f"{about}: topics are of sinks; a source has settings of its own for where it writes"
        )


def _find(about: str, type_name: str, folder: Path) -> type[Connector]:
    home = BUILT_IN.get(type_name, type_name)
    module_name, colon, class_name = home.rpartition(":")
    if not colon:
        raise ConfigurationRefused(f"{about}: there is no type {type_name!r}; there are {', '.join(BUILT_IN)}, or "
                                   "MODULE:CLASS, or FILE.py:CLASS")  # fmt: skip
    try:
        module = (
            _load_file(folder / module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
        )
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        advice = f": pip install 'ottla[{extra}]'" if extra else ""
        raise ConfigurationRefused(f"{about}: {error.name} is not installed{advice}") from None
    except OSError as error:
        raise ConfigurationRefused(f"{about}: {module_name}: {(error.strerror or str(error)).lower()}") from None
    except (Exception, SystemExit) as error:  # of the user's own file
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigurationRefused(f"{about}: {module_name} cannot be loaded: {reason}") from None
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Source | Sink)):
        raise ConfigurationRefused(f"{about}: {home} is no Source and no Sink of ottla.connect")
    return found


def _load_file(path: Path) -> types.ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _parameters(connector: type[Connector]) -> dict[str, inspect.Parameter]:
    if connector.__init__ is object.__init__:
        return {}
    return {name: each for name, each in inspect.signature(connector.__init__).parameters.items() if name != "self"}


def _check_own(
    about: str, type_name: str, given: Mapping[str, Any], connector: type[Connector], common_names: set[str]
) -> None:
    parameters = _parameters(connector)
    for name in given:
        if name not in parameters:
            there = ", ".join([*parameters, *sorted(common_names)])
            kind = type_name.rpartition(":")[2]
            raise ConfigurationRefused(f"{about}: {kind} has no setting {name!r}; there are {there}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in given:
            raise ConfigurationRefused(f"{about}: {name} is missing")
    _check_types(about, given, typing.get_type_hints(connector.__init__), type_name)


def _check_types(about: str, given: Mapping[str, Any], hints: Mapping[str, Any], what: str) -> None:
    for name, value in given.items():
        hint = hints.get(name, Any)
        if not _fits(value, hint):
            raise ConfigurationRefused(f"{about}: {name} is {_words(hint)}, {_but(name, value, hint)}")


def _but(name: str, value: Any, hint: Any) -> str:
    """What it is instead."""
    if typing.get_origin(hint) is typing.Literal and isinstance(value, str) and not may_be_secret(name):
        return f"not {value!r}"
    shown = _shown(name, value)
    return "and this one has something else in it" if _words(hint).startswith(f"{shown}, each") else f"not {shown}"


def _shown(name: str, value: Any) -> str:
    """What may be a secret, or hold one, is not shown."""
    if isinstance(value, bool | int | float) and not may_be_secret(name):
        return repr(value)
    return _WORDS.get(type(value), "a time")


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, each) for each in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(_fits(each, arguments[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(each, arguments[1]) for each in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is hint


def _words(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_words(each) for each in arguments if each is not type(None))
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is list:
        return f"a list, each {_words(arguments[0])}"
    if origin is dict:
        return f"a table, each {_words(arguments[1])}"
    return _WORDS.get(hint, str(hint))

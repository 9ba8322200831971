"""Secrets: taken from the environment or a file where a setting says so, and never shown.

`${env:NAME}` and `${file:PATH}` may stand in any text of the file. What they stand for, what a setting that sounds like
a secret holds, and the password in a URL are replaced wherever a text leaves the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
MOST_QUOTED = 3
_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
_SECRET_NAME = re.compile(r"passw|secret|token|credential|private_key", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"^\s*[\w+.-]+://[^:]*:(.+)@", re.DOTALL)  # names and passwords may be odd
_URL_OPTION = re.compile(r"[?&]([^=&\s]+)=([^&\s]+)")


class SecretMissing(ValueError):
    """What a setting refers to is not there; the text says so."""


def may_be_secret(name: str) -> bool:
    """By the name of a setting."""
    return _SECRET_NAME.search(name) is not None


class Secrets:
    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self._known: set[str] = set()

    def resolve(self, name: str, value: Any) -> Any:
        """The value with what it refers to, in lists and tables too."""
        if isinstance(value, str):
            resolved = _REFERENCE.sub(self._look_up, value)
            if may_be_secret(name):
                self._learn(resolved)
            if "://" in resolved:
                self._learn_url(resolved)
            return resolved
        if isinstance(value, list):
            return [self.resolve(name, each) for each in value]
        if isinstance(value, dict):
            return {key: self.resolve(f"{name}.{key}", each) for key, each in value.items()}
        return value

    def hide(self, text: str) -> str:
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def _look_up(self, reference: re.Match[str]) -> str:
        where, name = reference[1], reference[2]
        if where == "env":
            if name not in self._environment:
                raise SecretMissing(f"the environment has no variable {name}")
            found = self._environment[name]
        else:
            path = self._folder / name
            try:
                found = path.read_text().rstrip("\n")
            except UnicodeDecodeError:
                raise SecretMissing(f"{path} is no text") from None
            except OSError as error:
                raise SecretMissing(f"{path}: {(error.strerror or str(error)).lower()}") from None
        self._learn(found)
        return found

    def _learn_url(self, url: str) -> None:
        if (found := _URL_PASSWORD.match(url)) is not None:
            self._learn(found[1])
            if "@" in found[1]:  # it is not quoted, and parts of it are taken for the host or the path
                for part in re.split("[@/]", found[1]):
                    self._learn(part)
        for option in _URL_OPTION.finditer(url):
            if may_be_secret(option[1]):
                self._learn(option[2])

    def _learn(self, secret: str) -> None:
        """In all the forms that an error may show it in."""
        if not secret:
            return
        self._known |= {secret, unquote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]}
        for quoted in (secret, unquote(secret)):
            for _ in range(MOST_QUOTED):  # a text in a tuple in a text
                quoted = quoted.replace("\\", "\\\\").replace("'", "\\'")
                self._known.add(quoted)

"""Finds the messages of an API. Their module is imported when the first of them is asked for."""

from __future__ import annotations

import re
from importlib import import_module
from typing import cast

from ottla.wire.apis import BY_KEY, Api
from ottla.wire.schema import Request, Response


def snake_case(name: str) -> str:
    """An API's name as that of the module in wire/messages that declares its request and response."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _load(api: Api, suffix: str) -> type[Request] | type[Response]:
    module = import_module(f"ottla.wire.messages.{snake_case(api.name)}")
    return cast(type[Request] | type[Response], getattr(module, api.name + suffix))


class _Requests(dict[int, type[Request]]):
    def __missing__(self, key: int) -> type[Request]:
        request = self[key] = cast(type[Request], _load(BY_KEY[key], "Request"))
        return request


class _Responses(dict[int, type[Response]]):
    def __missing__(self, key: int) -> type[Response]:
        response = self[key] = cast(type[Response], _load(BY_KEY[key], "Response"))
        return response


REQUESTS: dict[int, type[Request]] = _Requests()
"""Request classes by API key. A key that is not in the table of APIs is a KeyError."""

RESPONSES: dict[int, type[Response]] = _Responses()

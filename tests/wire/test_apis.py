from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest
from kio.schema.index import api_key_map, schema_name_map

from ottla.wire import messages
from ottla.wire.apis import APIS, BY_KEY, FETCH, NOT_FLEXIBLE, PRIVATE_APIS, PRODUCE, Api
from ottla.wire.registry import REQUESTS, RESPONSES, snake_case
from ottla.wire.versions import Versions

WITHOUT_AN_API = {
    "consumer_group_records",
    "consumer_protocol",
    "control_records",
    "group_records",
    "offset_and_group_records",
    "transaction_records",
}

each_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


@pytest.mark.parametrize("api", [*APIS, *PRIVATE_APIS], ids=lambda api: api.name)
def test_declarations_agree_with_the_table(api: Api) -> None:
    served = Versions(api.least_served, api.highest)
    for declared in (REQUESTS[api.key], RESPONSES[api.key]):
        assert declared.api is api
        assert declared.versions == served
        assert declared.flexible.least == api.flexible
        assert declared.__module__ == f"ottla.wire.messages.{snake_case(api.name)}"


@each_api
def test_versions_and_flexibility_are_those_of_kio(api: Api) -> None:
    versions = schema_name_map[api_key_map[api.key]]
    highest = 5 if api.name == "InitProducerId" else max(versions)
    assert (api.least_served, api.highest) == (min(versions), highest)
    for version, entities in versions.items():
        for path in entities.values():
            module, _, name = path.partition(":")
            assert getattr(import_module(module), name).__flexible__ == api.is_flexible(version)


def test_every_module_of_messages_is_known() -> None:
    named = {module.name for module in iter_modules(messages.__path__)}
    assert named == {snake_case(api.name) for api in (*APIS, *PRIVATE_APIS)} | WITHOUT_AN_API


@each_api
def test_file_header_says_key_and_versions(api: Api) -> None:
    doc = import_module(f"ottla.wire.messages.{snake_case(api.name)}").__doc__
    least, highest = api.least_served, api.highest
    versions = f"version {least}" if least == highest else f"versions {least} to {highest}"
    assert doc is not None
    assert doc.startswith(f"{api.name} ({api.key}), {versions}: ")


def test_keys_are_unique_and_rise() -> None:
    keys = [api.key for api in APIS]
    assert keys == sorted(set(keys))
    assert list(BY_KEY.values()) == [*APIS, *PRIVATE_APIS]
    assert len(APIS) == 56


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    assert (PRODUCE.least, PRODUCE.least_served) == (0, 3)
    assert [version for version in range(16) if PRODUCE.serves(version)] == list(range(3, 14))
    assert (FETCH.least, FETCH.least_served) == (4, 4)


def test_not_flexible_means_no_version_is() -> None:
    never = {api.name for api in APIS if api.flexible == NOT_FLEXIBLE}
    assert never == {"SaslHandshake", "OffsetDelete"}


def test_the_table_is_read_without_any_message() -> None:
    program = (
        "import sys, ottla.wire.apis, ottla.wire.frames; "
        "print([name for name in sys.modules if name.startswith('ottla.wire.messages.')])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"

"""The pages on the command line show what the commands really print."""

import re
from pathlib import Path

import pytest

import ottla.testing
from ottla.broker.config.layers import broker_settings
from ottla.broker.metrics import exposition
from ottla.client import Admin, TopicPartition
from ottla.config import text_of
from tests.cli.command_line_page import DOCS, PAGES, runnable_commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_the_commands_print(page: Path, tmp_path: Path) -> None:
    with ottla.testing.broker() as broker:
        for command, output, run in runnable_commands(page, broker.bootstrap, tmp_path):
            assert run() == output, command


GROUPS = (DOCS / "groups.md").read_text()


def test_the_page_on_groups_has_the_settings_as_they_are() -> None:
    named = dict(re.findall(r"^\| `([a-z.]+)` \| (\d+) \|", GROUPS, re.MULTILINE))
    assert named
    settings = broker_settings()
    assert named == {name: text_of(settings[name].default) for name in named}


def test_the_page_on_groups_has_the_metrics_as_they_are() -> None:
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets("g", {TopicPartition(broker.topic("t"), 0): 0})
        families = {line.split()[2] for line in broker.call(exposition).splitlines() if line.startswith("# TYPE")}
    named = set(re.findall(r"^\| `(ottla_\w+)", GROUPS, re.MULTILINE))
    assert named == {name for name in families if "group" in name or "commits" in name}


def test_the_page_on_groups_links_to_what_is_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", GROUPS):
        assert (DOCS / target).exists(), target

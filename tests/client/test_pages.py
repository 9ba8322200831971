"""The pages on the client say what is so: their examples run, in their order, as they are printed."""

import re
from pathlib import Path

import pytest

import ottla.testing

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.name for path in DOCS.glob("client-*.md"))
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_there_is_a_page_for_each() -> None:
    assert PAGES == ["client-admin.md", "client-consumer.md", "client-producer.md", "client-reader.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page: str) -> None:
    blocks = _BLOCK.findall((DOCS / page).read_text())
    assert blocks
    with ottla.testing.broker() as broker:
        names: dict[str, object] = {}
        for number, block in enumerate(blocks):
            code = block.replace("localhost:9092", broker.bootstrap)
            exec(compile(code, f"{page}, example {number + 1}", "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_to_what_is_there(page: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", (DOCS / page).read_text()):
        assert (DOCS / target).exists()

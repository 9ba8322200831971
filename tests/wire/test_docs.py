"""docs/wire.md is held to what it says."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.wire.messages import heartbeat
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_exchange_on_the_page_works() -> None:
    names: dict[str, object] = {}
    exec(EXAMPLES[0], names)
    assert names["received"] == HeartbeatRequest(group_id="orders", generation_id=3, member_id="a-1")
    assert names["answer"] == HeartbeatResponse(error_code=0)
    assert names["correlation_id"] == 7


def test_the_declaration_on_the_page_is_the_one_in_the_house() -> None:
    source = Path(heartbeat.__file__).read_text()
    assert set(EXAMPLES[1].splitlines()) <= set(source.splitlines())

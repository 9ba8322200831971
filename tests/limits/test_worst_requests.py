"""The worst request of each API keeps nobody from the loop for long; and the page tells how long, for every API."""

from tests.conformance.served import SERVED
from tests.limits.measure import measure
from tests.limits.page import read_table
from tests.limits.world import SMALL
from tests.limits.worst import WORST

MOST_SECONDS = 0.2  # four times what docs/limits.md is about, for machines that are slower or busy

MOST_BYTES = 1 << 30


def test_every_api_has_its_worst_requests_and_its_line_on_the_page() -> None:
    assert set(WORST) == SERVED
    assert set(read_table()) == SERVED


def test_no_worst_request_keeps_the_loop() -> None:
    rows = list(measure(SMALL))
    assert not {row.api: row for row in rows if row.round_seconds > MOST_SECONDS}
    assert not {row.api: row for row in rows if row.peak_bytes > MOST_BYTES}

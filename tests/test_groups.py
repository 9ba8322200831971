"""Tests of one group share servers that take seconds to start: xdist must keep them on one worker."""

import os

import pytest


@pytest.mark.xdist_group("kept together")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="without workers there is nothing to keep together")
def test_groups_are_known_to_the_workers(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@kept together")

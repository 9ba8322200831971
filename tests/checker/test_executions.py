"""Whatever a broker without faults does is clean, and one fault in it is found."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.checker.check import Kind, find_anomalies
from tests.checker.executions import executions
from tests.checker.history import Event
from tests.checker.injections import INJECTIONS, NoRoom, in_time


@given(executions())
def test_a_legal_execution_is_clean(history: list[Event]) -> None:
    assert find_anomalies(history) == []


@pytest.mark.parametrize("kind", INJECTIONS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
def test_an_injected_anomaly_is_found(kind: Kind, data: st.DataObject) -> None:
    history = data.draw(executions(least=20))
    try:
        spoilt = data.draw(st.composite(lambda draw: INJECTIONS[kind](history, draw))())
    except NoRoom:
        assume(False)
    assert kind in {anomaly.kind for anomaly in find_anomalies(in_time(spoilt))}

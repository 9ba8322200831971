"""One fault at every operation that changes something: nothing acknowledged is lost, nothing is invented."""

import contextlib
from collections.abc import Callable
from random import Random

import pytest

from ottla.log.errors import LogError
from ottla.testing.files import Crashed, Effect, SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY, RandomLoss
from tests.faults.workload import COMPACTED, PLAIN, Workload

Ending = Callable[[SimulatedFiles, int], None]


def kill(files: SimulatedFiles, _number: int) -> None:
    """All that was done is kept: the system goes on, only the process ends."""
    files.kill()


def lose_all_unsynced(files: SimulatedFiles, _number: int) -> None:
    files.crash(SYNCED_ONLY)


def lose_at_random(files: SimulatedFiles, number: int) -> None:
    files.crash(RandomLoss(Random(number)))


def whole_day() -> Workload:
    workload = Workload(SimulatedFiles())
    workload.run()
    return workload


def day_cut_short(number: int, effect: Effect, ending: Ending) -> Workload:
    """A day with a fault at one operation, ended; what is left has not been opened yet."""
    # What a failed sync left in the cache only, nobody can tell from what is on the disk once the process is gone.
    workload = Workload(SimulatedFiles(keeps_failed_pages=ending is kill))
    workload.files.arm(number, effect)
    with contextlib.suppress(OSError, LogError, Crashed):
        workload.run()
    ending(workload.files, number)
    return workload


def check(workload: Workload, happening: str) -> None:
    try:
        workload.check()
        workload.check_it_goes_on()
    except Exception as error:
        error.add_note(f"after a day in which {happening}")
        raise


def test_a_day_without_faults() -> None:
    workload = whole_day()
    assert len(workload.log(PLAIN).segments) > 1
    kinds = {operation.kind for operation in workload.files.trace}
    assert kinds >= {"create", "write", "truncate", "sync", "rename", "remove", "sync folder", "make folder"}
    compacted = sum(segment.size_bytes for segment in workload.log(COMPACTED).segments)
    assert compacted < sum(len(batch.bytes) for batch in workload.histories[COMPACTED].batches)
    workload.files.crash(SYNCED_ONLY)
    workload.check()
    workload.check_it_goes_on()


@pytest.mark.parametrize(
    ("effect", "ending"),
    [
        (Effect.FAIL, kill),
        (Effect.FAIL, lose_all_unsynced),
        (Effect.TEAR, lose_at_random),
        (Effect.CRASH, lose_all_unsynced),
        (Effect.CRASH, lose_at_random),
        (Effect.TEAR_AND_CRASH, kill),
        (Effect.TEAR_AND_CRASH, lose_at_random),
    ],
)
def test_a_fault_at_every_operation(effect: Effect, ending: Ending) -> None:
    for number in range(1, whole_day().files.operation_count + 1):
        check(day_cut_short(number, effect, ending), f"operation {number} {effect.value}")


@pytest.mark.parametrize(
    ("effect", "ending"),
    [(Effect.FAIL, kill), (Effect.CRASH, lose_all_unsynced), (Effect.TEAR_AND_CRASH, lose_at_random)],
)
def test_a_fault_while_healing_from_another(effect: Effect, ending: Ending) -> None:
    for number in range(15, whole_day().files.operation_count, 35):
        healed = day_cut_short(number, Effect.TEAR_AND_CRASH, lose_at_random)
        before = healed.files.operation_count
        healed.open()
        for second in range(before + 1, healed.files.operation_count + 1):
            workload = day_cut_short(number, Effect.TEAR_AND_CRASH, lose_at_random)
            workload.files.arm(second, effect)
            with contextlib.suppress(OSError, LogError, Crashed):
                workload.open()
            ending(workload.files, number)
            check(workload, f"operation {number} tore, and while opening operation {second} {effect.value}")

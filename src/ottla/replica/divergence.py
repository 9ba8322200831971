"""Where the log of a reader and that of its leader part (KIP-595)."""

from __future__ import annotations

from ottla.log.epochs import UNDEFINED
from ottla.log.errors import OffsetOutOfRange
from ottla.log.log import Log


def divergence_of_consumer(
    end_of_epoch: tuple[int, int], partition: str, offset: int, last_fetched_epoch: int
) -> tuple[int, int] | None:
    """The epoch and the offset up to which both are the same, if they part before `offset`. `end_of_epoch` is where
    the partition has the end of the last epoch that was fetched."""
    epoch, end_offset = end_of_epoch
    if (epoch, end_offset) == UNDEFINED:
        raise OffsetOutOfRange(f"epoch {last_fetched_epoch} is not known in {partition}")
    if epoch < last_fetched_epoch or end_offset < offset:
        return epoch, end_offset
    return None


def divergence_of_replica(log: Log, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """The same for another replica.

    Its last epoch is at most this leader's, but no record need have been written in that.
    """
    epoch, end_offset = log.epochs.latest, log.end_offset
    if 0 <= last_fetched_epoch < epoch:
        epoch, end_offset = log.epochs.end_offset_for(last_fetched_epoch, log.end_offset)
    if last_fetched_epoch > epoch >= 0 or offset > end_offset:
        return epoch, end_offset
    return None

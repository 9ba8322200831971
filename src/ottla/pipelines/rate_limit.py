"""How far a batch may go where its size is limited: every partition gets a share by what it holds."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client import TopicPartition


def limit_offsets(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Ends with at most `most` offsets before them, all together; what has something gets at least one, if it can."""
    sizes = {place: max(0, end - starts[place]) for place, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    shares = {place: size * most // total for place, size in sizes.items()}
    left = most - sum(shares.values())
    # What rounding left over goes to those with the least: nobody waits for ever behind a large one.
    for place in sorted(sizes, key=lambda place: (shares[place], place)):
        if left == 0:
            break
        if shares[place] < sizes[place]:
            shares[place] += 1
            left -= 1
    return {place: starts[place] + shares[place] if sizes[place] else ends[place] for place in ends}

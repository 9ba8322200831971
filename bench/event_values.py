"""Values like those of small events: text with the same names again and again, which lz4 halves."""

import json
import random

DIFFERENT_VALUES = 1_000


def event_values(size_bytes: int) -> list[bytes]:
    chance = random.Random(7)
    values = []
    for number in range(DIFFERENT_VALUES):
        text = ""
        while len(text) < size_bytes:
            event = {"id": number, "at": chance.randrange(10**12), "user": f"{chance.randrange(10**9):x}", "ok": True}
            text += json.dumps(event)
        values.append(text[:size_bytes].encode())
    return values

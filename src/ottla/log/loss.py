"""How much a data folder may lack of what was in it when its broker was last here."""

from __future__ import annotations

import enum


class Loss(enum.IntEnum):
    """Its values travel between brokers."""

    NOTHING = 0
    TAIL = 1  # what was not on the disk: nobody closed the logs, and the machine was started since
    ALL = 2  # the folder is new: maybe in the place of one that was lost

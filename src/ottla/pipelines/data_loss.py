"""Records that were to be read and are not there: an error, unless the query was told to go on without them."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("ottla.pipelines")
_ADVICE = (
    "Records may have been lost: they were deleted before they were read, or the topic is another one now. "
    "To go on without them, set option failOnDataLoss to false"
)


class DataLoss(Exception):
    """Some records that were to be read are gone. Made from a sentence without its full stop."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"{sentence}. {_ADVICE}.")
        self._sentence = sentence

    def __reduce__(self) -> tuple[type[DataLoss], tuple[str]]:
        return DataLoss, (self._sentence,)


def report_loss(sentence: str, *, fails: bool) -> None:
    if fails:
        raise DataLoss(sentence)
    LOGGER.warning("%s; going on, as failOnDataLoss is false", sentence)

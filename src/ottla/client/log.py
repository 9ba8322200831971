"""Where the client says what happens to it: outages, rebalances and moves at info, what needs somebody at warning."""

from __future__ import annotations

import logging

logger = logging.getLogger("ottla.client")

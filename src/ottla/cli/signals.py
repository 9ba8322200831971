"""SIGINT and SIGTERM as a wish to stop.

Python runs the handler of a signal on the main thread, before that thread's next instruction. One that comes when the
thread is just about to wait is seen only when the wait ends, which may be never. The file of `set_wakeup_fd` is written
at once, whatever the main thread does.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def call_on_stop_signals(callback: Callable[[], object]) -> None:
    """From now on, each SIGINT and SIGTERM is a call on a thread of its own, and nothing else."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def work() -> None:
        with receiver, sender:
            while receiver.recv(1):
                callback()

    threading.Thread(target=work, name="signals", daemon=True).start()
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda _number, _frame: None)

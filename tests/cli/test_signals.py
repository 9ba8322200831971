"""A signal that comes when the main thread is about to wait is not lost.

The main thread of these programs does not take the signal, so its wait is not interrupted, as if it
had come just before.
"""

import signal
import subprocess
import sys

import pytest

WAITING = """
import signal, threading
from ottla.cli.signals import call_on_stop_signals
stopping = threading.Event()
call_on_stop_signals(stopping.set)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("waits", flush=True)
stopping.wait()
"""
LOOP = """
import signal, threading
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.system import LinuxSystem
system = LinuxSystem()
loop = Loop(system)
system.wake_on_signals()
signal.signal(signal.SIGTERM, lambda *_: loop.post(loop.stop))
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("waits", flush=True)
loop.run()
loop.close()
"""


@pytest.mark.parametrize("program", [WAITING, LOOP], ids=["a wait", "the loop"])
def test_a_wait_that_is_not_interrupted_ends(program: str) -> None:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"waits\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()

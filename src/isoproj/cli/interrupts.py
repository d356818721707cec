"""Ctrl-C at the command line: answered at once, and the second one leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds in which a verb may end by itself before the process ends.
_GRACE = 0.3


@contextmanager
def answered(verb: str, status: int) -> Iterator[None]:
    """Answer Ctrl-C from a thread of its own, whatever the main thread is busy with.

    Where nothing is found yet, or at the second, the process ends with ``status``.
    """
    is_main = threading.current_thread() is threading.main_thread()
    is_usual = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_usual or os.name != "posix":
        yield
        return
    hear, told = os.pipe()
    os.set_blocking(told, False)
    is_over = threading.Event()
    threading.Thread(
        target=_listen, args=(hear, verb, status, is_over), daemon=True
    ).start()
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(before)
        os.close(told)


def _listen(hear: int, verb: str, status: int, is_over: threading.Event) -> None:
    """Answer every Ctrl-C; end the process where there is nothing to wait for."""
    n_heard = 0
    while heard := os.read(hear, 64):
        n_heard += heard.count(signal.SIGINT)
        if not n_heard:
            continue
        # Whoever has not imported this yet has found nothing either.
        module = sys.modules.get("isoproj.numerics.interrupts")
        stop = module.present_stop() if module is not None else None
        if n_heard == 1 and stop is not None and stop.is_begun:
            stop.ask()
        elif not is_over.wait(_GRACE):
            with contextlib.suppress(OSError):
                os.write(2, f"isoproj {verb}: stopped; nothing was written.\n".encode())
            os._exit(status)
    os.close(hear)

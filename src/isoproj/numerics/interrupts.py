"""Ctrl-C inside long work: answered at once, and what was found is still certified."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Stop:
    """What Ctrl-C does to the present work.

    While it ``is_solving``, the first one raises KeyboardInterrupt, at which a solver
    returns the best so far; after that the first one only answers. The second raises
    KeyboardInterrupt at any time.
    """

    def __init__(self, words: Callable[[], str]) -> None:
        self.is_begun = self.is_solving = self.is_asked = False
        self.n_heard = 0
        self._words = words

    def ask(self) -> None:
        """Say what happens now, once; nothing happens before the search has begun."""
        if self.is_asked or not self.is_begun:
            return
        self.is_asked = True
        with suppress(OSError, ValueError):
            sys.stderr.write(f"\n{self._words()} Again: leave now.\n")
            sys.stderr.flush()

    @contextmanager
    def solving(self) -> Iterator[None]:
        """Raise KeyboardInterrupt at the first Ctrl-C inside the context."""
        self.is_begun = self.is_solving = True
        try:
            yield
        finally:
            self.is_solving = False


_present: list[Stop] = []


def present_stop() -> Stop | None:
    """Return what Ctrl-C does to the present work, None outside such work."""
    return _present[-1] if _present else None


@contextmanager
def stoppable(words: Callable[[], str]) -> Iterator[Stop]:
    """Let the first Ctrl-C end the search inside the context, and no certificate.

    ``words`` say what happens after it. Only the main thread hears Ctrl-C, and a
    handler of the user's own is left alone.
    """
    stop = Stop(words)

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.n_heard += 1
        stop.ask()
        if stop.n_heard > 1 or stop.is_solving or not stop.is_begun:
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    is_ours = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, handle)
    _present.append(stop)
    try:
        yield stop
    finally:
        _present.remove(stop)
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

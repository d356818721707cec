"""Run blocks on Python threads while BLAS uses one thread; fast for all sizes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import threadpoolctl

Parameters = ParamSpec("Parameters")
Item = TypeVar("Item")
Result = TypeVar("Result")


@functools.cache
def _libraries() -> list[threadpoolctl.LibController]:
    """Return the BLAS libraries that are loaded."""
    # Cached, because the search for loaded libraries takes milliseconds.
    found = threadpoolctl.ThreadpoolController().lib_controllers
    return [library for library in found if library.user_api == "blas"]


class _Limit:
    """One BLAS thread while any thread of the process is inside; restored exactly.

    The number of BLAS threads belongs to the process. So the first thread to enter
    notes it, and the last one to leave sets it again. OpenBLAS ignores the request of
    another thread once the main thread has made one, so the main thread sets it
    whenever it leaves; threads still inside then run slower, and nothing else changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = threading.local()
        self._n_inside = 0
        self._before: list[int] = []

    def enter(self) -> None:
        """Set one thread, unless this thread is inside already."""
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        if depth:
            return
        with self._lock:
            now = [library.get_num_threads() for library in _libraries()]
            # What could not be set again is still owed, if nobody has changed it.
            is_owed = len(self._before) == len(now) and all(n == 1 for n in now)
            if not self._n_inside and not is_owed:
                self._before = now
            self._n_inside += 1
            _set_threads([1] * len(now))

    def leave(self) -> None:
        """Set what was before, if no other thread is inside or this is the main one."""
        self._depth.value -= 1
        if self._depth.value:
            return
        with self._lock:
            self._n_inside -= 1
            is_main = threading.current_thread() is threading.main_thread()
            if self._n_inside and not is_main:
                return
            _set_threads(self._before)
            now = [library.get_num_threads() for library in _libraries()]
            if not self._n_inside and now == self._before:
                self._before = []


def _set_threads(counts: list[int]) -> None:
    """Set the number of threads of each BLAS library."""
    for library, count in zip(_libraries(), counts, strict=False):
        library.set_num_threads(count)


_LIMIT = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Return a context in which BLAS runs on one thread.

    Several BLAS threads made small eigenproblems up to 48 times slower.
    """
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


def single_blas_thread(
    function: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """Return the function with BLAS limited to one thread while it runs."""

    @functools.wraps(function)
    def limited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with one_blas_thread():
            return function(*args, **kwargs)

    return limited


def n_threads() -> int:
    """Return ``ISOPROJ_NUM_THREADS``, or the number of cores this process may use."""
    asked = os.environ.get("ISOPROJ_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threaded_map(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of ``items``, computed by threads.

    At most two results per thread are kept waiting, which bounds the memory.
    """
    items = iter(items)
    # Starting threads takes longer than most work on a single block.
    first = list(itertools.islice(items, 2))
    items = itertools.chain(first, items)
    if threads == 1 or len(first) < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting = []
        try:
            for item in items:
                waiting.append(_submitted(pool, function, item))
                if len(waiting) > 2 * threads:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def _submitted(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], item: Item
) -> Future[Result]:
    """Return the result to come; computed here if memory is short of a thread."""
    try:
        return pool.submit(function, item)
    except RuntimeError:
        done: Future[Result] = Future()
        done.set_result(function(item))
        return done


@functools.cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Return threads that wait for work; starting them takes longer than a block."""
    return ThreadPoolExecutor(count)


# The threads of a process do not survive its fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def threaded_list(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """Return ``function(item)`` for all items; for short work that comes often.

    The calling thread works too. Threads take items as they come free.
    """
    if threads == 1 or len(items) < 2:
        return [function(item) for item in items]
    results: dict[int, Result] = {}
    waiting = deque(enumerate(items))

    def work() -> None:
        while waiting:
            try:
                number, item = waiting.popleft()
            except IndexError:
                return
            results[number] = function(item)

    others = []
    # Where memory is short no thread may start: the caller works alone.
    with contextlib.suppress(RuntimeError):
        for _ in range(threads - 1):
            others.append(_helpers(threads - 1).submit(work))
    try:
        work()
    finally:
        waiting.clear()
        for other in others:
            # One that has not begun is not waited for: its thread may be this one.
            if not other.cancel():
                other.result()
    # A piece that was handed over before an error is not waited for, but done again.
    return [
        results[number] if number in results else function(item)
        for number, item in enumerate(items)
    ]


def for_each_chunk(
    function: Callable[[slice], None], n_rows: int, step: int, threads: int = 0
) -> None:
    """Call a function with every slice of ``step`` rows, on threads; 0 means all."""
    starts = range(0, n_rows, step)
    # Starting threads for one chunk would only cost time.
    threads = threads or (n_threads() if len(starts) > 1 else 1)
    chunks = (slice(start, min(start + step, n_rows)) for start in starts)
    for _ in threaded_map(function, chunks, threads):
        pass

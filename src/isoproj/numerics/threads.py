"""Run blocks on Python threads while BLAS uses one thread; fast for all sizes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

import threadpoolctl

__all__ = ["n_threads", "one_blas_thread", "single_blas_thread", "threaded_map"]

Parameters = ParamSpec("Parameters")
Item = TypeVar("Item")
Result = TypeVar("Result")


@functools.cache
def _controller() -> threadpoolctl.ThreadpoolController:
    """Return the controller of BLAS threads."""
    # Cached, because the search for loaded libraries takes milliseconds.
    return threadpoolctl.ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS runs on one thread.

    Several BLAS threads made small eigenproblems up to 48 times slower.
    """
    limits: AbstractContextManager[object] = _controller().limit(
        limits=1, user_api="blas"
    )
    return limits


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
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting = []
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * threads:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()

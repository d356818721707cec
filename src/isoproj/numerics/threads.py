"""One thread in BLAS, Python threads over blocks: the fast way round on all sizes."""

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
    # Looking for loaded libraries takes milliseconds: once is enough.
    return threadpoolctl.ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS runs on one thread.

    Small eigenproblems on several BLAS threads were measured up to 48 times slower.

    Examples
    --------
    >>> from isoproj.numerics.threads import one_blas_thread
    >>> with one_blas_thread():
    ...     pass
    """
    limits: AbstractContextManager[object] = _controller().limit(
        limits=1, user_api="blas"
    )
    return limits


def single_blas_thread(
    function: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """Decorate a function so that BLAS runs on one thread while it does.

    Examples
    --------
    >>> from isoproj.numerics.threads import single_blas_thread
    >>> single_blas_thread(len)([1, 2])
    2
    """

    @functools.wraps(function)
    def limited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with one_blas_thread():
            return function(*args, **kwargs)

    return limited


def n_threads() -> int:
    """Return how many threads a scan may use.

    ``ISOPROJ_NUM_THREADS`` decides; without it, the cores this process may run on.

    Examples
    --------
    >>> from isoproj.numerics.threads import n_threads
    >>> n_threads() >= 1
    True
    """
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

    At most a few results per thread wait to be taken, so that memory does not grow
    with the number of items.

    Examples
    --------
    >>> from isoproj.numerics.threads import threaded_map
    >>> list(threaded_map(abs, [-1, 2], threads=2))
    [1, 2]
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

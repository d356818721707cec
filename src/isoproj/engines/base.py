"""What an engine is: it runs a sweep over blocks of pairs, wherever it likes.

A sweep names its blocks and knows how to look at one and how to put answers together;
an engine decides where blocks are looked at. Answers must not depend on the order in
which they are put together, so that every engine gives the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, TypeVar

from isoproj.numerics.threads import n_threads, one_blas_thread, threaded_map

__all__ = [
    "Engine",
    "Geometry",
    "Progress",
    "Run",
    "Sweep",
    "ThreadEngine",
    "Visitor",
    "chosen",
    "current_walk",
    "walking",
]

Task = TypeVar("Task", contravariant=True)
Part = TypeVar("Part")
# What a sweep looks at: a dataclass of arrays. Engines carry it and do not open it.
Geometry: TypeAlias = Any
Visitor: TypeAlias = Callable[[Task], Part]
# Looks at blocks, tells each answer as it comes (or None), returns all of them merged.
Run: TypeAlias = Callable[[Sequence[Task], Callable[[Part], None] | None], Part]
# Told of pairs done and pairs in all.
Progress: TypeAlias = Callable[[int, int], None]

_walk: ContextVar[Progress | None] = ContextVar("walk", default=None)


@contextmanager
def walking(progress: Progress) -> Iterator[None]:
    """Have every walk over pairs inside the context tell how far it is.

    Parameters
    ----------
    progress : callable
        Called with pairs done and pairs in all; 0 pairs begin another walk.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import NearIsometricProjection
    >>> from isoproj.engines.base import walking
    >>> seen = []
    >>> with walking(lambda done, n_pairs: seen.append((done, n_pairs))):
    ...     model = NearIsometricProjection(n_components=1).fit(np.eye(3))
    >>> seen[0], seen[-1]
    ((0, 3), (3, 3))
    """
    token = _walk.set(progress)
    try:
        yield
    finally:
        _walk.reset(token)


def current_walk(progress: Progress | None = None) -> Progress:
    """Return whom a walk tells: who was named, else who watches, else nobody.

    Examples
    --------
    >>> from isoproj.engines.base import current_walk
    >>> current_walk()(0, 1)
    """
    return progress or _walk.get() or (lambda _done, _n_pairs: None)


class Sweep(Protocol[Task, Part]):
    """A question about many pairs, asked block by block; small, and can be pickled."""

    def visitor(self, points: Geometry) -> Visitor[Task, Part]:
        """Return what looks at one block; made once where blocks are looked at."""

    def merge(self, parts: Sequence[Part]) -> Part:
        """Return the answer for several blocks together, whatever their order."""


class Engine(Protocol):
    """Runs sweeps."""

    def opened(
        self, points: Geometry, sweep: Sweep[Task, Part]
    ) -> AbstractContextManager[Run[Task, Part]]:
        """Return a context in which blocks of a sweep can be run.

        Parameters
        ----------
        points : dataclass
            The geometry.
        sweep : Sweep
            The question.

        Returns
        -------
        context manager
            It gives a function of tasks that returns their merged answer.
        """


class ThreadEngine:
    """Runs sweeps on threads of this process; ``ISOPROJ_NUM_THREADS`` says how many.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import audit
    >>> from isoproj.engines.base import ThreadEngine
    >>> audit(np.eye(3), [[1.0, 0.0, 0.0]], engine=ThreadEngine()).distortion
    1.0
    """

    @contextmanager
    def opened(
        self, points: Geometry, sweep: Sweep[Task, Part]
    ) -> Iterator[Run[Task, Part]]:
        """Return a context in which blocks of a sweep run on threads.

        Parameters
        ----------
        points : dataclass
            The geometry.
        sweep : Sweep
            The question.

        Returns
        -------
        context manager
            It gives a function of tasks that returns their merged answer.
        """
        with one_blas_thread():
            visit = sweep.visitor(points)

            def run(
                tasks: Sequence[Task], told: Callable[[Part], None] | None = None
            ) -> Part:
                parts = []
                for part in threaded_map(visit, tasks, n_threads()):
                    parts.append(part)
                    if told is not None:
                        told(part)
                return sweep.merge(parts)

            yield run


def chosen(engine: Engine | None) -> Engine:
    """Return the engine asked for, threads by default, or say that it is none.

    Parameters
    ----------
    engine : Engine or None
        What was asked for.

    Returns
    -------
    Engine
        Ready to run.

    Raises
    ------
    ValueError
        If it is no engine.

    Examples
    --------
    >>> from isoproj.engines.base import chosen
    >>> type(chosen(None)).__name__
    'ThreadEngine'
    """
    if engine is None:
        return ThreadEngine()
    if not hasattr(engine, "opened"):
        msg = (
            "engine must be None or an engine like DaskEngine(client); "
            f"got {engine!r}. Use None."
        )
        raise ValueError(msg)
    return engine

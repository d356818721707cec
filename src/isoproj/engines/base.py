"""Engines run sweeps over blocks of pairs; a sweep does not know where it runs.

A sweep knows its tasks, how to do one of them, and how to merge answers. An engine
decides where tasks are done. The order of merging must not change an answer, so that
every engine gives the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeAlias, TypeVar

from isoproj.numerics.threads import n_threads, one_blas_thread, threaded_map

Task = TypeVar("Task", contravariant=True)
Part = TypeVar("Part")
# The points: a dataclass of arrays, which engines pass on without looking inside.
Geometry: TypeAlias = Any
Visitor: TypeAlias = Callable[[Task], Part]
# Does tasks, passes each answer to a callback (or None), and returns the merged answer.
Run: TypeAlias = Callable[[Sequence[Task], Callable[[Part], None] | None], Part]


class Sweep(Protocol[Task, Part]):
    """A question about many pairs, answered task by task; small enough to pickle."""

    def visitor(self, points: Geometry) -> Visitor[Task, Part]:
        """Return the function that does one task; called once on each worker."""

    def merge(self, parts: Sequence[Part]) -> Part:
        """Return the answer to several tasks together, whatever their order."""


class Engine(Protocol):
    """Runs sweeps."""

    def opened(
        self, points: Geometry, sweep: Sweep[Task, Part]
    ) -> AbstractContextManager[Run[Task, Part]]:
        """Return a context with a function that does tasks and merges their answers."""


class ThreadEngine:
    """Runs sweeps on threads of this process; ``ISOPROJ_NUM_THREADS`` says how many."""

    @contextmanager
    def opened(
        self, points: Geometry, sweep: Sweep[Task, Part]
    ) -> Iterator[Run[Task, Part]]:
        """Return a context with a function that does tasks of a sweep on threads."""
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
    """Return the engine, or threads for None; raise ValueError if it is no engine."""
    if engine is None:
        return ThreadEngine()
    if not hasattr(engine, "opened"):
        msg = (
            "engine must be None or an engine like DaskEngine(client); "
            f"got {engine!r}. Use None."
        )
        raise ValueError(msg)
    return engine

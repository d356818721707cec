"""Sweeps over blocks of pairs on the workers of a Dask cluster.

Every worker gets the points once, and keeps what it prepares for a sweep as long as the
sweep runs. Blocks go out in batches; their answers are merged on the workers, in a
tree, and only a few of them travel to the client. A worker that dies costs the batches
it had: Dask runs them again elsewhere. Should the points be lost with the last worker
that held them, they are sent again from here.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from isoproj._threads import one_blas_thread
from isoproj.datafiles.extras import needed
from isoproj.engines.base import Run, Sweep, Visitor
from isoproj.points import Points

__all__ = ["DaskEngine"]

Task = TypeVar("Task")
Part = TypeVar("Part")

# Batches for each thread of the cluster: what a dead worker costs, at most.
_BATCHES = 8
_FAN_IN = 8
# Times that everything is sent again before we give up.
_ATTEMPTS = 5

_lock = threading.Lock()
_visitors: dict[str, Visitor[Any, Any]] = {}


class DaskEngine:
    """Runs sweeps on a Dask cluster.

    Parameters
    ----------
    client : dask.distributed.Client or str
        A client, or the address of a scheduler.

    Raises
    ------
    MissingExtraError
        If Dask is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from dask.distributed import Client, LocalCluster
    >>> from isoproj import DaskEngine, audit
    >>> cluster = LocalCluster(1, processes=False, dashboard_address=None)
    >>> with cluster, Client(cluster) as client:
    ...     audit(np.eye(3), [[1.0, 0.0, 0.0]], engine=DaskEngine(client)).distortion
    1.0
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - Dask has no types
        self._dask = needed("distributed", extra="dask", purpose="A cluster")
        self.client = self._dask.Client(client) if isinstance(client, str) else client
        self._sent: tuple[Points, Any] | None = None

    def __deepcopy__(self, memo: object) -> DaskEngine:
        # A connection is not a parameter that could be copied.
        return self

    def __repr__(self) -> str:
        return f"DaskEngine({self.client.scheduler.address!r})"

    @contextmanager
    def opened(
        self, points: Points, sweep: Sweep[Task, Part]
    ) -> Iterator[Run[Task, Part]]:
        """Return a context in which blocks of a sweep run on the cluster.

        Parameters
        ----------
        points : Points
            The geometry.
        sweep : Sweep
            The question.

        Returns
        -------
        context manager
            It gives a function of tasks that returns their merged answer.
        """
        key = uuid.uuid4().hex

        def run(
            tasks: Sequence[Task], told: Callable[[Part], None] | None = None
        ) -> Part:
            todo = self._batches(tasks)
            parts: list[Part] = []
            for _ in range(_ATTEMPTS):
                todo = self._run_batches(points, sweep, key, todo, parts, told)
                if not todo:
                    return sweep.merge(parts)
            msg = (
                f"the cluster must keep workers alive; they were lost {_ATTEMPTS} "
                "times over. Give them more memory, or fit on threads (engine=None)."
            )
            raise RuntimeError(msg)

        try:
            yield run
        finally:
            self.client.run(_forget, key, on_error="ignore")

    def _run_batches(
        self,
        points: Points,
        sweep: Sweep[Task, Part],
        key: str,
        todo: list[list[Task]],
        parts: list[Part],
        told: Callable[[Part], None] | None,
    ) -> list[list[Task]]:
        """Run batches, put their answers in ``parts``, return the batches lost."""
        submit, sent = self.client.submit, self._points_at_workers(points)
        nodes = [
            (submit(_visit, sent, sweep, key, batch, pure=False), [batch])
            for batch in todo
        ]
        while len(nodes) > _FAN_IN:
            groups = [nodes[i : i + _FAN_IN] for i in range(0, len(nodes), _FAN_IN)]
            nodes = [
                (
                    submit(_merge, sweep, [node[0] for node in group], pure=False),
                    [batch for node in group for batch in node[1]],
                )
                for group in groups
            ]
        lost: list[list[Task]] = []
        for future, batches in nodes:
            try:
                part = future.result()
            except (self._dask.KilledWorker, self._dask.CancelledError):
                lost += batches
                continue
            parts.append(part)
            if told is not None:
                told(part)
        if lost:
            self._sent = None
        return lost

    def _batches(self, tasks: Sequence[Task]) -> list[list[Task]]:
        """Deal tasks out; early stripes are long and late ones short."""
        threads = max(1, sum(self.client.nthreads().values()))
        count = min(len(tasks), _BATCHES * threads)
        return [list(tasks[i::count]) for i in range(count)]

    def _points_at_workers(self, points: Points) -> Any:  # noqa: ANN401 - a future
        """Return the points as every worker holds them."""
        known = self._sent is not None and self._sent[0] is points
        if not known or self._sent is None or self._sent[1].status != "finished":
            # One copy would die with its only holder.
            future = self.client.scatter(points, broadcast=True, hash=False)
            self._sent = (points, future)
        return self._sent[1]


def _visit(
    points: Points, sweep: Sweep[Task, Part], key: str, batch: list[Task]
) -> Part:
    """Look at blocks, on a worker."""
    with one_blas_thread():
        with _lock:
            visit = _visitors.get(key)
            if visit is None:
                # One sweep at a time: what the last one prepared is of no more use.
                _visitors.clear()
                visit = _visitors[key] = sweep.visitor(points)
        return sweep.merge([visit(task) for task in batch])


def _merge(sweep: Sweep[Task, Part], parts: list[Part]) -> Part:
    return sweep.merge(parts)


def _forget(key: str) -> None:
    with _lock:
        _visitors.pop(key, None)

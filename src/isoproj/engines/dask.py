"""Sweeps over blocks of pairs on the workers of a Dask cluster.

Every worker gets the points once, and keeps what it prepares for a sweep as long as the
sweep runs. Points that lie in a file which all workers can read are opened there;
others are copied to each. Blocks go out in batches; their answers are merged on the
workers, in a tree, and only a few of them travel to the client. A worker that dies
costs the batches it had: Dask runs them again elsewhere. Should the points be lost with
the last worker that held them, they are sent again from here.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isoproj.engines.base import Geometry, Run, Sweep, Visitor
from isoproj.numerics.extras import needed
from isoproj.numerics.storage import Mapped
from isoproj.numerics.threads import one_blas_thread

__all__ = ["DaskEngine"]

Task = TypeVar("Task")
Part = TypeVar("Part")

# Batches for each thread of the cluster: what a dead worker costs, at most.
_BATCHES = 8
_FAN_IN = 8
# Times that everything is sent again before we give up.
_ATTEMPTS = 5
# Rows that tell whether a file is the same here and there.
_PROBES = 64

_lock = threading.Lock()
_visitors: dict[str, Visitor[Any, Any]] = {}


class DaskEngine:
    """Runs sweeps on a Dask cluster.

    Parameters
    ----------
    client : dask.distributed.Client or str
        A client, or the address of a scheduler.

    Attributes
    ----------
    sharing : {"path", "copies"} or None
        How workers got the points last: from a file that all of them can read, or
        each a copy.

    Raises
    ------
    MissingExtraError
        If Dask is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from dask.distributed import Client, LocalCluster
    >>> from isoproj import DaskEngine, audit
    >>> cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    >>> with cluster, Client(cluster) as client:
    ...     audit(np.eye(3), [[1.0, 0.0, 0.0]], engine=DaskEngine(client)).distortion
    1.0
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - Dask has no types
        self._dask = needed("distributed", extra="dask", purpose="A cluster")
        self.client = self._dask.Client(client) if isinstance(client, str) else client
        self.sharing: str | None = None
        self._sent: tuple[Geometry, Any] | None = None
        self._unread: Geometry = None

    def __deepcopy__(self, memo: object) -> DaskEngine:
        # A connection is not a parameter that could be copied.
        return self

    def __repr__(self) -> str:
        return f"DaskEngine({self.client.scheduler.address!r})"

    @contextmanager
    def opened(
        self, points: Geometry, sweep: Sweep[Task, Part]
    ) -> Iterator[Run[Task, Part]]:
        """Return a context in which blocks of a sweep run on the cluster.

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
        points: Geometry,
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
            except _UnreadableError:
                # A worker came later, from where the files are not.
                self._unread = points
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

    def _points_at_workers(self, points: Geometry) -> Any:  # noqa: ANN401 - a future
        """Return the points as every worker holds them."""
        known = self._sent is not None and self._sent[0] is points
        if not known or self._sent is None or self._sent[1].status != "finished":
            files = None if self._unread is points else _Files.of(points)
            if files is not None:
                readable = self.client.run(_is_readable, files).values()
                files = files if all(readable) else None
            self.sharing = "copies" if files is None else "path"
            # One copy would die with its only holder.
            sent = self.client.scatter(files or points, broadcast=True, hash=False)
            self._sent = (points, sent)
        return self._sent[1]


class _UnreadableError(Exception):
    """A worker cannot read the files that hold the points."""


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """Points whose largest arrays are opened where they are needed.

    Parameters
    ----------
    points : dataclass
        Without these arrays.
    arrays : dict of str to Mapped
        Where they lie.
    digests : dict of str to str
        Of some rows of each, so that another file of the same name is noticed.
    """

    points: Geometry
    arrays: dict[str, Mapped]
    digests: dict[str, str]

    @staticmethod
    def of(points: Geometry) -> _Files | None:
        """Return the points without what lies in files; None if nothing does."""
        named = {field.name: getattr(points, field.name) for field in fields(points)}
        found = {
            name: Mapped.of(array)
            for name, array in named.items()
            if isinstance(array, np.ndarray)
        }
        arrays = {name: at for name, at in found.items() if at is not None}
        digests = {name: _digest(named[name]) for name in arrays}
        bare: Any = dict.fromkeys(arrays)
        files = _Files(replace(points, **bare), arrays, digests)
        # Files without a name serve nobody else.
        return files if arrays and _is_readable(files) else None

    def open(self) -> Geometry:
        """Return the points, with arrays mapped here."""
        opened: Any = {}
        for name, where in self.arrays.items():
            try:
                opened[name] = where.open()
                same = _digest(opened[name]) == self.digests[name]
            except (OSError, ValueError):
                same = False
            if not same:
                raise _UnreadableError(where.path)
        return replace(self.points, **opened)


def _digest(rows: NDArray[Any]) -> str:
    some = rows[np.linspace(0, len(rows) - 1, _PROBES).astype(np.intp)]
    return hashlib.sha256(np.ascontiguousarray(some).tobytes()).hexdigest()


def _is_readable(files: _Files) -> bool:
    """Return whether the files are those that are meant; asked on each worker."""
    try:
        files.open()
    except _UnreadableError:
        return False
    return True


def _visit(
    points: Geometry, sweep: Sweep[Task, Part], key: str, batch: list[Task]
) -> Part:
    """Look at blocks, on a worker."""
    with one_blas_thread():
        with _lock:
            visit = _visitors.get(key)
            if visit is None:
                # One sweep at a time: what the last one prepared is of no more use.
                _visitors.clear()
                here = points.open() if isinstance(points, _Files) else points
                visit = _visitors[key] = sweep.visitor(here)
        return sweep.merge([visit(task) for task in batch])


def _merge(sweep: Sweep[Task, Part], parts: list[Part]) -> Part:
    return sweep.merge(parts)


def _forget(key: str) -> None:
    with _lock:
        _visitors.pop(key, None)

"""Sweeps over blocks of pairs on the workers of a Dask cluster.

Every worker gets the points once, and keeps what it prepares for a sweep as long as the
sweep runs. Points in a file that all workers can read are opened there; other points
are copied to each worker. Tasks go out in batches. Workers merge their answers in a
tree, and only a few answers travel to the client. If a worker dies, Dask runs its
batches on another. If the last worker that held the points dies, they are sent again.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isoproj.engines.base import Geometry, Run, Sweep, Visitor
from isoproj.numerics.extras import needed
from isoproj.numerics.spectral import Foreign
from isoproj.numerics.storage import Mapped
from isoproj.numerics.threads import one_blas_thread

Task = TypeVar("Task")
Part = TypeVar("Part")

# Answers that are merged at once.
_FAN_IN = 8
# Times that the points are sent before a sweep fails.
_ATTEMPTS = 5
# Rows that are compared to find out whether a file is the same on client and worker.
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
        How workers got the points of the last sweep: from a file that all of them can
        read, or as a copy for each.

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

    def __init__(self, client: Foreign) -> None:
        self._dask = needed("distributed", extra="dask", purpose="A cluster")
        self.client = self._dask.Client(client) if isinstance(client, str) else client
        self.sharing: str | None = None
        self._sent: tuple[Geometry, Any] | None = None
        self._unread: Geometry = None

    @property
    def n_threads(self) -> int:
        """Threads of the whole cluster."""
        return max(1, int(sum(self.client.nthreads().values())))

    def __deepcopy__(self, memo: object) -> DaskEngine:
        # A connection cannot be copied; scikit-learn's clone shares it.
        return self

    def __repr__(self) -> str:
        return f"DaskEngine({self.client.scheduler.address!r})"

    @contextmanager
    def opened(
        self, points: Geometry, sweep: Sweep[Task, Part]
    ) -> Iterator[Run[Task, Part]]:
        """Return a context with a function that does tasks on the cluster."""
        key = uuid.uuid4().hex
        self._check_connected()

        def run(
            tasks: Sequence[Task], told: Callable[[Part], None] | None = None
        ) -> Part:
            todo = self._batches(tasks)
            parts: list[Part] = []
            for _ in range(_ATTEMPTS):
                try:
                    todo = self._run_batches(points, sweep, key, todo, parts, told)
                except Exception:
                    self._check_connected()
                    raise
                if not todo:
                    return sweep.merge(parts)
                # Workers that died are replaced; a scheduler is not.
                self._check_connected()
            msg = (
                f"the cluster must keep workers alive; they were lost {_ATTEMPTS} "
                "times over. Give them more memory, or fit on threads (engine=None)."
            )
            raise RuntimeError(msg)

        try:
            yield run
        finally:
            if self.client.status == "running":
                with suppress(OSError):
                    self.client.run(_forget, key, on_error="ignore")

    def _check_connected(self) -> None:
        """Raise RuntimeError at once if the scheduler does not answer any more."""
        if self.client.status != "running":
            msg = (
                "the client must be connected to a running scheduler; it is "
                f"{self.client.status}. Make a new Client, or fit on threads "
                "(engine=None)."
            )
            raise RuntimeError(msg) from None

    def _run_batches(
        self,
        points: Geometry,
        sweep: Sweep[Task, Part],
        key: str,
        todo: list[list[Task]],
        parts: list[Part],
        told: Callable[[Part], None] | None,
    ) -> list[list[Task]]:
        """Run batches, append their answers to ``parts``, return the batches lost."""
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
                # A worker that joined later cannot read the files.
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
        """Return tasks in batches; long early stripes and short late ones are mixed."""
        # Batches for each thread of the cluster; a dead worker loses one or a few of
        # them.
        count = min(len(tasks), 8 * self.n_threads)
        return [list(tasks[i::count]) for i in range(count)]

    def _points_at_workers(self, points: Geometry) -> Foreign:
        """Return a future of the points, which every worker holds."""
        known = self._sent is not None and self._sent[0] is points
        if not known or self._sent is None or self._sent[1].status != "finished":
            files = None if self._unread is points else _Files.of(points)
            if files is not None:
                readable = self.client.run(_is_readable, files).values()
                files = files if all(readable) else None
            self.sharing = "copies" if files is None else "path"
            # A single copy would be lost with the worker that holds it.
            sent = self.client.scatter(files or points, broadcast=True, hash=False)
            self._sent = (points, sent)
        return self._sent[1]


class _UnreadableError(Exception):
    """A worker cannot read the files that hold the points."""


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """Points whose largest arrays are files that each worker opens.

    ``points`` lacks these arrays, ``arrays`` says where they are, and ``digests`` of
    some of their rows reveal another file of the same name.
    """

    points: Geometry
    arrays: dict[str, Mapped]
    digests: dict[str, str]

    @staticmethod
    def of(points: Geometry) -> _Files | None:
        """Return the points without arrays in files; None if there are no files."""
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
        # Another process cannot open a file without a name.
        return files if arrays and _is_readable(files) else None

    def open(self) -> Geometry:
        """Return the points with their files mapped into memory."""
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
    """Return a digest of some rows."""
    some = rows[np.linspace(0, len(rows) - 1, _PROBES).astype(np.intp)]
    return hashlib.sha256(np.ascontiguousarray(some).tobytes()).hexdigest()


def _is_readable(files: _Files) -> bool:
    """Return whether this process can open the files and finds the right rows."""
    try:
        files.open()
    except _UnreadableError:
        return False
    return True


def _visit(
    points: Geometry, sweep: Sweep[Task, Part], key: str, batch: list[Task]
) -> Part:
    """Do a batch of tasks on a worker and merge their answers."""
    with one_blas_thread():
        with _lock:
            visit = _visitors.get(key)
            if visit is None:
                # Sweeps run one at a time, so that an older visitor is of no more use.
                _visitors.clear()
                here = points.open() if isinstance(points, _Files) else points
                visit = _visitors[key] = sweep.visitor(here)
        return sweep.merge([visit(task) for task in batch])


def _merge(sweep: Sweep[Task, Part], parts: list[Part]) -> Part:
    """Merge answers on a worker."""
    return sweep.merge(parts)


def _forget(key: str) -> None:
    """Free what a worker prepared for a sweep."""
    with _lock:
        _visitors.pop(key, None)

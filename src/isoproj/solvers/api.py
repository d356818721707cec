"""What every solver shares: one result, one status, one clock, one progress record."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, astuple, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, Indices

__all__ = [
    "Clock",
    "Journal",
    "Monitor",
    "SolveResult",
    "Status",
    "Step",
    "Stopped",
    "current_monitor",
    "history_of_table",
    "history_table",
    "watching",
]


class Status(enum.StrEnum):
    """Why a solve stopped."""

    COMPLETED = "completed"
    OPTIMAL = "optimal"
    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"

    @property
    def advice(self) -> str:
        """One sentence for a person who did not get what they asked for."""
        return {
            Status.COMPLETED: "",
            Status.OPTIMAL: "",
            Status.CONVERGED: "",
            Status.MAX_ITER: "Raise max_iter, or accept the reported bounds.",
            Status.TIME_LIMIT: "Raise time_limit, or accept the reported bounds.",
            Status.INTERRUPTED: "Fit again to go on; the bounds so far are valid.",
        }[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a solve that a user can watch.

    Parameters
    ----------
    iteration : int
        Counted from 0.
    distortion : float
        Of this step's basis over all pairs.
    lower_bound : float
        Dual value of this step's weights.
    seconds : float
        Since the solve began.
    relaxed : float
        Value of the relaxation's matrix; NaN where a solver has none.
    n_working : int
        Pairs in the working set.
    kept, kept_bound : float
        Share of an objective kept by this step's basis, and a share that no projection
        under the cap can exceed; 0 and 1 where a solver has no objective.
    """

    iteration: int
    distortion: float
    lower_bound: float
    seconds: float
    relaxed: float = math.nan
    n_working: int = 0
    kept: float = 0.0
    kept_bound: float = 1.0


def history_table(history: Sequence[Step]) -> Array:
    """Return steps as a table, one a row, columns in the order of the fields.

    Parameters
    ----------
    history : sequence of Step
        Of a solve.

    Returns
    -------
    ndarray of shape (n_steps, n_fields)
        What ``history_of_table`` reads back.

    Examples
    --------
    >>> from isoproj.solvers.api import Step, history_of_table, history_table
    >>> step = Step(iteration=3, distortion=0.5, lower_bound=0.25, seconds=1.0)
    >>> history_table([step])[0, :4].tolist()
    [3.0, 0.5, 0.25, 1.0]
    >>> history_of_table(history_table([step]))[0].lower_bound
    0.25
    """
    rows = [astuple(step) for step in history]
    return np.array(rows, dtype=np.float64).reshape(-1, len(fields(Step)))


def history_of_table(table: NDArray[Any]) -> tuple[Step, ...]:
    """Return the steps that ``history_table`` laid out.

    Parameters
    ----------
    table : ndarray of shape (n_steps, n_columns)
        One step a row. Fields that an older isoproj did not know have their defaults.

    Returns
    -------
    tuple of Step
        As they were.

    Raises
    ------
    ValueError
        If the table has another shape.
    """
    names = [entry.name for entry in fields(Step)]
    needed = sum(entry.default is MISSING for entry in fields(Step))
    if table.ndim != 2 or not needed <= table.shape[1] <= len(names):
        msg = f"a history with {len(names)} columns; its shape is {table.shape}"
        raise ValueError(msg)
    steps = []
    for row in table.tolist():
        values: dict[str, Any] = dict(zip(names, row, strict=False))
        for name in ("iteration", "n_working"):
            values[name] = int(values.get(name, 0))
        steps.append(Step(**values))
    return tuple(steps)


Monitor = Callable[[Step], None]
_watcher: ContextVar[Monitor | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(monitor: Monitor) -> Iterator[None]:
    """Have every solve inside the context report its steps to ``monitor``.

    Parameters
    ----------
    monitor : callable
        Called with every ``Step``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import NearIsometricProjection
    >>> from isoproj.solvers.api import watching
    >>> steps = []
    >>> with watching(steps.append):
    ...     model = NearIsometricProjection(n_components=1).fit(np.eye(3))
    >>> len(steps) > 0
    True
    """
    token = _watcher.set(monitor)
    try:
        yield
    finally:
        _watcher.reset(token)


def current_monitor() -> Monitor | None:
    """Return the monitor of the innermost ``watching`` context, if any.

    Examples
    --------
    >>> from isoproj.solvers.api import current_monitor
    >>> current_monitor() is None
    True
    """
    return _watcher.get()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveResult:
    """What a solver claims; it proves nothing until ``certify`` has seen it.

    Parameters
    ----------
    basis : ndarray of shape (n_dims, k)
        Orthonormal columns.
    pairs : ndarray of shape (m, 2)
        Support of the dual weights.
    weights : ndarray of shape (m,)
        The weights, on the simplex.
    status : Status
        Why it stopped.
    history : tuple of Step
        One entry per iteration.
    factor : ndarray of shape (n_dims, s) or None
        The relaxation's matrix is ``factor @ factor.T``, where one was solved.
    average : Step or None
        The average of the iterates' weights, where a solver's theory is about it.
    """

    basis: Array
    pairs: Indices
    weights: Array
    status: Status
    history: tuple[Step, ...] = field(repr=False)
    factor: Array | None = field(default=None, repr=False)
    average: Step | None = None


class Clock:
    """Seconds since the start, and whether a limit has passed.

    Parameters
    ----------
    limit : float or None
        Seconds allowed; None means no limit.

    Examples
    --------
    >>> from isoproj.solvers.api import Clock
    >>> Clock(None).is_over
    False
    """

    def __init__(self, limit: float | None) -> None:
        self._start = time.perf_counter()
        self._limit = math.inf if limit is None else limit

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    @property
    def is_over(self) -> bool:
        """Whether the limit has passed."""
        return self.seconds >= self._limit

    @property
    def left(self) -> float | None:
        """Seconds until the limit, a moment at least; None without one."""
        if math.isinf(self._limit):
            return None
        return max(1e-3, self._limit - self.seconds)


class Stopped(Exception):  # noqa: N818 - a signal between our own functions
    """Time or rounds are used up; the best so far is the answer.

    Parameters
    ----------
    status : Status
        Which limit has passed.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True, eq=False)
class Journal:
    """The rounds of a solve, told to whoever watches, within limits.

    Parameters
    ----------
    clock : Clock
        Time used and allowed.
    max_iter : int
        Most rounds.
    monitor : callable or None
        Called with every ``Step``.
    """

    clock: Clock
    max_iter: int
    monitor: Monitor | None
    history: list[Step] = field(default_factory=list)

    def record(
        self, *, distortion: float, lower_bound: float, n_working: int, **more: float
    ) -> None:
        """Record a round of these values; raise ``Stopped`` if a limit has passed."""
        step = Step(
            iteration=len(self.history),
            distortion=distortion,
            lower_bound=lower_bound,
            seconds=self.clock.seconds,
            n_working=n_working,
            **more,
        )
        self.history.append(step)
        if self.monitor is not None:
            self.monitor(step)
        if self.clock.is_over:
            raise Stopped(Status.TIME_LIMIT)
        if len(self.history) >= self.max_iter:
            raise Stopped(Status.MAX_ITER)

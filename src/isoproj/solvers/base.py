"""What every solver shares: one result, one status, one clock, one progress record."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from isoproj._spectral import Array, Indices

__all__ = [
    "Clock",
    "Monitor",
    "SolveResult",
    "Status",
    "Step",
    "current_monitor",
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
    """

    iteration: int
    distortion: float
    lower_bound: float
    seconds: float
    relaxed: float = math.nan
    n_working: int = 0


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
    >>> from isoproj.solvers.base import watching
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
    >>> from isoproj.solvers.base import current_monitor
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
    average : Step or None
        The average of the iterates' weights, where a solver's theory is about it.
    """

    basis: Array
    pairs: Indices
    weights: Array
    status: Status
    history: tuple[Step, ...] = field(repr=False)
    average: Step | None = None


class Clock:
    """Seconds since the start, and whether a limit has passed.

    Parameters
    ----------
    limit : float or None
        Seconds allowed; None means no limit.

    Examples
    --------
    >>> from isoproj.solvers.base import Clock
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

"""What every solver shares: the problem, the result, the status, the clock."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import PairSearch

if TYPE_CHECKING:
    from isoproj.solvers.checkpoint import Checkpoint


class Status(enum.StrEnum):
    """Why a solve stopped."""

    COMPLETED = "completed"
    OPTIMAL = "optimal"
    CONVERGED = "converged"
    SETTLED = "settled"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"

    @property
    def meaning(self) -> str:
        """One sentence that says what ended the solve."""
        return {
            Status.COMPLETED: "All steps that were asked for were taken.",
            Status.OPTIMAL: "Distortion and lower bound meet.",
            Status.CONVERGED: "The gap is at most tol.",
            Status.SETTLED: (
                "Neither the projection nor the bound gained any more; the gap that is "
                "left may be the bound's."
            ),
            Status.MAX_ITER: "max_iter rounds were taken.",
            Status.TIME_LIMIT: "The time limit was reached.",
            Status.INTERRUPTED: "The fit was interrupted.",
        }[self]

    @property
    def advice(self) -> str:
        """One sentence for a person who did not get what they asked for."""
        return {
            Status.MAX_ITER: "Raise max_iter, or accept the reported bounds.",
            Status.TIME_LIMIT: "Raise time_limit, or accept the reported bounds.",
            Status.INTERRUPTED: "Fit again to go on; the bounds so far are valid.",
        }.get(self, "")


# Fields of a step that a history holds, in the order of its columns.
_COLUMNS = [entry for entry in fields(Step) if entry.name != "phase"]


def history_table(history: Sequence[Step]) -> Array:
    """Return steps as an array of shape (n_steps, n_fields), one step a row.

    Examples
    --------
    >>> from isoproj.numerics.progress import Step
    >>> from isoproj.solvers.api import history_of_table, history_table
    >>> step = Step(iteration=3, distortion=0.5, lower_bound=0.25, seconds=1.0)
    >>> history_table([step])[0, :4].tolist()
    [3.0, 0.5, 0.25, 1.0]
    >>> history_of_table(history_table([step]))[0].lower_bound
    0.25
    """
    rows = [[getattr(step, column.name) for column in _COLUMNS] for step in history]
    return np.array(rows, dtype=np.float64).reshape(-1, len(_COLUMNS))


def history_of_table(table: NDArray[Any]) -> tuple[Step, ...]:
    """Return the steps of a table; fields that an older file lacks have defaults.

    Raises
    ------
    ValueError
        If the table has another shape.
    """
    names = [column.name for column in _COLUMNS]
    needed = sum(column.default is MISSING for column in _COLUMNS)
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


class Clock:
    """Seconds since the start of a fit, and whether its limit has passed.

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
        """Seconds left, at least a small positive number; None without a limit."""
        if math.isinf(self._limit):
            return None
        return max(1e-3, self._limit - self.seconds)

    def part(self, share: float) -> Clock:
        """Return a clock of the same start that allows a share of the time left."""
        left = self.left
        return self.until(None if left is None else self.seconds + share * left)

    def until(self, limit: float | None) -> Clock:
        """Return a clock of the same start with a limit of its own."""
        clock = Clock(limit)
        clock._start = self._start
        return clock


UNLIMITED = Clock(None)


class Stopped(Exception):  # noqa: N818 - a signal between our own functions
    """A limit has passed: the best so far is the answer."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True, eq=False)
class Journal:
    """The rounds of a fit, told as progress events, within its limits.

    Parameters
    ----------
    clock : Clock
        Time used and allowed.
    max_iter : int or None
        Most rounds of one solve.
    history : list of Step
        All rounds of the fit.
    """

    clock: Clock
    max_iter: int | None = None
    history: list[Step] = field(default_factory=list)
    _first: int = 0

    def begin(self) -> None:
        """Begin another solve: rounds are numbered on, their limit counts anew."""
        self._first = len(self.history)

    def record(
        self,
        *,
        distortion: float,
        lower_bound: float,
        n_working: int,
        phase: str = "",
        **more: float,
    ) -> None:
        """Record a round; raise ``Stopped`` if a limit has passed."""
        step = Step(
            iteration=len(self.history),
            distortion=distortion,
            lower_bound=lower_bound,
            seconds=self.clock.seconds,
            n_working=n_working,
            phase=phase,
            **more,
        )
        self.history.append(step)
        tell(step)
        if self.clock.is_over:
            raise Stopped(Status.TIME_LIMIT)
        n_rounds = len(self.history) - self._first
        if self.max_iter is not None and n_rounds >= self.max_iter:
            raise Stopped(Status.MAX_ITER)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """What to solve.

    Parameters
    ----------
    search : PairSearch
        Points and pairs that count.
    k : int or None
        Target dimension; None means the fewest dimensions under the cap.
    cap : float or None
        What no pair may lose more than. Without an objective, the question is whether
        some projection is under the cap.
    objective : ndarray of shape (n_dims, n_dims) or None
        What to keep most of under the cap: positive semidefinite, trace 1.
    slack : float
        With an objective and without a cap: how far the cap is above the least
        distortion found, as a share of it.
    tol : float
        Relative gap at which bounds are good enough.
    journal : Journal
        Clock and rounds of the whole fit.
    seed : int
        Of samples and random starts.
    n_restarts : int or None
        Random starts; None leaves it to the solver.
    start : ndarray of shape (n_dims, k) or None
        A basis to start from besides the solver's own.
    dual : Weights
        Weights on pairs that proved a bound in an earlier solve.
    checkpoint : Checkpoint or None
        Where the state is kept after every search of all pairs.
    rounding : float
        By how much certifying may raise a distortion; caps are aimed at below that.
    """

    search: PairSearch
    k: int | None
    cap: float | None = None
    objective: Array | None = None
    slack: float = 0.0
    tol: float = 1e-3
    journal: Journal = field(default_factory=lambda: Journal(Clock(None)))
    seed: int = 0
    n_restarts: int | None = None
    start: Array | None = None
    dual: Weights = field(default_factory=lambda: Weights())
    checkpoint: Checkpoint | None = None
    rounding: float = 0.0

    @property
    def n_dims(self) -> int:
        """Dimensions that the points span."""
        return self.search.points.n_dims


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Weights on pairs that prove a bound.

    Parameters
    ----------
    pairs : ndarray of shape (m, 2)
        Point numbers.
    weights : ndarray of shape (m,)
        Positive.
    """

    pairs: Indices = field(default_factory=lambda: np.empty((0, 2), dtype=np.intp))
    weights: Array = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """A subspace and pairs whose hull in it proves a bound.

    Parameters
    ----------
    axes : ndarray of shape (n_dims, k + 1)
        Orthonormal columns.
    pairs : ndarray of shape (m, 2)
        Point numbers.
    bound : float
        Squared inradius of the hull.
    """

    axes: Array
    pairs: Indices
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dimensions:
    """How many dimensions a cap takes.

    Parameters
    ----------
    k : int
        Dimensions found to suffice; those of the points where nothing less was found.
    impossible : int
        No projection to as many dimensions, or fewer, is under the cap; 0 if unknown.
    proof : Weights
        The dual weights that prove it.
    basis : ndarray of shape (n_dims, k) or None
        Under the cap; None where ``k`` is that of the points.
    status : Status
        ``CONVERGED``, or what stopped the search before its end.
    """

    k: int
    impossible: int
    proof: Weights
    basis: Array | None = None
    status: Status = Status.CONVERGED


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """What a solver claims; it proves nothing until ``certify`` has seen it.

    Parameters
    ----------
    basis : ndarray of shape (n_dims, k)
        Orthonormal columns, the best found.
    dual : Weights
        Weights on the simplex that bound the distortion of any projection.
    status : Status
        Why the solve stopped.
    distortion, lower : float
        Both sides as the solver sees them.
    relaxed : float
        Value of the relaxation's matrix.
    factor : ndarray of shape (n_dims, s) or None
        The relaxation's matrix is ``factor @ factor.T``, where one was solved.
    cap : float or None
        The cap, given or found; None without an objective.
    multipliers : Weights
        They bound what any projection under the cap keeps of the objective.
    fallbacks : tuple of ndarray
        Other bases, should the first not be under the cap once it is certified.
    dimensions : Dimensions or None
        How many dimensions the cap takes, where that was asked for.
    average : Step or None
        The average of the iterates' weights, where a solver's theory is about it.
    hull : Subspace or None
        A subspace that proves a stronger bound than the weights, where one was found.
    history : tuple of Step
        One entry per round.
    """

    basis: Array
    dual: Weights
    status: Status
    distortion: float = math.inf
    lower: float = 0.0
    relaxed: float = math.nan
    factor: Array | None = field(default=None, repr=False)
    cap: float | None = None
    multipliers: Weights = field(default_factory=Weights)
    fallbacks: tuple[Array, ...] = ()
    dimensions: Dimensions | None = None
    average: Step | None = None
    hull: Subspace | None = None
    history: tuple[Step, ...] = field(default=(), repr=False)

    @property
    def known(self) -> list[Indices]:
        """Pairs on which proofs rest."""
        found = [self.dual.pairs, self.multipliers.pairs]
        found += [self.hull.pairs] if self.hull is not None else []
        dimensions = self.dimensions
        return found + ([dimensions.proof.pairs] if dimensions is not None else [])

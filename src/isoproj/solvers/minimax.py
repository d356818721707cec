"""The default solver: both sides of the minimax problem, each by its own method.

Lower side: the fantope relaxation by an interior-point method over all pairs
(``solvers.relaxation``); its dual weights are the certificate. Upper side: from the
rounding of the relaxation's matrix, descent on the Grassmannian at falling temperature
(``solvers.grassmann``) on a working set of pairs that grows by searches of all pairs
until the worst pair overall is inside; then sequential quadratic programming on the
tight pairs (``solvers.tight``), which removes what smoothing left.

The relaxation is convex, so its gap goes to zero with work (``tol``). The gap between
basis and bound may stay open: the relaxation is not always tight, and local search
promises a local optimum only.

Where a search of all pairs takes seconds, both sides are solved on a pool of pairs that
few searches of all pairs enlarge (``solvers.pool``).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from isoproj._container import Header, Tensors
from isoproj._spectral import Array, Indices, orthonormal, top_eigenpairs
from isoproj._threads import single_blas_thread
from isoproj.pairs import PairSet
from isoproj.points import Points
from isoproj.search import PairSearch
from isoproj.solvers.base import (
    Clock,
    Journal,
    Monitor,
    SolveResult,
    Status,
    Step,
    Stopped,
)
from isoproj.solvers.checkpoint import Checkpoint
from isoproj.solvers.pool import Pool
from isoproj.solvers.relaxation import Relaxation, solve_relaxation
from isoproj.solvers.tight import finish
from isoproj.solvers.working_set import (
    SMALL_BASIS,
    WorkingSet,
    batch_size,
    cooled,
    leading,
)

__all__ = ["minimax", "refine"]

_TEMPERATURES = (0.05, 0.02, 0.008, 0.003, 0.001, 0.0003, 0.0001)
# From a basis of nearly the same problem: warm enough to leave it, and in single
# precision (``solvers.working_set``) for as long as that will do.
_WARM_TEMPERATURES = (0.02, 0.006, 0.002, 0.0006, 0.0002, 0.0001)
# Batches of pairs known from the start there: each search that brings more is followed
# by the same move again.
_WARM_BATCHES = 3
# Few enough pairs to restart on, and dimensions at which local optima differ most.
_SOME = 150_000
_LOOSE = 7
_N_RESTARTS = 6
# Few enough pairs to work on all of them, and to close the solver gap for nothing.
_FEW = 6_000
_CLOSER = 0.1
# A scan may find a pair this much worse than the working set's worst.
_EXCESS = 1e-5
# Polishing ends when a round gains less.
_GAIN = 2e-5
# Searches of all pairs, at most, that a side solved on a pool may ask for.
_POOLED_ROUNDS = 12
_UNLIMITED = 10**9
# The gap to which a pool's relaxation is solved while the pool is new.
_LOOSE_GAP = 0.08


@dataclass(slots=True, eq=False)
class _Progress:
    """The best of both sides so far."""

    journal: Journal
    basis: Array
    codes: Indices
    weights: Array
    distortion: float = math.inf
    lower: float = 0.0
    relaxed: float = math.inf
    factor: Array | None = None

    @property
    def gap(self) -> float:
        """Relative gap between both sides."""
        return (self.distortion - self.lower) / max(self.lower, 1e-12)

    def see_basis(self, basis: Array, distortion: float) -> None:
        if distortion < self.distortion:
            self.basis, self.distortion = basis, distortion

    def see_relaxation(self, relaxation: Relaxation) -> None:
        if relaxation.lower > self.lower:
            self.lower = relaxation.lower
            self.codes, self.weights = relaxation.codes, relaxation.weights
        if relaxation.relaxed < self.relaxed:
            self.relaxed, self.factor = relaxation.relaxed, relaxation.factor

    def tell(self, n_working: int) -> None:
        """Record a round; stop when a limit has passed."""
        self.journal.record(
            distortion=self.distortion,
            lower_bound=self.lower,
            relaxed=self.relaxed,
            n_working=n_working,
        )


@single_blas_thread
def minimax(
    points: Points,
    pairs: PairSet,
    k: int,
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    time_limit: float | None = None,
    n_restarts: int | None = None,
    start: Array | None = None,
    known_pairs: Indices | None = None,
    seed: int = 0,
    monitor: Monitor | None = None,
    search: PairSearch | None = None,
    checkpoint: Checkpoint | None = None,
) -> SolveResult:
    """Find a basis and dual weights whose values are close together.

    Parameters
    ----------
    points : Points
        Geometry in span coordinates.
    pairs : PairSet
        The pairs that count.
    k : int
        Target dimension, below ``points.n_dims``.
    tol : float
        Relative solver gap (relaxed value over lower bound, minus 1) to reach.
    max_iter : int
        Most rounds.
    time_limit : float or None
        Seconds after which to stop with the best so far.
    n_restarts : int or None
        Further random starts of the local search; None means a few where they are
        cheap and the relaxation is loose (few pairs, small ``k``).
    start : ndarray of shape (n_dims, k) or None
        A basis to start from besides the relaxation's.
    known_pairs : ndarray of shape (m, 2) or None
        Pairs that mattered in an earlier solve.
    seed : int
        Of the samples and random starts.
    monitor : callable or None
        Called with every ``Step``.
    search : PairSearch or None
        Of these points and pairs, if one is at hand.
    checkpoint : Checkpoint or None
        Where the state is kept after every search of all pairs. A solve goes on from
        there; it works on a pool of pairs, as where distances do not fit the memory.

    Returns
    -------
    SolveResult
        ``OPTIMAL`` if the two sides meet (within ``tol`` where the k-th eigenvalue of
        the dual matrix stands clear of the next), ``CONVERGED`` if the solver gap
        closed and local search ended, else the limit that stopped it.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs import prepare_pairs
    >>> from isoproj.solvers.minimax import minimax
    >>> points, pairs = prepare_pairs(np.eye(6), rotate=True)
    >>> result = minimax(points, pairs, 2)
    >>> bool(result.history[-1].distortion >= result.history[-1].lower_bound)
    True
    """
    clock = Clock(time_limit)
    search = PairSearch(points, pairs) if search is None else search
    rng = np.random.default_rng(seed)
    principal = np.eye(points.n_dims, k)
    codes = search.sample(1000, rng)
    progress = _Progress(
        journal=Journal(clock, max_iter, monitor),
        basis=principal,
        codes=codes,
        weights=np.full(codes.size, 1.0 / codes.size),
    )
    try:
        known = np.empty(0, dtype=np.intp)
        if known_pairs is not None:
            known = search.encode(np.sort(known_pairs, axis=1))
        if checkpoint is not None or (search.is_slow and search.n_pairs > _FEW):
            _solve_pooled(search, start, known, tol, progress, rng, checkpoint)
        else:
            _solve_searching(search, start, known, tol, n_restarts, progress, rng)
        status = _final_status(search, progress, k, tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return _result(search, progress, status)


@single_blas_thread
def refine(
    search: PairSearch,
    basis: Array,
    pairs: Indices,
    weights: Array,
    lower: float,
    *,
    gap: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 200,
    time_limit: float | None = None,
    seed: int = 0,
    monitor: Monitor | None = None,
) -> SolveResult:
    """Go on from a solution of nearly the same problem.

    Dual weights bound the problem with more pairs as they are, so that the basis comes
    first: from where it was, warm enough to leave it. Where that does not bring the gap
    back, the relaxation goes on from the weights; where the old basis was no place to
    start from, the search begins anew.

    Parameters
    ----------
    search : PairSearch
        All pairs, of the points as they are now.
    basis : ndarray of shape (n_dims, k)
        What was found before.
    pairs : ndarray of shape (m, 2)
        Support of the dual weights found before.
    weights : ndarray of shape (m,)
        Those weights.
    lower : float
        What they prove.
    gap : float
        Relative gap between both sides that is good enough, up to ``tol``.
    tol, max_iter, time_limit, seed, monitor
        As for ``minimax``.

    Returns
    -------
    SolveResult
        No worse than what was given.
    """
    start, codes = orthonormal(basis), search.encode(np.sort(pairs, axis=1))
    k = start.shape[1]
    progress = _Progress(
        journal=Journal(Clock(time_limit), max_iter, monitor),
        basis=start,
        codes=codes,
        weights=weights,
        lower=lower,
    )
    enough = gap + tol
    try:
        _see(search, start, progress)
        count = batch_size(k)
        lowest = search.lowest(start, _WARM_BATCHES * count).codes
        known = WorkingSet(search, np.union1d(codes, lowest))
        _anneal(known, start, count, _WARM_TEMPERATURES, progress)
        status = Status.CONVERGED
        if progress.gap > enough:
            warm = Relaxation(codes, weights, start, 0.0, 1.0, 0)
            relaxation = _solve_lower(search, k, tol, progress, warm)
            if progress.gap > enough:
                _solve_upper(
                    search,
                    [leading(relaxation.factor, k)],
                    progress.basis,
                    relaxation.codes,
                    progress,
                    np.random.default_rng(seed),
                )
            status = _final_status(search, progress, k, tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return _result(search, progress, status)


def _result(search: PairSearch, progress: _Progress, status: Status) -> SolveResult:
    return SolveResult(
        basis=progress.basis,
        pairs=search.decode(progress.codes),
        weights=progress.weights,
        status=status,
        history=tuple(progress.journal.history),
        factor=progress.factor,
    )


def _solve_searching(
    search: PairSearch,
    start: Array | None,
    known: Indices,
    tol: float,
    n_restarts: int | None,
    progress: _Progress,
    rng: np.random.Generator,
) -> None:
    """Solve both sides with a search of all pairs whenever one is useful."""
    n_dims, k = progress.basis.shape
    relaxation = _solve_lower(search, k, tol, progress)
    if n_restarts is None:
        n_restarts = _N_RESTARTS if search.n_pairs <= _SOME and k <= _LOOSE else 0
    given = None if start is None else orthonormal(start)
    starts = [leading(relaxation.factor, k)]
    starts += [np.eye(n_dims, k)] if n_restarts else []
    for _ in range(n_restarts):
        starts.append(orthonormal(rng.standard_normal((n_dims, k))))
    codes = np.union1d(relaxation.codes, known)
    _solve_upper(search, starts, given, codes, progress, rng)


def _solve_pooled(
    search: PairSearch,
    start: Array | None,
    known: Indices,
    tol: float,
    progress: _Progress,
    rng: np.random.Generator,
    checkpoint: Checkpoint | None,
) -> None:
    """Solve both sides with few searches of all pairs, saved after each."""
    stored = None if checkpoint is None else checkpoint.load()
    if stored is None:
        pool = Pool.begin(search, progress.basis, rng)
        pool.codes = np.union1d(pool.codes, known)
        state = _Pooled(pool, start)
    else:
        state = _Pooled.restored(search, progress, rng, *stored)
    while state.stage != "done":
        if state.stage == "lower":
            state.solve_lower(tol, progress)
        else:
            state.solve_upper(tol, progress, rng)
        # What a limit has cut short is not what a run without it would have found.
        is_whole = not progress.journal.clock.is_over
        try:
            progress.tell(state.pool.codes.size)
        finally:
            if checkpoint is not None and is_whole:
                checkpoint.save(*state.parts(progress, rng))


@dataclass(slots=True, eq=False)
class _Pooled:
    """A solve on a pool of pairs, between two searches of all pairs."""

    pool: Pool
    start: Array | None
    stage: str = "lower"
    n_rounds: int = 0
    relaxation: Relaxation | None = None
    violation: float = math.inf

    def solve_lower(self, tol: float, progress: _Progress) -> None:
        """Solve the relaxation on the pool, and look for pairs that violate it."""
        k = progress.basis.shape[1]
        relaxation = solve_relaxation(
            self.pool.inside(),
            k,
            # While the pool lacks pairs that matter, its own optimum matters little.
            tol=min(_LOOSE_GAP, max(0.3 * tol, 0.2 * self.violation)),
            start=self.relaxation,
            callback=lambda *_: progress.journal.clock.is_over,
        )
        relaxed = self.pool.enlarge(relaxation.factor, relaxation.relaxed)
        progress.see_relaxation(replace(relaxation, relaxed=relaxed))
        self.relaxation = relaxation
        self.violation = relaxed / max(relaxation.lower, 1e-12) - 1.0
        self.n_rounds += 1
        if relaxed <= progress.lower * (1.0 + tol) or self.n_rounds == _POOLED_ROUNDS:
            self.stage, self.n_rounds = "upper", 0

    def solve_upper(
        self, tol: float, progress: _Progress, rng: np.random.Generator
    ) -> None:
        """Search for a basis on the pool, and look for pairs that lose more."""
        assert self.relaxation is not None
        temperatures: tuple[float, ...] = _TEMPERATURES
        basis = leading(self.relaxation.factor, progress.basis.shape[1])
        if self.start is not None:
            basis, temperatures = orthonormal(self.start), _TEMPERATURES[-3:]
        inside = self.pool.inside()
        own = replace(
            progress,
            journal=Journal(progress.journal.clock, _UNLIMITED, None),
            distortion=math.inf,
        )
        known, count = _first_set(inside, basis, self.relaxation.codes, rng)
        _anneal(known, basis, count, temperatures, own)
        _polish(known, own.basis, count, own)
        overall = self.pool.enlarge(own.basis, own.distortion)
        progress.see_basis(own.basis, overall)
        self.start = own.basis
        self.n_rounds += 1
        inside_pool = overall <= own.distortion * (1.0 + 0.1 * tol)
        if inside_pool or self.n_rounds == _POOLED_ROUNDS:
            self.stage = "done"

    def parts(
        self, progress: _Progress, rng: np.random.Generator
    ) -> tuple[dict[str, Any], dict[str, Array | Indices]]:
        """Return all that a restarted solve needs, as a dict and named arrays."""
        assert self.relaxation is not None
        relaxation = self.relaxation
        state = {
            "stage": self.stage,
            "n_rounds": self.n_rounds,
            "n_iter": relaxation.n_iter,
            "rng": rng.bit_generator.state,
            "history": [asdict(step) for step in progress.journal.history],
        }
        arrays: dict[str, Array | Indices | None] = {
            "pool": self.pool.codes,
            "start": self.start,
            "relaxation_codes": relaxation.codes,
            "relaxation_weights": relaxation.weights,
            "relaxation_factor": relaxation.factor,
            "relaxation_values": np.array(
                [relaxation.lower, relaxation.relaxed, self.violation]
            ),
            "basis": progress.basis,
            "codes": progress.codes,
            "weights": progress.weights,
            "factor": progress.factor,
            "values": np.array([progress.distortion, progress.lower, progress.relaxed]),
        }
        return state, {n: a for n, a in arrays.items() if a is not None}

    @staticmethod
    def restored(
        search: PairSearch,
        progress: _Progress,
        rng: np.random.Generator,
        state: Header,
        arrays: Tensors,
    ) -> _Pooled:
        """Return the solve that ``parts`` took apart; progress and ``rng`` too."""
        rng.bit_generator.state = state["rng"]
        progress.journal.history.extend(Step(**step) for step in state["history"])
        progress.basis, progress.factor = arrays["basis"], arrays.get("factor")
        progress.codes, progress.weights = arrays["codes"], arrays["weights"]
        values = [float(value) for value in arrays["values"]]
        progress.distortion, progress.lower, progress.relaxed = values
        lower, relaxed, violation = (float(v) for v in arrays["relaxation_values"])
        relaxation = Relaxation(
            arrays["relaxation_codes"],
            arrays["relaxation_weights"],
            arrays["relaxation_factor"],
            lower,
            relaxed,
            int(state["n_iter"]),
        )
        return _Pooled(
            Pool(search, arrays["pool"]),
            arrays.get("start"),
            str(state["stage"]),
            int(state["n_rounds"]),
            relaxation,
            violation,
        )


def _final_status(
    search: PairSearch, progress: _Progress, k: int, tol: float
) -> Status:
    gap = progress.distortion - progress.lower
    if gap <= 1e-6 * progress.lower + 1e-9:
        return Status.OPTIMAL
    if gap <= tol * progress.lower and _is_separated(search, progress, k, tol):
        return Status.OPTIMAL
    if progress.relaxed <= progress.lower * (1.0 + tol) + 1e-9:
        return Status.CONVERGED
    return Status.MAX_ITER


def _is_separated(search: PairSearch, progress: _Progress, k: int, tol: float) -> bool:
    """Return whether the k-th eigenvalue of the dual matrix stands clear of the next.

    Then the relaxation's optimum is a projection, and the basis is that one up to the
    solver's tolerance.
    """
    rows = search.directions(progress.codes)
    values, _ = top_eigenpairs((rows.T * progress.weights) @ rows, k + 1)
    return bool(values[k - 1] - values[k] > 2.0 * tol * values[k - 1])


def _solve_lower(
    search: PairSearch,
    k: int,
    tol: float,
    progress: _Progress,
    warm: Relaxation | None = None,
) -> Relaxation:
    target = _CLOSER * tol if search.n_pairs <= _FEW else tol
    relaxation = solve_relaxation(
        search,
        k,
        tol=target,
        start=warm,
        callback=lambda *_: progress.journal.clock.is_over,
    )
    progress.see_relaxation(relaxation)
    _see(search, leading(relaxation.factor, k), progress)
    progress.tell(relaxation.codes.size)
    return relaxation


def _see(search: PairSearch, basis: Array, progress: _Progress) -> None:
    """Measure a basis on all pairs."""
    weakest = search.weakest(basis, 0.0)
    progress.see_basis(basis, 1.0 - float(weakest.retained[0]))


def _solve_upper(
    search: PairSearch,
    starts: list[Array],
    given: Array | None,
    codes: Indices,
    progress: _Progress,
    rng: np.random.Generator,
) -> None:
    """Search from every start, then polish the best to a local optimum of the max."""
    known, count = _first_set(search, starts[0], codes, rng)
    for start in starts:
        _anneal(known, start, count, _TEMPERATURES, progress)
    if given is not None:
        # A given basis is near an optimum already: heat would only lose it.
        _see(search, given, progress)
        _anneal(known, given, count, _TEMPERATURES[-3:], progress)
    _polish(known, progress.basis, count, progress)


def _first_set(
    search: PairSearch, start: Array, codes: Indices, rng: np.random.Generator
) -> tuple[WorkingSet, int]:
    """Return the pairs to begin with, and how many may be added at once."""
    count = batch_size(start.shape[1])
    if search.n_pairs <= _FEW:
        first = search.sample(_FEW * _FEW, rng)
    else:
        lowest = search.lowest(start, count // 2).codes
        sample = search.sample(count // 2, rng)
        # The bad pairs of one basis alone would mislead the hot stages, whose
        # smoothed maximum is close to an average over all pairs.
        first = np.unique(np.concatenate([codes, lowest, sample]))
    return WorkingSet(search, first), count


def _anneal(
    known: WorkingSet,
    basis: Array,
    count: int,
    temperatures: tuple[float, ...],
    progress: _Progress,
) -> None:
    """Cool down, and at each temperature grow the set until it holds the worst."""
    worst = math.inf
    for temperature in temperatures:
        for _ in range(6):
            moved = cooled(known.secants, basis, temperature)
            excess, overall = known.grow(moved, 2.0 * temperature + 0.005, count)
            progress.see_basis(moved, overall)
            # Blind to the pairs just added, a cold move may be a step back.
            if excess < temperature or overall < worst or temperature > 0.01:
                basis, worst = moved, overall
            progress.tell(known.codes.size)
            if excess < temperature:
                break


def _polish(known: WorkingSet, basis: Array, count: int, progress: _Progress) -> None:
    """Alternate exact programmes on the tight pairs with searches of all pairs."""
    rounds, programmes = (8, 3) if basis.size <= SMALL_BASIS else (1, 1)
    for _ in range(rounds):
        before = progress.distortion
        moved = finish(known.secants, basis, max_iter=programmes)
        excess, overall = known.grow(moved, 0.005, count)
        progress.see_basis(moved, overall)
        progress.tell(known.codes.size)
        if excess <= _EXCESS and overall > before - _GAIN:
            break
        basis = progress.basis
        if excess > _EXCESS:
            basis = cooled(known.secants, moved, _TEMPERATURES[-1])

"""Fantope relaxation of the best rank-k linear map that keeps all directions long.

For unit rows ``x_l`` the relaxation is the semidefinite programme ::

    maximise t   subject to   x_l' P x_l >= t,   0 <= P <= I,   tr P = k,

with dual ``min_w topk(M(w))`` over the simplex, ``M(w) = sum_l w_l x_l x_l'`` and
``topk`` the sum of the k largest eigenvalues.  In distortion terms every ``w`` gives
the lower bound ``1 - topk(M(w))`` and every feasible ``P`` the relaxed value
``1 - min_l x_l' P x_l``; the optimum lies between the two, so the reported gap is a
certificate whatever path the iteration took.

Method.  A primal-dual path-following method with Nesterov-Todd scaling and Mehrotra's
predictor-corrector.  The two matrix blocks ``P`` and ``I - P`` have scalings ``S1`` and
``S2``; in a basis that diagonalises both of them the Newton system decouples entry by
entry, leaving one Schur complement over the directions,
``H_ij = sum_ab K_ab y_ia y_ja y_ib y_jb``.  The small kernel ``K`` is numerically of
low rank, hence ``H`` is a short sum of squared Gram matrices.

Growth.  Only a few hundred directions and a low-dimensional subspace carry the
optimum.  Directions enter the working set when their slack falls to the scale of the
current barrier; a direction that was dropped once and came back stays.  The subspace
that carries ``P`` is enlarged with the occupied eigenvectors of the full moment matrix
that stick out of it, and sheds idle directions only after the barrier has fallen.
Every row is dropped at most once, so the working set settles; on settled sets the
method is the standard predictor-corrector, whose fast convergence is a fact of
practice, not a theorem, for Mehrotra's heuristic.  A restricted optimum is optimal
once no direction is violated and no occupied eigenvector sticks out, and that is what
the certificate measures: a wrong turn costs time or leaves a gap, never a wrong bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq

from isoproj._spectral import Array, Indices, top_eigenpairs, top_eigenvalue_sum
from isoproj.search import PairSearch
from isoproj.solvers.newton import (
    NewtonSystem,
    block_diagonal,
    central_occupations,
    congruence,
    filling,
    moment_of,
    onto_fantope,
    quadratic,
    spectral,
    symmetric,
    trace_product,
)

__all__ = ["Relaxation", "solve_relaxation"]

_START_BARRIER = 1e-3  # distortions live on [0, 1]; larger values only waste steps
_FULL_DIMENSION = 40  # below this the subspace is the whole space
_MISSING = 0.03  # occupation outside the subspace that calls for enlarging it
_IDLE = 0.3  # part of that occupation below which a direction is dropped
_SHRINK = 0.7  # decrease of the barrier between two shrinkings
_IDLE_WEIGHT = 0.01  # part of a typical weight below which a row may be dropped
_FAR = 50.0  # slack, in typical slacks, beyond which a row may be dropped
_NEAR = 2.0  # slack, in typical slacks, below which a row is added
_FEWEST = 40  # rows that may enter at once however small the subspace
_SPARE = 4000  # pairs looked at for rows that are new
_PARALLEL = 1e-10  # one minus the cosine of directions that count as the same
_ROW_SCALE = 4.0  # working rows expected per subspace dimension
_ATTEMPTS = 3  # starts, should an iterate get stuck at the boundary
_ZERO = 1e-9  # distortions below this count as zero
_SAMPLE = 4000  # random pairs whose moment starts a cold solve

Callback = Callable[[int, float, float], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """Both sides of the relaxation's optimum.

    Parameters
    ----------
    codes : ndarray of shape (m,)
        Pairs that carry dual weight, as ``PairSearch`` codes.
    weights : ndarray of shape (m,)
        The weights, on the simplex.
    factor : ndarray of shape (n_dims, s)
        ``P = factor @ factor.T`` is feasible: eigenvalues in [0, 1], trace k.
    lower : float
        Dual value of the weights, up to rounding.
    relaxed : float
        ``1 - min x^T P x`` over all pairs, to the accuracy of the search.
    n_iter : int
        Newton steps.
    """

    codes: Indices
    weights: Array
    factor: Array
    lower: float
    relaxed: float
    n_iter: int


def solve_relaxation(
    search: PairSearch,
    k: int,
    *,
    tol: float = 1e-3,
    start: Relaxation | None = None,
    max_iter: int = 60,
    callback: Callback | None = None,
) -> Relaxation:
    """Solve the relaxation over all pairs of a search.

    Parameters
    ----------
    search : PairSearch
        The pairs.
    k : int
        Target dimension, below ``n_dims``.
    tol : float
        Relative gap ``relaxed / lower - 1`` at which to stop.
    start : Relaxation or None
        Warm start, of the same or another ``k``.
    max_iter : int
        Most Newton steps of one attempt; one that gets stuck is followed by another
        from another start.
    callback : callable or None
        Called as ``callback(iteration, lower, relaxed)``; True stops the solve.

    Returns
    -------
    Relaxation
        Valid on both sides whether or not the gap was closed.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs import prepare_pairs
    >>> from isoproj.search import PairSearch
    >>> from isoproj.solvers.relaxation import solve_relaxation
    >>> points, pairs = prepare_pairs(np.eye(4), "directions", rotate=True)
    >>> result = solve_relaxation(PairSearch(points, pairs), 2, tol=1e-6)
    >>> round(result.lower, 5)
    0.5
    """
    if search.n_pairs <= k:
        return _spanned(search, k)
    best: Relaxation | None = None
    for seed in range(_ATTEMPTS):
        result, is_done = _attempt(search, k, tol, start, max_iter, callback, seed)
        best = result if best is None else _better(best, result)
        if is_done:
            break
    assert best is not None
    return best


def _better(first: Relaxation, second: Relaxation) -> Relaxation:
    """Return the better of each side of two attempts."""
    dual = first if first.lower >= second.lower else second
    primal = first if first.relaxed <= second.relaxed else second
    return Relaxation(
        dual.codes,
        dual.weights,
        primal.factor,
        dual.lower,
        primal.relaxed,
        first.n_iter + second.n_iter,
    )


def _attempt(
    search: PairSearch,
    k: int,
    tol: float,
    start: Relaxation | None,
    max_iter: int,
    callback: Callback | None,
    seed: int,
) -> tuple[Relaxation, bool]:
    """Follow the central path once; also return whether trying again is pointless."""
    state = _start(search, k, start, seed)
    best = _Best.of(state)
    told = False
    for iteration in range(max_iter + 1):
        best = best.with_point(state, search)
        # The bound restricted to the subspace is optimistic but cheap.
        close = best.gap(state.restricted_bound()) <= tol
        told = callback is not None and callback(iteration, best.lower, best.relaxed)
        stop = told or iteration == max_iter
        if close or stop:
            best = best.with_bound(state)
        if stop or best.gap(best.lower) <= tol:
            break
        try:
            state.grow(search, dense=close)
            state.step()
        except np.linalg.LinAlgError:
            # The iterate has reached rounding level.
            best = best.with_bound(state)
            break
    return best.result(iteration), told or best.gap(best.lower) <= tol


def _spanned(search: PairSearch, k: int) -> Relaxation:
    """Return the exact answer when there are no more pairs than dimensions."""
    codes = search.sample(search.n_pairs, np.random.default_rng(0))
    rows = search.directions(codes)
    factor = np.linalg.svd(rows, full_matrices=True)[2][:k].T
    weights = np.full(codes.size, 1 / codes.size)
    return Relaxation(codes, weights, factor, 0.0, 0.0, 0)


def _soft_minimum(values: Array, barrier: float) -> float:
    """Return t below all values with ``sum barrier / (values - t) = 1``."""
    low = float(values.min())

    def excess(t: float) -> float:
        return float((barrier / (values - t)).sum() - 1)

    return float(
        brentq(excess, low - barrier * len(values) - 1e-12, low - 0.999 * barrier)
    )


def _start(search: PairSearch, k: int, warm: Relaxation | None, seed: int) -> _State:
    """Return a primal feasible, centred starting state."""
    moment, basis = _start_subspace(search, k, warm, seed)
    energies, vectors = np.linalg.eigh(symmetric(basis.T @ moment @ basis))
    barrier = _START_BARRIER
    if warm is not None:
        barrier = _warm_barrier(search, k, basis @ vectors, energies)
    filled, level = central_occupations(energies, k, barrier)
    factor = basis @ (vectors * np.sqrt(filled))
    codes = search.lowest(factor, max(2 * basis.shape[1], 20)).codes
    if warm is not None:
        busy = warm.codes[warm.weights > 1e-4 / codes.size]
        codes = np.union1d(codes, busy)
    rows = search.directions(codes)
    values = quadratic(rows @ (basis @ vectors), np.diag(filled))
    t = _soft_minimum(values, barrier)
    slacks = values - t
    weights = barrier / slacks
    if warm is not None:
        # Weights above the central ones carry the warm start.
        order = np.argsort(warm.codes)
        at = np.searchsorted(warm.codes[order], codes)
        at = np.minimum(at, order.size - 1)
        known = warm.codes[order][at] == codes
        weights = np.maximum(weights, np.where(known, warm.weights[order][at], 0.0))
    weights /= weights.sum()
    return _State(
        k=k,
        basis=basis,
        projector=spectral(vectors, filled),
        lower_dual=spectral(vectors, barrier / filled),
        upper_dual=spectral(vectors, barrier / (1 - filled)),
        level=level,
        codes=codes,
        rows=rows,
        weights=weights,
        slacks=slacks,
        t=t,
    )


def _warm_barrier(search: PairSearch, k: int, vectors: Array, energies: Array) -> float:
    """Return the barrier whose central P is the best one over all directions."""
    grid = 10.0 ** np.arange(-6.0, -2.9, 0.5)
    levels = []
    for barrier in grid:
        filled = central_occupations(energies, k, barrier)[0]
        factor = vectors * np.sqrt(filled)
        levels.append(search.weakest(factor, 0.0).retained[0])
    return float(grid[int(np.argmax(levels))])


def _start_subspace(
    search: PairSearch, k: int, warm: Relaxation | None, seed: int
) -> tuple[Array, Array]:
    """Return the moment to start from and the subspace to work in."""
    if warm is None:
        codes = search.sample(_SAMPLE, np.random.default_rng(seed))
        weights = np.full(codes.size, 1.0 / codes.size)
    else:
        codes, weights = warm.codes, warm.weights
    moment = moment_of(search.directions(codes), weights)
    dimension = moment.shape[0]
    if dimension <= _FULL_DIMENSION:
        return moment, np.eye(dimension)
    basis = top_eigenpairs(moment, min(dimension, k + 20))[1]
    if warm is not None:
        joined = np.hstack([warm.factor, basis[:, : k + 5]])
        left, sizes, _ = np.linalg.svd(joined, full_matrices=False)
        basis = left[:, sizes > 1e-6]
    return moment, basis


@dataclass
class _State:
    """Primal-dual iterate on the working rows and the working subspace."""

    k: int
    basis: Array
    projector: Array
    lower_dual: Array
    upper_dual: Array
    level: float
    codes: Indices
    rows: Array
    weights: Array
    slacks: Array
    t: float
    dropped: Indices = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    shrunk: float = np.inf  # barrier at the last shrinking of the subspace

    def __post_init__(self) -> None:
        self.images = self.rows @ self.basis

    @property
    def barrier(self) -> float:
        """Mean complementarity product of all blocks."""
        width = len(self.projector)
        total = (
            trace_product(self.projector, self.lower_dual)
            + np.trace(self.upper_dual)
            - trace_product(self.projector, self.upper_dual)
            + self.slacks @ self.weights
        )
        return float(total) / (2 * width + len(self.weights))

    def factor(self) -> Array:
        """Return a factor of the feasible P nearest to the iterate."""
        occupations, vectors = np.linalg.eigh(self.projector)
        occupations = onto_fantope(occupations, self.k)
        result: Array = self.basis @ (vectors * np.sqrt(occupations))
        return result

    def restricted_bound(self) -> float:
        """Return the lower bound of the problem restricted to the subspace."""
        moment = moment_of(self.images, self.weights / self.weights.sum())
        return 1 - top_eigenvalue_sum(moment, self.k)

    def grow(self, search: PairSearch, dense: bool) -> None:
        """Adapt the subspace and exchange working rows.

        The cheap search for missing directions can overlook eigenvectors that are
        decoupled from the subspace; ``dense`` asks for a complete one.
        """
        if len(self.basis) > _FULL_DIMENSION:
            self._shrink_subspace()
            self._enlarge_subspace(dense)
        factor = self.basis @ np.linalg.cholesky(self.projector)
        self._exchange_rows(search, factor)

    def _threshold(self) -> float:
        """Return the occupation that matters at the current barrier."""
        return _MISSING * min(1.0, 100 * self.barrier * len(self.projector))

    def _shrink_subspace(self) -> None:
        """Drop the subspace directions that P hardly occupies."""
        if self.barrier > _SHRINK * self.shrunk:  # no dropping and adding in turns
            return
        self.shrunk = self.barrier
        occupations, vectors = np.linalg.eigh(self.projector)
        keep = occupations > _IDLE * self._threshold()
        keep[-self.k - 1 :] = True
        if keep.all():
            return
        vectors = vectors[:, keep]
        self.projector = np.diag(onto_fantope(occupations[keep], self.k))
        self.lower_dual = congruence(vectors, self.lower_dual)
        self.upper_dual = congruence(vectors, self.upper_dual)
        self._move_basis(self.basis @ vectors)

    def _enlarge_subspace(self, dense: bool) -> None:
        """Add the occupied eigenvectors of the full moment outside the subspace."""
        spare = len(self.basis) - len(self.projector)
        if spare == 0:
            return
        energies, outside = self._outside_vectors(dense)
        occupations = filling(energies, self.level, self.barrier)
        outside = outside * np.sqrt(occupations)
        sizes, turn = np.linalg.eigh(outside.T @ outside)  # ascending
        count = int(np.sum(sizes > self._threshold()))
        count = min(count, 8 + self.k // 2, spare)
        if count > 0:
            fresh = outside @ turn[:, -count:]
            fresh /= np.sqrt(sizes[-count:])
            fresh = fresh - self.basis @ (self.basis.T @ fresh)
            self._append(np.linalg.qr(fresh)[0])

    def _outside_vectors(self, dense: bool) -> tuple[Array, Array]:
        """Return top eigenvalues and the parts of their vectors off the subspace.

        The cheap variant takes Ritz vectors from one Krylov step.
        """
        basis, (dimension, width) = self.basis, self.basis.shape
        if dense or 2 * width >= dimension:
            moment = moment_of(self.rows, self.weights)
            energies, vectors = top_eigenpairs(moment, min(width + 10, dimension))
            return energies, vectors - basis @ (basis.T @ vectors)
        image = self.rows.T @ (self.weights[:, None] * self.images)
        fresh = np.linalg.qr(image - basis @ (basis.T @ image))[0]
        moment = moment_of(np.hstack([self.images, self.rows @ fresh]), self.weights)
        energies, vectors = np.linalg.eigh(moment)
        return energies[width:], fresh @ vectors[width:, width:]

    def _append(self, fresh: Array) -> None:
        """Append subspace directions at their central occupation."""
        barrier = self.barrier
        energies, turn = np.linalg.eigh(moment_of(self.rows @ fresh, self.weights))
        fresh = fresh @ turn
        occupations = filling(energies, self.level, barrier)
        occupations = np.minimum(occupations, 0.1)
        scale = (self.k - occupations.sum()) / self.k  # keeps the trace
        self.projector = block_diagonal(self.projector * scale, occupations)
        self.lower_dual = block_diagonal(self.lower_dual, barrier / occupations)
        self.upper_dual = block_diagonal(self.upper_dual, barrier / (1 - occupations))
        self._move_basis(np.hstack([self.basis, fresh]))

    def _move_basis(self, basis: Array) -> None:
        """Change the basis of P and lower t where the new P costs slack."""
        self.basis = basis
        self.images = self.rows @ basis
        values = quadratic(self.images, self.projector)
        shift = max(0.0, self.t - float((values - 0.3 * self.slacks).min()))
        self.t -= shift
        self.slacks = values - self.t

    def _exchange_rows(self, search: PairSearch, factor: Array) -> None:
        """Add rows near the boundary and drop the idle ones."""
        barrier = self.barrier
        width = len(self.projector)
        scale = _ROW_SCALE * width * barrier
        # An optimum needs no more rows than P has entries. Where isotropic data make
        # all pairs tight at once, further ones come only if they are violated.
        plenty = self.codes.size > width * (width + 1)
        level = self.t + (0.0 if plenty else _NEAR * scale)
        found = search.weakest(factor, level, most=self.codes.size + _SPARE)
        fresh = ~np.isin(found.codes, self.codes) & (found.retained < level)
        codes, rows = self._unlike(search, found.codes[fresh], max(width, _FEWEST))
        slack = found.retained[np.isin(found.codes, codes)] - self.t
        busy = self.weights * scale > _IDLE_WEIGHT * barrier
        busy |= self.slacks < _FAR * scale
        # A row that was dropped once and came back stays.
        busy |= np.isin(self.codes, self.dropped)
        if not codes.size and busy.all():
            return
        self.dropped = np.union1d(self.dropped, self.codes[~busy])
        if codes.size:
            # Lower t instead of accepting violated rows.
            shift = max(0.0, 0.3 * scale - float(slack.min()))
            self.t -= shift
            self.slacks = self.slacks + shift
            slack = slack + shift
        self.codes = np.concatenate([self.codes[busy], codes])
        self.rows = np.vstack([self.rows[busy], rows])
        self.images = np.vstack([self.images[busy], rows @ self.basis])
        self.slacks = np.concatenate([self.slacks[busy], slack])
        self.weights = np.concatenate([self.weights[busy], barrier / slack])

    def _unlike(
        self, search: PairSearch, codes: Indices, count: int
    ) -> tuple[Indices, Array]:
        """Return the first ``count`` pairs not parallel to a row already there.

        Points on lines and grids have many parallel pairs; one of them stands for
        all, and the others would only crowd out what is new.
        """
        taken, rows = np.empty(0, dtype=np.intp), np.empty((0, self.rows.shape[1]))
        for start in range(0, codes.size, 4 * count):
            chunk = codes[start : start + 4 * count]
            fresh = search.directions(chunk)
            others = np.vstack([self.rows, rows])
            new = np.abs(fresh @ others.T).max(axis=1) < 1.0 - _PARALLEL
            twins = np.triu(np.abs(fresh @ fresh.T) >= 1.0 - _PARALLEL, 1)
            new &= ~twins.any(axis=0)
            taken = np.concatenate([taken, chunk[new]])
            rows = np.vstack([rows, fresh[new]])
            if taken.size >= count:
                break
        return taken[:count], rows[:count]

    def step(self) -> None:
        """Take one predictor-corrector step."""
        system = NewtonSystem(self)
        affine = system.direction(None, 0.0)
        primal, dual = system.lengths(affine)
        primal, dual = min(1.0, primal), min(1.0, dual)
        ahead = system.complementarity(affine, primal, dual)
        centring = min(1.0, max(1e-6, (ahead / system.barrier) ** 3))
        move = system.direction(affine, centring * system.barrier)
        primal, dual = system.lengths(move)
        fraction = 0.9 + 0.09 * min(primal, dual, 1.0)
        primal, dual = min(1.0, fraction * primal), min(1.0, fraction * dual)
        self.projector = symmetric(self.projector + primal * move.projector)
        self.slacks = self.slacks + primal * move.slacks
        self.t += primal * move.t
        self.weights = self.weights + dual * move.weights
        self.level += dual * move.level
        lower, upper = system.dual_moves(move)
        self.lower_dual = symmetric(self.lower_dual + dual * lower)
        self.upper_dual = symmetric(self.upper_dual + dual * upper)


@dataclass(frozen=True)
class _Best:
    """Best bound and best feasible point seen, not necessarily of one iterate."""

    lower: float
    relaxed: float
    codes: Indices
    weights: Array
    factor: Array

    @classmethod
    def of(cls, state: _State) -> _Best:
        """Return the vacuous bounds of a start."""
        weights = state.weights / state.weights.sum()
        return cls(0.0, np.inf, state.codes, weights, state.factor())

    def gap(self, bound: float) -> float:
        """Return the relative gap to a bound; a zero distortion has none."""
        if self.relaxed <= _ZERO:
            return 0.0
        return (self.relaxed - bound) / bound if bound > 0 else np.inf

    def with_point(self, state: _State, search: PairSearch) -> _Best:
        """Return the certificate with the better feasible point."""
        factor = state.factor()
        relaxed = 1 - float(search.weakest(factor, 0.0).retained[0])
        if relaxed >= self.relaxed:
            return self
        return replace(self, relaxed=relaxed, factor=factor)

    def with_bound(self, state: _State) -> _Best:
        """Return the certificate with the better exact lower bound."""
        weights = state.weights / state.weights.sum()
        lower = 1 - top_eigenvalue_sum(moment_of(state.rows, weights), state.k)
        if lower <= self.lower:
            return self
        return replace(self, lower=lower, codes=state.codes, weights=weights)

    def result(self, n_iter: int) -> Relaxation:
        """Return the public result; rounding must not give a negative bound."""
        lower = max(self.lower, 0.0)
        relaxed = max(self.relaxed, lower)
        keep = self.weights > 1e-12
        weights = self.weights[keep] / self.weights[keep].sum()
        return Relaxation(
            self.codes[keep], weights, self.factor, lower, relaxed, n_iter
        )

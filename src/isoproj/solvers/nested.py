"""Nested projections: one basis whose first columns are good projections themselves.

Every number of dimensions is solved on its own first. That gives the bound of each
prefix and its target: the distortion that a projection of its own would have. Descent
on flags then minimises the largest excess over the targets, on a working set that grows
by searches of all pairs under every prefix. Excess is counted in odds,
``(loss - target) / (target * (1 - target))``: relative to the loss where that is small,
relative to what is kept (but no less than 5 %) where the loss is nearly everything.

With an objective, the distortions found so, times ``1 + slack``, are caps. Each number
of dimensions is solved under its cap, which bounds what any projection under the cap
keeps, and descent goes on for what the prefixes keep together. A bisection towards the
basis without the objective ends under every cap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, orthonormal
from isoproj.numerics.threads import single_blas_thread
from isoproj.solvers.api import Journal, Problem, Result, Status, Stopped
from isoproj.solvers.capped import guaranteed, root_of
from isoproj.solvers.grassmann import descend
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import Merit
from isoproj.solvers.solve import solve
from isoproj.solvers.working_set import WorkingSet

# A target below this counts as this: nothing is relative to a loss of nothing.
_LEAST_TARGET = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NestedResult:
    """What the solver claims; ``certify`` has the last word.

    Parameters
    ----------
    basis : ndarray of shape (n_dims, K)
        Orthonormal columns; the first ``k`` are the projection to ``k`` dimensions.
    separate : dict of int to Result
        For every number of dimensions the result of a solve of its own: its proof
        bounds the prefix, and with an objective its cap and multipliers too.
    whole : Result
        The result for all columns.
    """

    basis: Array
    separate: dict[int, Result]
    whole: Result


@single_blas_thread
def solve_nested(
    problem: Problem,
    ks: Sequence[int],
    weights: Sequence[float] | None = None,
    settings: Settings | None = None,
) -> NestedResult:
    """Find one basis whose first ``k`` columns are good for every ``k`` of ``ks``.

    Parameters
    ----------
    problem : Problem
        Without ``cap``; its ``k`` is not read.
    ks : sequence of int
        Numbers of dimensions, ascending; the last is that of the basis.
    weights : sequence of float or None
        How much the excess of each prefix counts; None means alike.
    settings : Settings or None
        Tuning figures.

    Returns
    -------
    NestedResult
        The basis, and what bounds each prefix.
    """
    shares = np.ones(len(ks)) if weights is None else np.asarray(weights, dtype=float)
    inner = [k for k in ks if k < problem.n_dims]
    nested = _Nested(problem, settings or Settings(), len(inner))
    plain = replace(problem, objective=None, start=None)
    separate = {k: nested.timed(solve, replace(plain, k=k)) for k in ks}
    basis = np.eye(problem.n_dims)
    if inner:
        basis = nested.solved(inner, shares[: len(inner)], separate)
    # Where all dimensions are asked for, the rest of the space follows.
    size = min(ks[-1], problem.n_dims)
    if basis.shape[1] < size:
        rest = np.linalg.svd(basis)[0][:, basis.shape[1] : size]
        basis = orthonormal(np.hstack([basis, rest]))
    return NestedResult(
        basis=basis, separate=separate, whole=nested.whole(separate[ks[-1]], basis)
    )


@dataclass(slots=True, eq=False)
class _Best:
    """The basis of least merit so far, with the distortions of its prefixes."""

    basis: Array
    distortions: Array
    value: float = math.inf

    def see(self, basis: Array, distortions: Array, value: float) -> None:
        """Keep a basis if its merit is the least so far."""
        if value < self.value:
            self.basis, self.distortions, self.value = basis, distortions, value


@dataclass(slots=True, eq=False)
class _Nested:
    """The solves of a nested problem, one after another within one time limit."""

    problem: Problem
    settings: Settings
    n_left: int
    status: Status = Status.SETTLED

    def __post_init__(self) -> None:
        # A descent on flags follows; with an objective, both parts come twice.
        self.n_left += 1
        if self.problem.objective is not None:
            self.n_left = 2 * self.n_left + 2

    def _journal(self) -> Journal:
        """Return a journal for the next solve, with its share of the time left.

        Bounds at other numbers of dimensions are no history of the whole.
        """
        clock = self.problem.journal.clock.part(1.0 / max(1, self.n_left))
        if self.status is Status.INTERRUPTED:
            # Whoever stops a fit does not want to wait for the rest of it.
            clock = clock.until(0.0)
        self.n_left -= 1
        return replace(self.problem.journal, clock=clock, history=[])

    def timed(
        self, solver: Callable[[Problem, Settings], Result], posed: Problem
    ) -> Result:
        """Solve within a share of the time, and note what stopped the solve."""
        if posed.k is not None and posed.k >= posed.n_dims:
            return solver(posed, self.settings)
        result = solver(replace(posed, journal=self._journal()), self.settings)
        self._note(result.status)
        return result

    def _note(self, status: Status) -> None:
        """Keep the status of a solve that a limit stopped; the first one stays."""
        if status.advice and not self.status.advice:
            self.status = status
        if status is Status.INTERRUPTED:
            self.status = status

    def whole(self, last: Result, basis: Array) -> Result:
        """Return the result for all columns of the basis."""
        status = self.status
        if not status.advice and last.distortion == 0.0:
            status = last.status
        history = tuple(self.problem.journal.history)
        return replace(last, basis=basis, status=status, history=history)

    def solved(
        self, ks: list[int], weights: Array, separate: dict[int, Result]
    ) -> Array:
        """Return the basis for all prefixes; ``separate`` gets caps if need be."""
        found = np.array([separate[k].distortion for k in ks])
        # A separate fit that keeps next to nothing is hardly of use, and is not to cost
        # the other prefixes much.
        odds = weights / np.maximum(1.0 - found, 0.05)
        merit = _excess(ks, np.maximum(found, _LEAST_TARGET), odds / odds.max())
        known = self._first_set(ks, separate, None)
        start = _mean_flag([separate[k].basis for k in ks])
        best = self._descended(merit, known, start, separate[ks[-1]])
        if self.problem.objective is None:
            return best.basis
        return self._kept(ks, weights, best, separate)

    def _first_set(
        self, ks: list[int], separate: dict[int, Result], further: Array | None
    ) -> WorkingSet:
        """Return the pairs to begin with: those with weight, and random ones."""
        search, rng = self.problem.search, np.random.default_rng(self.problem.seed)
        codes = [search.sample(self.settings.batch, rng)]
        for k in ks:
            weighted = np.sort(separate[k].dual.pairs, axis=1)
            codes.append(search.encode(weighted))
        return WorkingSet(search, distinct(*codes), self.settings, further)

    def _measure(
        self, merit: Merit, known: WorkingSet, basis: Array, slack: float
    ) -> Array:
        """Return the prefixes' distortions over all pairs, and add the worst pairs."""
        distortions = []
        for k, slope in zip(merit.ks, merit.slopes, strict=True):
            prefix = np.ascontiguousarray(basis[:, :k])
            distortions.append(known.grow(prefix, slack / float(slope))[1])
        return np.array(distortions)

    def _descended(
        self, merit: Merit, known: WorkingSet, start: Array, last: Result
    ) -> _Best:
        """Cool down from a start; return the best basis over all pairs.

        Temperatures are shares of the targets, as the excess is.
        """
        journal, settings = self._journal(), self.settings
        history = self.problem.journal.history
        # What is above a cap on its way is neither found nor a bound.
        journal.history = history if merit.prices is None else []
        journal.begin()
        first = self._measure(merit, known, start, settings.hottest)
        best = _Best(start, first, self._value(merit, start, first))
        try:
            for temperature in settings.temperatures(0.04, 0.1):
                basis = best.basis if temperature < 0.01 else start
                for _ in range(4):
                    basis, _ = descend(
                        known.secants,
                        basis,
                        temperature,
                        merit,
                        settings,
                        journal.clock,
                    )
                    images = known.secants.images(basis)[: known.size]
                    seen = merit.excesses(1.0 - merit.retained(images)).max()
                    slack = 2.0 * temperature
                    found = self._measure(merit, known, basis, slack)
                    best.see(basis, found, self._value(merit, basis, found))
                    journal.record(
                        distortion=float(best.distortions[-1]),
                        lower_bound=last.lower,
                        n_working=known.size,
                        phase="nested search",
                    )
                    if merit.worst_excess(found) - seen < temperature:
                        break
                start = basis
        except Stopped as stop:
            self._note(stop.status)
        except KeyboardInterrupt:
            self._note(Status.INTERRUPTED)
        return best

    def _value(self, merit: Merit, basis: Array, distortions: Array) -> float:
        """Return what is to be small over all pairs."""
        worst = merit.worst_excess(distortions)
        if merit.prices is None:
            return worst
        objective = self.problem.objective
        assert objective is not None
        of_columns = np.einsum("ij,ij->j", basis, objective @ basis)
        kept = np.cumsum(of_columns)[np.array(merit.ks) - 1]
        return max(0.0, worst) - float(merit.prices @ kept)

    def _kept(
        self,
        ks: list[int],
        weights: Array,
        least: _Best,
        separate: dict[int, Result],
    ) -> Array:
        """Return the basis that keeps most under the caps of all prefixes."""
        objective = self.problem.objective
        assert objective is not None
        caps = np.minimum(1.0, (1.0 + self.problem.slack) * least.distortions)
        for k, cap in zip(ks, caps.tolist(), strict=True):
            prefix, alone = np.ascontiguousarray(least.basis[:, :k]), separate[k]
            posed = replace(self.problem, k=k, cap=cap, start=prefix)

            def under_cap(
                posed: Problem,
                settings: Settings,
                alone: Result = alone,
                prefix: Array = prefix,
            ) -> Result:
                return guaranteed(posed, alone, (prefix, alone.basis), settings)

            separate[k] = self.timed(under_cap, posed)
        targets = np.maximum(caps * (1.0 - self.settings.margin), _LEAST_TARGET)
        prices = self._prices(ks, weights, separate, targets)
        merit = replace(_excess(ks, targets, np.ones(len(ks))), prices=prices)
        known = self._first_set(ks, separate, root_of(objective))
        start = _mean_flag([separate[k].basis for k in ks])
        for _ in range(3):
            best = self._descended(merit, known, start, separate[ks[-1]])
            if merit.worst_excess(best.distortions) <= 2e-3:
                break
            merit = replace(merit, prices=prices / 6.0)
            prices, start = prices / 6.0, best.basis
        return self._under(merit, known, least.basis, best)

    def _prices(
        self,
        ks: list[int],
        weights: Array,
        separate: dict[int, Result],
        targets: Array,
    ) -> Array:
        """Return prices low enough to make the penalty of the caps exact."""
        objective = self.problem.objective
        assert objective is not None
        results = [separate[k] for k in ks]
        kept = [float(np.vdot(r.basis, objective @ r.basis)) for r in results]
        prices = weights / np.maximum(kept, 1e-12)
        masses = np.array([float(r.multipliers.weights.sum()) for r in results])
        return np.asarray(prices / (1.5 * float(prices @ (masses * targets)) + 0.5))

    def _under(
        self, merit: Merit, known: WorkingSet, inside: Array, best: _Best
    ) -> Array:
        """Return the basis nearest to the best one that is under all caps."""
        if merit.worst_excess(best.distortions) <= 0.0:
            return best.basis
        low, high, found = 0.0, 1.0, inside
        for _ in range(8):
            middle = 0.5 * (low + high)
            trial = _between(merit.ks, inside, best.basis, middle)
            is_under = (
                merit.worst_excess(self._measure(merit, known, trial, 0.0)) <= 0.0
            )
            low, high = (middle, high) if is_under else (low, middle)
            found = trial if is_under else found
        return found


def _excess(ks: list[int], targets: Array, weights: Array) -> Merit:
    """Return the weighted excess of every prefix, relative to its target."""
    return Merit(tuple(ks), weights / targets, weights)


def _mean_flag(bases: list[Array]) -> Array:
    """Return the leading eigenvectors of the sum of the projections onto some bases.

    Directions that more of the bases share come first. The bases' numbers of columns
    ascend, and the result has as many columns as the last.
    """
    left = np.linalg.svd(np.hstack(bases), full_matrices=False)[0]
    return left[:, : bases[-1].shape[1]]


def _between(ks: tuple[int, ...], inside: Array, outside: Array, share: float) -> Array:
    """Return a flag on the way from one to another, aligned block by block."""
    aligned, first = outside.copy(), 0
    for k in ks:
        block = slice(first, k)
        left, _, right = np.linalg.svd(outside[:, block].T @ inside[:, block])
        aligned[:, block] = outside[:, block] @ (left @ right)
        first = k
    return orthonormal((1.0 - share) * inside + share * aligned)

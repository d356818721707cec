"""Nested projections: one basis whose first columns are good projections themselves.

Every number of dimensions is solved on its own first. That gives the bound of each
prefix and its target: the distortion that a projection of its own would have. Descent
on flags (``descent.flags``) then minimises the largest excess over the targets, on a
working set that grows by searches of all pairs under every prefix. Excess is counted in
odds, ``(loss - target) / (target * (1 - target))``: relative to the loss where that is
small, relative to what is kept (but no less than 5 %) where the loss is nearly
everything.

With an objective, the distortions found so, times ``1 + slack``, are caps. Each number
of dimensions is solved under its cap, which bounds what any projection under the cap
keeps, and descent goes on for what the prefixes keep together. A bisection towards the
basis without the objective ends under every cap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, orthonormal
from isoproj.numerics.threads import single_blas_thread
from isoproj.solvers.api import Journal, Problem, Result, Status, Stopped
from isoproj.solvers.descent.flags import Flag, Stage, descend_flag, mean_flag
from isoproj.solvers.descent.working_set import WorkingSet
from isoproj.solvers.guaranteed import guaranteed
from isoproj.solvers.settings import Ladder, Settings
from isoproj.solvers.solve import everything, solve

__all__ = ["NestedResult", "NestedSettings", "solve_nested"]

# A target below this counts as this: nothing is relative to a loss of nothing.
_LEAST_TARGET = 1e-6
# A separate fit that keeps less counts as keeping this share: it is hardly of use, and
# is not to cost the other prefixes much.
_LEAST_KEPT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedSettings:
    """Tuning figures of the descent on flags.

    Parameters
    ----------
    ladder, capped_ladder : Ladder
        Temperatures, as relative excess, without and with an objective.
    near : float
        Pairs whose relative excess is this close to the worst are worked on.
    reach, margin : float
        Pairs sit a stage out whose excess is this many temperatures, plus the margin,
        below the worst.
    steps, tolerance : int, float
        Most steps of a stage, and the gain, in temperatures, below which it ends.
    single : float
        Temperature above which a stage runs in single precision.
    halvings : int
        Bisections between a basis under all caps and one above.
    cap_margin : float
        Share of a cap by which a basis must be below it.
    attempts : int
        Descents under caps, each with a lower price of the objective.
    accepted : float
        Relative excess over the caps at which a price is low enough.
    cheaper : float
        Factor by which the price falls.
    """

    ladder: Ladder = field(
        default=Ladder(temperatures=(0.1, 0.03, 0.01, 0.003, 0.001, 0.0004), tries=4)
    )
    capped_ladder: Ladder = field(
        default=Ladder(temperatures=(0.03, 0.01, 0.003, 0.001, 0.0003), tries=3)
    )
    near: float = 0.01
    reach: float = 20.0
    margin: float = 0.03
    steps: int = 80
    tolerance: float = 0.005
    single: float = 0.0005
    halvings: int = 8
    cap_margin: float = 1e-5
    attempts: int = 3
    accepted: float = 2e-3
    cheaper: float = 6.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NestedResult:
    """What the solver claims; ``certify`` has the last word.

    Parameters
    ----------
    basis : ndarray of shape (n_dims, K)
        Orthonormal columns; the first ``k`` are the projection to ``k`` dimensions.
    separate : dict of int to Result
        For every number of dimensions the result of a solve of its own: its dual
        weights bound the prefix, and with an objective its cap and multipliers too.
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
        Tuning figures of the separate solves.

    Returns
    -------
    NestedResult
        The basis, and what bounds each prefix.
    """
    shares = np.ones(len(ks)) if weights is None else np.asarray(weights, dtype=float)
    inner = [k for k in ks if k < problem.n_dims]
    nested = _Nested(problem, settings or Settings(), NestedSettings(), len(inner))
    plain = replace(problem, objective=None, start=None)
    separate = {k: everything(replace(problem, k=k)) for k in ks if k not in inner}
    for k in inner:
        posed = replace(plain, k=k)
        separate[k] = nested.timed(partial(solve, settings=settings), posed)
    basis = np.eye(problem.n_dims)
    if inner:
        basis = nested.solved(inner, shares[: len(inner)], separate)
    # Where all dimensions are asked for, the rest of the space follows.
    size = min(ks[-1], problem.n_dims)
    basis = orthonormal(np.hstack([basis, _complement(basis, size)]))
    return NestedResult(
        basis=basis, separate=separate, whole=nested.whole(separate[ks[-1]], basis)
    )


def _complement(basis: Array, size: int) -> Array:
    """Return orthonormal columns that complete a basis to ``size`` of them."""
    missing = size - basis.shape[1]
    if missing <= 0:
        return np.empty((basis.shape[0], 0))
    return np.linalg.svd(basis)[0][:, basis.shape[1] : size]


@dataclass(slots=True, eq=False)
class _Best:
    """The basis of least merit so far, with the distortions of its prefixes."""

    basis: Array
    distortions: Array
    merit: float = math.inf

    def see(self, basis: Array, distortions: Array, merit: float) -> None:
        """Keep a basis if its merit is the least so far."""
        if merit < self.merit:
            self.basis, self.distortions, self.merit = basis, distortions, merit


@dataclass(slots=True, eq=False)
class _Nested:
    """The solves of a nested problem, one after another within one time limit."""

    problem: Problem
    settings: Settings
    own: NestedSettings
    n_left: int
    status: Status = Status.CONVERGED

    def __post_init__(self) -> None:
        # A descent on flags follows; with an objective, both parts come twice.
        self.n_left += 1
        if self.problem.objective is not None:
            self.n_left = 2 * self.n_left + self.own.attempts - 1

    def _journal(self) -> Journal:
        """Return a journal for the next solve, with its share of the time left.

        Bounds at other numbers of dimensions are no history of the whole.
        """
        journal = self.problem.journal
        clock, left = journal.clock, journal.clock.left
        limit = None if left is None else clock.seconds + left / max(1, self.n_left)
        if self.status is Status.INTERRUPTED:
            # Whoever stops a fit does not want to wait for the rest of it.
            limit = 0.0
        self.n_left -= 1
        return replace(journal, clock=clock.until(limit), history=[])

    def timed(self, solver: Callable[[Problem], Result], posed: Problem) -> Result:
        """Solve within a share of the time, and note what stopped the solve."""
        result = solver(replace(posed, journal=self._journal()))
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
        odds = weights / np.maximum(1.0 - found, _LEAST_KEPT)
        flag = Flag(
            ks=tuple(ks),
            targets=np.maximum(found, _LEAST_TARGET),
            weights=odds / odds.max(),
        )
        start = mean_flag([separate[k].basis for k in ks])
        known = self._first_set(ks, separate, None)
        last = separate[ks[-1]]
        best = self._descended(flag, known, start, self.own.ladder, last)
        if self.problem.objective is None:
            return best.basis
        return self._kept(replace(flag, weights=weights), best, separate)

    def _first_set(
        self, ks: list[int], separate: dict[int, Result], further: Array | None
    ) -> WorkingSet:
        """Return the pairs to begin with: those with weight, and random ones."""
        search, descent = self.problem.search, self.settings.descent
        batch = descent.batch_size(ks[-1])
        codes = [search.sample(batch, np.random.default_rng(self.problem.seed))]
        for k in ks:
            weighted = np.sort(separate[k].dual.pairs, axis=1)
            codes.append(search.encode(weighted))
        limit = descent.largest_set * len(ks)
        return WorkingSet(search, distinct(*codes), further, batch, limit)

    def _measure(
        self, flag: Flag, known: WorkingSet, basis: Array, slack: float
    ) -> Array:
        """Return the prefixes' distortions over all pairs, and add the worst pairs."""
        return np.array(
            [
                known.grow(np.ascontiguousarray(basis[:, :k]), slack * target)[1]
                for k, target in zip(flag.ks, flag.targets, strict=True)
            ]
        )

    def _descended(
        self,
        flag: Flag,
        known: WorkingSet,
        start: Array,
        ladder: Ladder,
        last: Result,
    ) -> _Best:
        """Cool down from a start; return the best basis over all pairs."""
        journal = replace(
            self._journal(),
            history=self.problem.journal.history,
            # What is above a cap on its way is neither found nor a bound.
            is_silent=flag.prices is not None,
        )
        journal.begin()
        first = self._measure(flag, known, start, 5.0 * self.own.near)
        best = _Best(start, first, self._merit(flag, start, first))
        try:
            for temperature in ladder.temperatures:
                basis = best.basis if temperature < self.own.near else start
                for _ in range(ladder.tries):
                    basis, seen = self._stage(flag, known, basis, temperature)
                    slack = 2.0 * temperature + self.own.near
                    found = self._measure(flag, known, basis, slack)
                    best.see(basis, found, self._merit(flag, basis, found))
                    journal.record(
                        distortion=float(best.distortions[-1]),
                        lower_bound=last.lower,
                        n_working=known.size,
                        phase="nested search",
                    )
                    if flag.worst(found) - seen < temperature:
                        break
                start = basis
        except Stopped as stop:
            self._note(stop.status)
        except KeyboardInterrupt:
            self._note(Status.INTERRUPTED)
        return best

    def _merit(self, flag: Flag, basis: Array, distortions: Array) -> float:
        """Return what is to be small over all pairs."""
        worst = flag.worst(distortions)
        if flag.prices is None:
            return worst
        return max(0.0, worst) - _kept_value(flag, basis, self.problem.objective)

    def _stage(
        self, flag: Flag, known: WorkingSet, basis: Array, temperature: float
    ) -> tuple[Array, float]:
        """Descend on the pairs near the worst; return the basis and their excess."""
        own, secants = self.own, known.secants
        images = secants.images(basis)[: len(secants)]
        excess = flag.excesses(1.0 - flag.retained(images)).max(axis=1)
        near = excess > excess.max() - own.reach * temperature - own.margin
        some = secants if near.all() else secants.take(np.flatnonzero(near))
        stage = Stage(flag, some, temperature, own.steps, own.tolerance)
        moved = descend_flag(stage, basis, is_single=temperature > own.single)
        images = some.images(moved)[: len(some)]
        return moved, float(flag.excesses(1.0 - flag.retained(images)).max())

    def _kept(self, flag: Flag, least: _Best, separate: dict[int, Result]) -> Array:
        """Return the basis that keeps most under the caps of all prefixes."""
        objective = self.problem.objective
        assert objective is not None
        caps = np.minimum(1.0, (1.0 + self.problem.slack) * least.distortions)
        for k, cap in zip(flag.ks, caps.tolist(), strict=True):
            prefix = np.ascontiguousarray(least.basis[:, :k])
            posed = replace(self.problem, k=k, cap=cap, start=prefix)
            solver = partial(self._under_cap, separate[k])
            separate[k] = self.timed(solver, posed)
        ks = list(flag.ks)
        targets = np.maximum(caps * (1.0 - self.own.cap_margin), _LEAST_TARGET)
        capped = Flag(
            ks=flag.ks,
            targets=targets,
            weights=np.ones(len(ks)),
            prices=self._prices(flag, separate, targets),
        )
        known = self._first_set(ks, separate, _root(objective))
        start = mean_flag([separate[k].basis for k in ks])
        last = separate[ks[-1]]
        for _ in range(self.own.attempts):
            best = self._descended(capped, known, start, self.own.capped_ladder, last)
            if capped.worst(best.distortions) <= self.own.accepted:
                break
            assert capped.prices is not None
            capped = replace(capped, prices=capped.prices / self.own.cheaper)
            start = best.basis
        return self._under(capped, known, least.basis, best)

    def _under_cap(self, best: Result, posed: Problem) -> Result:
        """Solve under a cap, from the best basis without one and from a prefix."""
        assert posed.start is not None
        return guaranteed(posed, best, (posed.start, best.basis), self.settings)

    def _prices(self, flag: Flag, separate: dict[int, Result], targets: Array) -> Array:
        """Return prices low enough to make the penalty of the caps exact."""
        objective = self.problem.objective
        assert objective is not None
        results = [separate[k] for k in flag.ks]
        kept = [float(np.vdot(r.basis, objective @ r.basis)) for r in results]
        prices = flag.weights / np.maximum(kept, 1e-12)
        masses = np.array([float(r.multipliers.weights.sum()) for r in results])
        return np.asarray(prices / (1.5 * float(prices @ (masses * targets)) + 0.5))

    def _under(
        self, flag: Flag, known: WorkingSet, inside: Array, best: _Best
    ) -> Array:
        """Return the basis nearest to the best one that is under all caps."""
        if flag.worst(best.distortions) <= 0.0:
            return best.basis
        low, high, found = 0.0, 1.0, inside
        for _ in range(self.own.halvings):
            middle = 0.5 * (low + high)
            trial = _between(flag, inside, best.basis, middle)
            is_under = flag.worst(self._measure(flag, known, trial, 0.0)) <= 0.0
            low, high = (middle, high) if is_under else (low, middle)
            found = trial if is_under else found
        return found


def _kept_value(flag: Flag, basis: Array, objective: Array | None) -> float:
    """Return what the prefixes keep of the objective, each at its price."""
    assert flag.prices is not None
    assert objective is not None
    of_columns = np.einsum("ij,ij->j", basis, objective @ basis)
    kept = np.cumsum(of_columns)[np.array(flag.ks) - 1]
    return float(flag.prices @ kept)


def _between(flag: Flag, inside: Array, outside: Array, share: float) -> Array:
    """Return a flag on the way from one to another, aligned block by block."""
    aligned, first = outside.copy(), 0
    for k in flag.ks:
        block = slice(first, k)
        left, _, right = np.linalg.svd(outside[:, block].T @ inside[:, block])
        aligned[:, block] = outside[:, block] @ (left @ right)
        first = k
    return orthonormal((1.0 - share) * inside + share * aligned)


def _root(objective: Array) -> Array:
    """Return rows ``F`` with ``F^T F`` the objective."""
    values, vectors = np.linalg.eigh(objective)
    keep = values > 1e-12 * values[-1]
    return np.asarray((vectors[:, keep] * np.sqrt(values[keep])).T)

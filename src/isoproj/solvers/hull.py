"""The search for a subspace whose hull proves a strong lower bound.

The bound of a subspace is the distance of the nearest facet (``proof.hull``). To first
order, the distance of every facet is linear in a rotation of the subspace. So each step
solves a linear program over the nearest facets within a trust region. Starts are
principal axes, the basis that was found, and subspaces through random pairs.

Work is counted, not timed: the result does not depend on the speed of a machine.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import linprog

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, Indices, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.directions import Secants, normalised
from isoproj.pairs.oracle import PairSearch
from isoproj.proof.hull import MOST_DIMENSIONS, Facets, most_pairs
from isoproj.solvers.api import (
    Clock,
    Problem,
    Result,
    Status,
    Stopped,
    Subspace,
    Weights,
)
from isoproj.solvers.growing_hull import GrowingHull, Scan, Tree, nearest
from isoproj.solvers.settings import HullSettings

__all__ = ["PHASE", "Found", "hull_search", "improved"]


# What a step of the search is called.
PHASE = "hull bound"
# Multiplications that take as long as a linear program.
_PROGRAM = 5e6
# A tree finds extreme directions up to this many dimensions, for so many times more
# normals at once.
_TREE_DIMENSIONS = 4
_TREE_NORMALS = 8
# Random directions that a glance at a subspace takes, and how many of them, the worst
# ones, it looks around, as far as this tangent.
_RAYS = 200
_WORST_RAYS = 8
_NEAR = 0.4
# Steps of one local search, and the gain below which it ends.
_STEPS = 40
_GAIN = 1e-4
# Multiplications that take as long as an entry of a projection.
_PROJECTION = 4.0
# A pair outside the hull by less than this does not matter.
_OUTSIDE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A subspace with its hull.

    Parameters
    ----------
    axes : ndarray of shape (n_dims, k + 1)
        Orthonormal columns.
    chosen : ndarray of shape (m,)
        Rows of the pool whose directions span the hull.
    facets : Facets or None
        Their facets; None if the hull is flat.
    """

    axes: Array
    chosen: Indices
    facets: Facets | None

    @property
    def inradius(self) -> float:
        """Distance of the nearest facet from the origin."""
        return 0.0 if self.facets is None else float(self.facets.offsets.min())

    @property
    def bound(self) -> float:
        """Squared inradius."""
        return self.inradius**2

    @property
    def normal(self) -> Array:
        """Unit vector, shape (n_dims,), at right angles to the nearest facet."""
        assert self.facets is not None
        return np.asarray(self.axes @ self.facets.normals[self.facets.offsets.argmin()])


def improved(problem: Problem, result: Result, settings: HullSettings) -> Result:
    """Return the result with the hull proof, if one beats the dual weights.

    If the subspace is the whole space, the nearest facet's normal is the best direction
    to drop, and the basis is optimal.
    """
    clock = problem.journal.clock
    gap = result.distortion - result.lower
    is_closed = gap <= max(1e-9, problem.tol * result.lower)
    is_stopped = result.status in (Status.TIME_LIMIT, Status.INTERRUPTED)
    if is_closed or is_stopped or clock.is_over:
        return result
    try:
        found = hull_search(
            problem.search,
            result.basis,
            result.dual,
            result.lower,
            Clock(clock.left),
            problem.seed,
            settings,
            enough=result.distortion / (1.0 + problem.tol),
        )
    except KeyboardInterrupt:
        return replace(result, status=Status.INTERRUPTED)
    if found is None:
        return result
    hull, best = found
    if hull.axes.shape[0] == hull.axes.shape[1] and problem.objective is None:
        basis = np.linalg.svd(best.normal[:, None])[0][:, 1:]
        loss = 1.0 - float(problem.search.weakest(basis, 0.0).retained[0])
        if loss < result.distortion:
            result = replace(result, basis=basis, distortion=loss)
    with contextlib.suppress(Stopped):
        problem.journal.record(
            distortion=result.distortion,
            lower_bound=hull.bound,
            relaxed=result.relaxed,
            n_working=hull.pairs.shape[0],
            phase=PHASE,
        )
    is_met = result.distortion - hull.bound <= 1e-6 * hull.bound + 1e-9
    return replace(
        result,
        hull=hull,
        status=Status.OPTIMAL if is_met else result.status,
        history=tuple(problem.journal.history),
    )


@single_blas_thread
def hull_search(
    search: PairSearch,
    basis: Array,
    dual: Weights,
    lower: float,
    clock: Clock,
    seed: int,
    settings: HullSettings,
    *,
    enough: float = math.inf,
) -> tuple[Subspace, Found] | None:
    """Return the best subspace found, or None if it does not beat ``lower``.

    ``basis`` and ``dual`` are what the other search has found. The search ends at a
    bound of ``enough``; in the whole space a small hull goes on to the optimum.
    """
    k, n_dims = basis.shape[1], search.n_dims
    if not k < n_dims or k > MOST_DIMENSIONS or search.is_slow:
        return None
    rng = np.random.default_rng(seed)
    hunt = _Hunt(_Pool(search, settings, rng), settings, clock, rng, enough)
    best = hunt.run(basis, dual, lower)
    if best is None or best.facets is None or best.bound <= lower:
        return None
    chosen = _corners(best)
    if chosen.size > most_pairs(k):
        return None
    pairs = search.decode(hunt.pool.codes[chosen])
    return Subspace(best.axes, pairs, best.bound), best


class _Pool:
    """All pairs, or those that the oracle has named so far."""

    def __init__(
        self, search: PairSearch, settings: HullSettings, rng: np.random.Generator
    ) -> None:
        self.search, self.n_seen = search, settings.n_seen
        most = settings.most_entries // search.n_dims
        self.is_whole = search.n_pairs <= most
        self.codes = search.sample(most if self.is_whole else most // 8, rng)
        # Made when it is first asked for: a glance does without.
        self._secants: Secants | None = None

    @property
    def directions(self) -> Array:
        """The directions of all pairs as rows."""
        return self.search.directions(self.codes)

    def rows(self, numbers: Indices) -> Array:
        """Return the directions of some pairs as rows."""
        return self.search.directions(self.codes[numbers])

    def images(self, axes: Array, numbers: Indices | None = None) -> Array:
        """Return the projections of some pairs, or of all."""
        if numbers is not None and self.is_few(numbers.size):
            return self.rows(numbers) @ axes
        if self._secants is None:
            pairs = self.search.decode(self.codes)
            self._secants = Secants(self.search.coordinates, pairs)
        images = self._secants.images(axes)
        return images if numbers is None else images[numbers]

    def is_few(self, count: int) -> bool:
        """Return whether forming so many directions is cheaper than projecting all."""
        return count * self.search.n_dims < self.codes.size

    def see(self, vectors: Array) -> bool:
        """Add the pairs that keep most under a map; return whether any is new."""
        if self.is_whole:
            return False
        found = self.search.extremes(vectors, n_low=0, n_high=self.n_seen).high_pairs
        codes = np.setdiff1d(self.search.encode(np.sort(found, axis=1)), self.codes)
        self.codes = np.concatenate([self.codes, codes])
        self._secants = None
        return bool(codes.size)


@dataclass(slots=True, eq=False)
class _Hunt:
    """A search for the best subspace within a limit of work."""

    pool: _Pool
    settings: HullSettings
    clock: Clock
    rng: np.random.Generator
    enough: float = math.inf
    done: float = 0.0
    seen: tuple[Array, Array] | None = None  # a subspace, and lengths in it
    farthest: Scan | Tree = field(init=False)
    n_low: int = field(init=False)

    def __post_init__(self) -> None:
        self.farthest, self.n_low = Scan(), self.settings.n_low

    @property
    def is_over(self) -> bool:
        """Whether the work or the time is used up."""
        return self.done >= self.settings.work or self.clock.is_over

    def suffices(self, found: Found, is_final: bool) -> bool:
        """Return whether the bound is good enough; small hulls go on to the end."""
        is_small = self.pool.search.n_pairs <= self.settings.small_hull
        return found.bound >= self.enough and not (is_final and is_small)

    def run(self, basis: Array, dual: Weights, lower: float) -> Found | None:
        """Return the best subspace after local searches from the best starts."""
        if basis.shape[1] + 1 == basis.shape[0]:
            # The whole space gives the optimum itself.
            if self.pool.is_whole and basis.shape[0] <= _TREE_DIMENSIONS:
                self.farthest = Tree(self.pool.directions)
                self.n_low *= _TREE_NORMALS
            return self.completed(np.eye(basis.shape[0]))
        if self.is_hopeless(basis, dual, lower):
            return None
        share = self.settings.hopeless_share(basis.shape[1] + 1)
        starts = self.ranked_starts(basis, dual, math.sqrt(share * max(lower, 0.0)))
        if not starts or starts[0].bound < share * lower:
            return None
        best = starts[0]
        n_local, n_vain = min(self.settings.n_local, len(starts)), 0
        for number in range(n_local + self.settings.n_shaken):
            if best.bound >= self.enough or self.is_over:
                break
            if number < n_local:
                start = starts[number]
                begun = self.hull(start.axes, start.chosen, start.inradius)
            elif best.bound < 0.9 * lower:
                break
            else:
                begun = self.shaken(best)
            # No loss is more than 1.
            gap = min(self.enough, 1.0) - best.bound
            found = self.ascend(begun)
            is_paying = found.bound - best.bound > self.settings.paying * gap
            n_vain = 0 if is_paying else n_vain + 1
            best = max(best, found, key=lambda found: found.bound)
            if best.bound > lower and n_vain > self.settings.patience:
                break
        return best if self.pool.is_whole else self.completed(best.axes, best.chosen)

    def shaken(self, best: Found) -> Found:
        """Return the hull in a subspace near the best one."""
        noise = self.rng.standard_normal(best.axes.shape)
        noise *= self.settings.shake / math.sqrt(best.axes.shape[0])
        return self.hull(orthonormal(best.axes + noise), best.chosen)

    def ranked_starts(self, basis: Array, dual: Weights, floor: float) -> list[Found]:
        """Return the starts, best hull of some pairs first."""
        count = self.pool.codes.size
        is_costly = basis.shape[1] + 1 >= self.settings.costly
        some = self.some_rows(np.random.default_rng(0))
        found: list[Found] = []
        for axes in self.starts(basis, dual):
            if self.is_over:
                break
            self.pool.see(axes)
            rows = np.append(some, np.arange(count, self.pool.codes.size))
            found.append(self.hull(axes, floor=floor, rows=None if is_costly else rows))
            if found[-1].bound >= self.enough:
                break
            floor = max(floor, 0.9 * found[-1].inradius)
        return sorted(found, key=lambda each: -each.bound)

    def some_rows(self, rng: np.random.Generator) -> Indices:
        """Return a sample of the pool's rows."""
        return rng.permutation(self.pool.codes.size)[: self.settings.n_glanced]

    def is_hopeless(self, basis: Array, dual: Weights, lower: float) -> bool:
        """Return whether the first starts are far from beating a known bound.

        The inradius is at most what the farthest pair reaches along any direction, so
        some directions and pairs tell without a hull.
        """
        # A generator of its own: whether a glance was taken must not change the search.
        rng, settings = np.random.default_rng(0), self.settings
        some = self.some_rows(rng)
        wanted = math.sqrt(settings.glance_share(basis.shape[1] + 1) * lower)
        least = math.sqrt(settings.glance * lower)
        starts = replace(self, rng=rng).starts(basis, dual)
        glimpsed = self.pool.rows(some)
        for axes in itertools.islice(starts, settings.n_tried):
            rays, heights = self.lowest_rays(glimpsed @ axes, rng)
            if least <= heights.min() < wanted:
                # Some pairs reach less far than all.
                heights = self.farthest(self.on_axes(axes), rays)[1]
            if heights.min() >= wanted:
                return False
        return True

    def on_axes(self, axes: Array, rows: Indices | None = None) -> Array:
        """Return the projections of some pairs, or of all of the pool."""
        projected = self.pool.images(axes, rows)
        self.done += _PROJECTION * projected.size
        return projected

    def lowest_rays(
        self, projected: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return directions along which pairs reach least far, and how far.

        Half are random, the others near the worst of these.
        """
        d = projected.shape[1]
        rays = normalised(rng.standard_normal((_RAYS, d)))
        heights = self.farthest(projected, rays)[1]
        worst = rays[np.argsort(heights)[:_WORST_RAYS]]
        noise = rng.standard_normal((_RAYS // _WORST_RAYS, *worst.shape))
        near = worst + _NEAR * noise / math.sqrt(d)
        rays = np.vstack([rays, normalised(near.reshape(-1, d))])
        heights = np.append(heights, self.farthest(projected, rays[_RAYS:])[1])
        self.done += projected.size * len(rays)
        lowest = np.argsort(heights)[:_WORST_RAYS]
        return rays[lowest], heights[lowest]

    def starts(self, basis: Array, dual: Weights) -> Iterator[Array]:
        """Yield subspaces to start from."""
        n_dims, d = basis.shape[0], basis.shape[1] + 1
        yield np.eye(n_dims, d)
        moment = self.pool.search.moment(dual.pairs, dual.weights)
        yield top_eigenpairs(moment, d)[1]
        left = np.eye(n_dims) - basis @ basis.T
        rest = top_eigenpairs(left @ moment @ left, 1)[1]
        yield orthonormal(np.column_stack([basis, rest]))
        # Subspaces at random, through no pair, have not been the best of all.
        for _ in range(self.settings.n_random):
            rows = self.rng.integers(self.pool.codes.size, size=d)
            noise = 1e-3 * self.rng.standard_normal((n_dims, d))
            yield orthonormal(self.pool.rows(rows).T + noise)

    def hull(
        self,
        axes: Array,
        chosen: Indices | None = None,
        floor: float = 0.0,
        *,
        rows: Indices | None = None,
        is_final: bool = False,
    ) -> Found:
        """Return the hull of the pool in a subspace, as far as near facets go.

        Pairs join until none is outside one of the nearest facets, or, if it is final,
        outside the nearest one. The search ends as soon as the inradius is known to be
        below ``floor``. With ``rows``, only these pairs are looked at.
        """
        d = axes.shape[1]
        # A pair inside a ball is no corner of a hull that holds the ball.
        far, outer = self.projected(axes, floor, rows)
        squares = np.einsum("md,md->m", outer, outer)
        if chosen is None:
            if not far.size:
                return Found(axes, far, None)
            rays = np.column_stack([np.eye(d), self.rng.standard_normal((d, 8 * d))])
            chosen = far[distinct(Scan()(outer, rays.T)[0])]
        grown = GrowingHull(chosen, self.pool.rows(chosen) @ axes)
        inside = floor * floor
        while True:
            is_far = squares >= inside * (1.0 - 1e-9)
            if not is_far.all():
                far, outer, squares = far[is_far], outer[is_far], squares[is_far]
            facets = grown.facets()
            found = Found(axes, grown.rows, facets)
            if facets is None or not far.size or self.suffices(found, is_final):
                break
            low = nearest(facets, self.n_low * (8 if is_final else 1))
            # The ball up to the nearest facet holds nothing outside any facet.
            inside = max(inside, float(facets.offsets[low[0]]) ** 2)
            self.done += grown.work()
            # Near facets decide; the others only show which pairs come next.
            lead = low.size // 4 + 1
            top, heights = self.reached(outer, facets.normals[low[:lead]])
            is_outside = heights > facets.offsets[low[:lead]] + _OUTSIDE
            if heights.min() < floor or not is_outside.any() or self.is_over:
                break
            others = self.reached(outer, facets.normals[low[lead:]])
            top, heights = np.append(top, others[0]), np.append(heights, others[1])
            is_new = heights > facets.offsets[low] + _OUTSIDE
            if is_final:
                # No facet farther than this is the nearest in the end.
                is_new &= facets.offsets[low] < heights.min()
                if not is_new[:lead].any():
                    break
            fresh = np.setdiff1d(far[top[is_new]], grown.rows)
            if not fresh.size or grown.rows.size + fresh.size > most_pairs(d - 1):
                break
            grown.join(fresh, self.pool.rows(fresh) @ axes)
        return found

    def reached(self, points: Array, normals: Array) -> tuple[Indices, Array]:
        """Return for each normal the farthest point, and how far it reaches."""
        if not len(normals):
            return np.empty(0, dtype=np.intp), np.empty(0)
        self.done += self.farthest.work(points, len(normals))
        return self.farthest(points, normals)

    def projected(
        self, axes: Array, floor: float, rows: Indices | None
    ) -> tuple[Indices, Array]:
        """Return pairs whose projections may be as long as ``floor``, and these.

        A projection is at most as much longer than in another subspace as the sine of
        the largest angle between both. With ``rows``, only these pairs are looked at.
        """
        if rows is None and self.seen is not None:
            known, lengths = self.seen
            sine = float(np.linalg.norm(axes - known @ (known.T @ axes), 2))
            may = np.flatnonzero(lengths >= floor - sine)
            if lengths.size == self.pool.codes.size and self.pool.is_few(may.size):
                rows = may
        if rows is not None:
            return rows, self.on_axes(axes, rows)
        projected = self.on_axes(axes)
        lengths = np.sqrt(np.einsum("md,md->m", projected, projected))
        self.seen = axes, lengths
        far = np.flatnonzero(lengths >= floor * (1.0 - 1e-9))
        return far, projected if far.size == lengths.size else projected[far]

    def completed(self, axes: Array, chosen: Indices | None = None) -> Found:
        """Return the hull of all pairs in a subspace, as far as the nearest facet."""
        found = self.hull(axes, chosen, is_final=True)
        while found.facets is not None and not self.is_over:
            near = nearest(found.facets, 8)
            vectors = (axes @ found.facets.normals[near].T).T
            news = [self.pool.see(vector[:, None]) for vector in vectors]
            if not any(news):
                break
            larger = self.hull(axes, found.chosen, is_final=True)
            if larger.inradius <= found.inradius + _OUTSIDE:
                break
            found = larger
        return found

    def ascend(self, found: Found) -> Found:
        """Return a local optimum over subspaces, by linear programs."""
        radius = self.settings.radius
        for _ in range(_STEPS):
            before = found.inradius
            step = self.step(found, radius)
            if step is None:
                break
            found, radius = step
            if found.inradius < before + _GAIN:
                break
        return found

    def step(self, found: Found, radius: float) -> tuple[Found, float] | None:
        """Return a better subspace with the next trust region, or None."""
        if found.facets is None:
            return None
        n_dims, d = found.axes.shape
        offsets, gradients, outside = self.linearised(found, found.facets, radius)
        chosen = _corners(found)
        while radius > 1e-4 and not self.is_over:
            self.done += _PROGRAM
            rotation, predicted = _best_rotation(offsets, gradients, radius)
            gain = predicted - found.inradius
            if gain < _GAIN / 10.0:
                return None
            moved = found.axes + outside @ rotation.reshape(n_dims - d, d)
            trial = self.hull(orthonormal(moved), chosen, found.inradius)
            gained = trial.inradius - found.inradius
            if gained > 0.1 * gain:
                return trial, min(0.3, 2.0 * radius) if gained > 0.6 * gain else radius
            radius /= 3.0
        return None

    def linearised(
        self, found: Found, facets: Facets, radius: float
    ) -> tuple[Array, Array, Array]:
        """Return distances of near facets, their gradients, and the complement.

        A gradient is with respect to the rotation, of shape (n_dims - d, d), that
        turns the axes towards the complement.
        """
        n_dims, d = found.axes.shape
        near = nearest(facets, 60 + 3 * (n_dims - d) * d // 2)
        near = near[facets.offsets[near] <= found.inradius + 3.0 * radius]
        m = found.chosen.size
        numbers = facets.corners[near]
        signs = np.where(numbers < m, 1.0, -1.0)
        corners = self.pool.rows(found.chosen)[numbers % m] * signs[:, :, None]
        normals, offsets = facets.normals[near], facets.offsets[near]
        feet = offsets[:, None] * normals
        inside = np.swapaxes(corners @ found.axes, 1, 2)
        shares = np.linalg.pinv(inside) @ feet[:, :, None]
        outside = np.linalg.svd(found.axes)[0][:, d:]
        pulls = np.einsum("fc,fcd->fd", shares[:, :, 0], corners) @ outside
        gradients = pulls[:, :, None] * normals[:, None, :]
        return offsets, gradients.reshape(near.size, -1), outside


def _corners(found: Found) -> Indices:
    """Return the rows of the pool that are corners of the hull."""
    assert found.facets is not None
    return found.chosen[distinct(found.facets.corners % found.chosen.size)]


def _best_rotation(
    offsets: Array, gradients: Array, radius: float
) -> tuple[Array, float]:
    """Return the rotation whose linearised nearest facet is farthest, and how far."""
    n = gradients.shape[1]
    solution = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=np.column_stack([-gradients, np.ones(offsets.size)]),
        b_ub=offsets,
        bounds=[(-radius, radius)] * n + [(None, None)],
        method="highs",
        # There is nothing to leave out, and looking for it takes a quarter of the time.
        options={"presolve": False},
    )
    if solution.x is None:
        return np.zeros(n), float(offsets.min())
    return solution.x[:-1], float(solution.x[-1])

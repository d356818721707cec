"""The search for a subspace whose hull proves a strong lower bound.

The bound of a subspace is the distance of the nearest facet (``proof.hull``). To first
order, the distance of every facet is linear in a rotation of the subspace. So each step
solves a linear program over the nearest facets within a trust region. Starts are
principal axes, the basis that was found, and subspaces through random pairs.

Work is counted, not timed: the result does not depend on the speed of a machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import linprog

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, Indices, orthonormal, top_eigenpairs
from isoproj.pairs.directions import Secants, normalised
from isoproj.pairs.oracle import PairSearch
from isoproj.proof.hull import Facets, most_pairs
from isoproj.solvers.api import Clock, Subspace, Weights
from isoproj.solvers.growing_hull import GrowingHull, Scan, Tree, nearest
from isoproj.solvers.settings import Settings

# Multiplications that take as long as a linear program, and as an entry of a
# projection.
_PROGRAM, _PROJECTION = 5e6, 4.0
# Random directions that a glance at a subspace takes, and how many of them, the worst
# ones, it looks around.
_RAYS, _WORST_RAYS = 200, 8
# Gain of a step below which a local search ends.
_GAIN = 1e-4
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


@dataclass(frozen=True, slots=True, eq=False)
class HullFound:
    """A proof by a hull and, where the subspace is the whole space, the best basis."""

    subspace: Subspace
    basis: Array | None


def hull_search(
    search: PairSearch,
    basis: Array,
    dual: Weights,
    lower: float,
    clock: Clock,
    seed: int,
    settings: Settings,
    *,
    enough: float = math.inf,
) -> tuple[HullFound | None, float]:
    """Return the best subspace found, None if it does not beat ``lower``, and the work.

    ``basis`` and ``dual`` are what the other sides have found. The search ends at a
    bound of ``enough``. If the subspace is the whole space, the nearest facet's normal
    is the best direction to drop.
    """
    rng = np.random.default_rng(seed)
    hunt = _Hunt(_Pool(search, rng), settings, clock, rng, enough)
    best = hunt.run(basis, dual, lower)
    if best is None or best.facets is None or best.bound <= lower:
        return None, hunt.done
    chosen = _corners(best)
    if chosen.size > most_pairs(basis.shape[1]):
        return None, hunt.done
    pairs = search.decode(hunt.pool.codes[chosen])
    better = None
    if best.axes.shape[0] == best.axes.shape[1]:
        better = np.linalg.svd(best.normal[:, None])[0][:, 1:]
    subspace = Subspace(best.axes, pairs, best.bound)
    return HullFound(subspace, better), hunt.done


class _Pool:
    """All pairs, or those that the oracle has named so far."""

    def __init__(self, search: PairSearch, rng: np.random.Generator) -> None:
        self.search = search
        most = 5_000_000 // search.n_dims
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
        found = self.search.extremes(vectors, n_low=0, n_high=400).high_pairs
        codes = np.setdiff1d(self.search.encode(np.sort(found, axis=1)), self.codes)
        self.codes = np.concatenate([self.codes, codes])
        self._secants = None
        return bool(codes.size)


@dataclass(slots=True, eq=False)
class _Hunt:
    """A search for the best subspace within a limit of work."""

    pool: _Pool
    settings: Settings
    clock: Clock
    rng: np.random.Generator
    enough: float = math.inf
    done: float = 0.0
    seen: tuple[Array, Array] | None = None  # a subspace, and lengths in it
    farthest: Scan | Tree = field(init=False)
    n_low: int = field(init=False)

    def __post_init__(self) -> None:
        self.farthest, self.n_low = Scan(), 64

    @property
    def is_over(self) -> bool:
        """Whether the work or the time is used up."""
        return self.done >= self.settings.patience or self.clock.is_over

    def suffices(self, found: Found, is_final: bool) -> bool:
        """Return whether the bound is good enough; small hulls go on to the end."""
        is_small = self.pool.search.n_pairs <= 100_000
        return found.bound >= self.enough and not (is_final and is_small)

    def run(self, basis: Array, dual: Weights, lower: float) -> Found | None:
        """Return the best subspace after local searches from the best starts."""
        if basis.shape[1] + 1 == basis.shape[0]:
            # The whole space gives the optimum itself.
            if self.pool.is_whole and basis.shape[0] <= 4:
                self.farthest = Tree(self.pool.directions)
                self.n_low *= 8
            return self.completed(np.eye(basis.shape[0]))
        if self.is_hopeless(basis, dual, lower):
            return None
        starts = self.ranked_starts(basis, dual)
        best = starts[0]
        hops = vain = 0
        while best.bound < self.enough and vain < 2 and not self.is_over:
            # The best starts first, then the neighbourhood of the best subspace.
            if hops < min(3, len(starts)):
                start = starts[hops]
                begun = self.hull(start.axes, start.chosen, start.inradius)
            else:
                noise = self.rng.standard_normal(best.axes.shape)
                noise *= 0.3 / math.sqrt(best.axes.shape[0])
                begun = self.hull(orthonormal(best.axes + noise), best.chosen)
            hops += 1
            found = self.ascend(begun)
            least = (1.0 + self.settings.restart_gain) * best.bound
            is_vain = found.bound < least
            vain = vain + 1 if is_vain and hops > 3 else 0
            best = max(best, found, key=lambda found: found.bound)
        return best if self.pool.is_whole else self.completed(best.axes, best.chosen)

    def ranked_starts(self, basis: Array, dual: Weights) -> list[Found]:
        """Return the starts, best hull of some pairs first."""
        floor = 0.0
        count = self.pool.codes.size
        some = self.some_rows(np.random.default_rng(0), 4_000)
        found: list[Found] = []
        for axes in self.starts(basis, dual):
            self.pool.see(axes)
            rows = np.append(some, np.arange(count, self.pool.codes.size))
            found.append(self.hull(axes, floor=floor, rows=rows))
            is_half = self.done > 0.5 * self.settings.patience
            if found[-1].bound >= self.enough or is_half or self.is_over:
                break
            floor = max(floor, 0.7 * found[-1].inradius)
        return sorted(found, key=lambda each: -each.bound)

    def some_rows(self, rng: np.random.Generator, count: int) -> Indices:
        """Return a sample of the pool's rows."""
        return rng.permutation(self.pool.codes.size)[:count]

    def is_hopeless(self, basis: Array, dual: Weights, lower: float) -> bool:
        """Return whether the first starts are far from beating a known bound.

        The inradius is at most what the farthest pair reaches along any direction, so
        some directions and pairs tell without a hull.
        """
        # A generator of its own: whether a glance was taken must not change the search.
        rng = np.random.default_rng(0)
        wanted = math.sqrt(0.75 * lower)
        starts = replace(self, rng=rng).starts(basis, dual)
        glimpsed = self.pool.rows(self.some_rows(rng, 20_000))
        for axes in itertools.islice(starts, self.settings.hull_starts):
            if self.lowest_height(glimpsed @ axes, rng) >= wanted:
                return False
        return True

    def on_axes(self, axes: Array, rows: Indices | None = None) -> Array:
        """Return the projections of some pairs, or of all of the pool."""
        projected = self.pool.images(axes, rows)
        self.done += _PROJECTION * projected.size
        return projected

    def lowest_height(self, projected: Array, rng: np.random.Generator) -> float:
        """Return how far pairs reach along the direction where they reach least far.

        Half of the directions are random, the others near the worst of these.
        """
        d = projected.shape[1]
        rays = normalised(rng.standard_normal((_RAYS, d)))
        heights = self.farthest(projected, rays)[1]
        worst = rays[np.argsort(heights)[:_WORST_RAYS]]
        noise = rng.standard_normal((_RAYS // _WORST_RAYS, *worst.shape))
        near = normalised((worst + 0.4 * noise / math.sqrt(d)).reshape(-1, d))
        self.done += projected.size * (len(rays) + len(near))
        return float(min(heights.min(), self.farthest(projected, near)[1].min()))

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
        for _ in range(self.settings.hull_starts):
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
        for _ in range(40):
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

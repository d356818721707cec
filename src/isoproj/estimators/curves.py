"""How much is lost against how many dimensions, and how much is kept against a cap."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

import isoproj
from isoproj.estimators.base import check_positive, checked_gap, telling
from isoproj.estimators.geometry import Geometry
from isoproj.numerics.arrays import Rows, check_points, is_whole, require
from isoproj.numerics.rounding import at_least, at_most
from isoproj.numerics.shown import Table, Tabular
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.rule import PairRule
from isoproj.proof.certificate import Certificate
from isoproj.proof.objective import Objective
from isoproj.solvers.api import Clock, Journal, Problem, Result
from isoproj.solvers.capped import guaranteed
from isoproj.solvers.curve import follow
from isoproj.solvers.solve import solve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class DistortionCurve(Tabular):
    """Distortion and lower bound for several numbers of dimensions.

    Parameters
    ----------
    ks : ndarray of shape (m,)
        Numbers of dimensions, ascending.
    distortion : ndarray of shape (m,)
        What the worst pair loses, exact; it never rises by more than rounding.
    lower_bound : ndarray of shape (m,)
        No projection to as many dimensions loses less.
    certificates : tuple of Certificate
        One for each number of dimensions, with its projection; empty in a curve
        that was read from a table.
    """

    ks: Indices
    distortion: Array
    lower_bound: Array
    certificates: tuple[Certificate, ...] = ()

    def __iter__(self) -> Iterator[tuple[int, float, float]]:
        columns = self.ks, self.distortion, self.lower_bound
        return zip(*(column.tolist() for column in columns), strict=True)

    def components(self, k: int) -> NDArray[Any]:
        """Return the projection to ``k`` dimensions.

        Parameters
        ----------
        k : int
            One of ``ks``.

        Returns
        -------
        ndarray of shape (k, n_features)
            Orthonormal rows.
        """
        for certificate in self.certificates:
            if certificate.n_components == k:
                return certificate.components
        msg = f"k must be one of the curve's {self.ks.tolist()}; got {k!r}."
        raise ValueError(msg)

    def needed(self, max_distortion: float) -> tuple[int | None, int]:
        """Return which ``k`` suffices for a target, and which is proved too small.

        Parameters
        ----------
        max_distortion : float
            Largest allowed loss of any pair.

        Returns
        -------
        sufficient : int or None
            The smallest ``k`` of the curve under the target; None if there is none.
        impossible : int
            The largest ``k`` of the curve that is proved too small; 0 if there is none.
        """
        enough = self.ks[self.distortion <= max_distortion]
        short = self.ks[self.lower_bound > max_distortion]
        sufficient = int(enough[0]) if enough.size else None
        return sufficient, int(short[-1]) if short.size else 0

    @property
    def knees(self) -> tuple[int, ...]:
        """Numbers of dimensions after which further ones lower the loss much less.

        The one farthest below the chord of the curve, and the farthest on either side
        of it, where they stand out.
        """
        main = _knee(self.ks, self.distortion)
        if main is None:
            return ()
        found = {main}
        for start, stop in ((0, main + 1), (main, self.ks.size)):
            inner = _knee(self.ks[start:stop], self.distortion[start:stop])
            found |= set() if inner is None else {start + inner}
        return tuple(self.ks[sorted(found)].tolist())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the curve above its lower bound.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes
            The drawing of ``isoproj.plot.distortion_curve``.
        """
        return isoproj.plot.distortion_curve(self, ax=ax)

    @property
    def sampled_words(self) -> str:
        """What samples say of all pairs, with confidence; empty without a sample."""
        return _sampled_words(self.certificates)

    def _table(self) -> Table:
        return ["k", _worst_of(self.certificates), "lower bound"], [
            [f"{k}", f"{upper:.4f}", at_least(lower)] for k, upper, lower in self
        ]


def _knee(ks: Indices, values: Array) -> int | None:
    """Return where a falling curve is farthest below its chord, if far enough."""
    if ks.size < 3:
        return None
    x = (ks - ks[0]) / (ks[-1] - ks[0])
    drop = values[0] - values[-1]
    if drop <= 1e-6:
        return None
    below = 1.0 - x - (values - values[-1]) / drop
    at = int(below.argmax())
    return at if below[at] > 0.05 else None


def distortion_curve(
    X: ArrayLike | Rows,
    ks: Iterable[int] | None = None,
    *,
    pairs: str | ArrayLike | PairRule = "all",
    labels: ArrayLike | None = None,
    n_neighbors: int = 10,
    min_distance: float = 0.0,
    include_norms: bool = False,
    tol: float = 1e-2,
    time_limit: float | None = None,
    random_state: int | None = None,
    verbose: int = 0,
) -> DistortionCurve:
    """Return distortion and lower bound for many numbers of dimensions.

    Every number of dimensions is solved as a fit solves it, from the one before, so
    that the curve and a fit say the same.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The points.
    ks : iterable of int or None
        Numbers of dimensions; None means 1 to 40, or to what the points span.
    pairs, labels, n_neighbors, min_distance, include_norms
        Which pairs count, as for ``audit``.
    tol : float
        Relative gap at which a number of dimensions is done.
    time_limit : float or None
        Seconds after which the dimensions done so far are returned.
    random_state : int or None
        Seed of the samples.
    verbose : int
        1 shows the present step in a line that is renewed; in logs, a line for each.

    Returns
    -------
    DistortionCurve
        Both sides certified, on the matrices that it holds.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from isoproj import distortion_curve
    >>> curve = distortion_curve(load_wine().data, [1, 2, 4, 8], random_state=0)
    >>> bool((curve.lower_bound <= curve.distortion).all())
    True
    """
    rule = PairRule.of(
        pairs,
        labels=labels,
        n_neighbors=n_neighbors,
        min_distance=min_distance,
        include_norms=include_norms,
    )
    check_positive("time_limit", time_limit, integral=False)
    clock = Clock(time_limit)
    geometry = Geometry.prepare(check_points(X), rule)
    n_dims = geometry.points.n_dims
    wanted = _checked_ks(ks, n_dims, int(geometry.rows.shape[1]))
    geometry, clock = geometry.sharing(clock, wanted[-1], len(wanted))
    problem = Problem(
        search=geometry.search,
        k=None,
        tol=checked_gap(tol),
        journal=Journal(clock),
        seed=0 if random_state is None else int(random_state),
    )
    with telling("distortion_curve", verbose):
        certificates = _certified_curve(geometry, problem, wanted)
    _warn_of_sample(certificates, geometry)
    return DistortionCurve(
        ks=np.array([each.n_components for each in certificates], dtype=np.intp),
        distortion=np.array([each.distortion for each in certificates]),
        lower_bound=np.array([each.lower_bound for each in certificates]),
        certificates=tuple(certificates),
    )


def _certified_curve(
    geometry: Geometry, problem: Problem, ks: list[int]
) -> list[Certificate]:
    """Return a certificate for every number of dimensions."""
    n_dims = geometry.points.n_dims
    inner = [k for k in ks if k < n_dims]
    found = follow(problem, inner) if inner else []
    solved = list(zip(inner, found, strict=False))
    if len(found) == len(inner):
        solved += [(k, solve(replace(problem, k=k))) for k in ks if k >= n_dims]
    return geometry.certified(
        [pairs for _, result in solved for pairs in result.known],
        lambda over: [over.certify_result(result, k) for k, result in solved],
        k=ks[-1],
        n_scans=len(solved),
    )


def _warn_of_sample(certificates: Sequence[Certificate], geometry: Geometry) -> None:
    """Warn if time was short of a walk over all pairs that the user asked for."""
    if certificates and certificates[0].pair_kind is not geometry.pairs.kind:
        msg = (
            "Time was short of a walk over all pairs: losses are over a sample alone "
            f"({_sampled_words(certificates)}). Raise time_limit."
        )
        warnings.warn(msg, ConvergenceWarning, stacklevel=3)


def _sampled_words(certificates: Sequence[Certificate]) -> str:
    """Return what the samples of some fits say of all pairs; empty without one."""
    found = sorted(certificates, key=lambda each: each.sampled_share or 0.0)
    return found[-1].sampled_words if found else ""


def _worst_of(certificates: Sequence[Certificate]) -> str:
    """Return the head of a column of losses."""
    is_sampled = bool(_sampled_words(certificates))
    return f"worst {'sampled ' * is_sampled}pair loses"


def _checked_ks(ks: Iterable[int] | None, n_dims: int, n_features: int) -> list[int]:
    if ks is None:
        return list(range(1, min(40, n_dims) + 1))
    asked: Any = ks
    given = list(asked) if isinstance(asked, Iterable) else [asked]
    fits = bool(given) and all(is_whole(k) and 1 <= k <= n_features for k in given)
    what = f"hold whole numbers between 1 and n_features={n_features}"
    require(fits, "ks", ks, what, "Choose values in that range.")
    return sorted({int(k) for k in given})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Frontier(Tabular):
    """Share of the objective that is kept under several caps on the worst pair.

    Parameters
    ----------
    max_distortion : ndarray of shape (m,)
        The caps, ascending: from the least distortion found to PCA's.
    distortion : ndarray of shape (m,)
        What the worst pair really loses, exact.
    kept : ndarray of shape (m,)
        Share of the objective that is kept.
    kept_bound : ndarray of shape (m,)
        No projection under the same cap keeps more.
    lower_bound : float
        No projection to as many dimensions has a smaller distortion.
    certificates : tuple of Certificate
        One for each cap, with its projection.
    objective : Objective
        What is kept.
    """

    max_distortion: Array
    distortion: Array
    kept: Array
    kept_bound: Array
    lower_bound: float
    certificates: tuple[Certificate, ...]
    objective: Objective

    def __iter__(self) -> Iterator[tuple[float, float, float, float]]:
        columns = self.max_distortion, self.distortion, self.kept, self.kept_bound
        return zip(*(column.tolist() for column in columns), strict=True)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what is kept under each cap, and the most that can be kept.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes
            The drawing of ``isoproj.plot.frontier``.
        """
        return isoproj.plot.frontier(self, ax=ax)

    @property
    def sampled_words(self) -> str:
        """As for `DistortionCurve`."""
        return _sampled_words(self.certificates)

    def _table(self) -> Table:
        names = ["cap", _worst_of(self.certificates), "kept", "at most"]
        return names, [
            [*(f"{value:.4f}" for value in found), at_most(bound)]
            for *found, bound in self
        ]


def guarantee_frontier(
    X: ArrayLike | Rows,
    k: int,
    n_points: int = 7,
    *,
    objective: str = "variance",
    pairs: str | ArrayLike | PairRule = "all",
    labels: ArrayLike | None = None,
    n_neighbors: int = 10,
    min_distance: float = 0.0,
    include_norms: bool = False,
    tol: float = 1e-2,
    time_limit: float | None = None,
    random_state: int | None = None,
    verbose: int = 0,
) -> Frontier:
    """Return the share kept under several caps, from the least loss found to PCA's.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The points.
    k : int
        Number of dimensions, below what the points span.
    n_points : int
        How many caps, at least 2: the two ends count.
    objective : {"variance", "distortion"}
        What is to be kept.
    pairs, labels, n_neighbors, min_distance, include_norms
        Which pairs the caps are for, as for ``audit``.
    tol : float
        Relative gap at which a point is done.
    time_limit : float or None
        Seconds after which every cap has its best certified projection so far.
    random_state : int or None
        Seed of the samples and random starts.
    verbose : int
        1 shows the present step in a line that is renewed; in logs, a line for each.

    Returns
    -------
    Frontier
        Every point certified.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from isoproj import guarantee_frontier
    >>> X = load_wine().data[:40]
    >>> frontier = guarantee_frontier(X, 2, 3, random_state=0)
    >>> bool((frontier.kept <= frontier.kept_bound).all())
    True
    """
    rule = PairRule.of(
        pairs,
        labels=labels,
        n_neighbors=n_neighbors,
        min_distance=min_distance,
        include_norms=include_norms,
    )
    check_positive("time_limit", time_limit, integral=False)
    clock = Clock(time_limit)
    geometry = Geometry.prepare(check_points(X), rule)
    _check_frontier(k, n_points, geometry.points.n_dims)
    kept = Objective(objective)
    geometry, clock = geometry.sharing(clock, int(k), n_points)
    problem = Problem(
        search=geometry.search,
        k=int(k),
        objective=geometry.objective_matrix(kept),
        tol=checked_gap(tol),
        journal=Journal(clock),
        seed=0 if random_state is None else int(random_state),
    )
    with telling("guarantee_frontier", verbose):
        results = _frontier_results(problem, n_points)
    certificates = geometry.certified(
        [pairs for result in results for pairs in result.known],
        lambda over: tuple(
            over.certify_result(result, int(k), kept) for result in results
        ),
        k=int(k),
        n_scans=n_points,
    )
    _warn_of_sample(certificates, geometry)
    parts = [certificate.guarantee for certificate in certificates]
    table = np.array([(p.cap, p.kept, p.kept_bound) for p in parts if p is not None])
    table[-1, 0] = certificates[-1].distortion
    return Frontier(
        max_distortion=table[:, 0],
        distortion=np.array([each.distortion for each in certificates]),
        kept=table[:, 1],
        kept_bound=table[:, 2],
        lower_bound=certificates[0].lower_bound,
        certificates=certificates,
        objective=kept,
    )


def _frontier_results(problem: Problem, n_points: int) -> list[Result]:
    """Solve under caps from the least distortion found to that of PCA."""
    clock = problem.journal.clock

    def part(left: int) -> Problem:
        """Return the problem with its share of the time, of as many as are left."""
        return replace(problem, journal=Journal(clock.part(1.0 / left)))

    best = solve(replace(part(n_points), objective=None))
    principal = solve(replace(part(2 * n_points), cap=1.0))
    least, most = best.distortion, principal.distortion
    # Closer together near the least distortion, where the curve bends.
    steps = np.linspace(0.0, 1.0, n_points)[1:-1] ** 2
    results: list[Result] = []
    starts = (best.basis,)
    caps = [least * (1.0 + 1e-4), *(least + (most - least) * steps)]
    for at, cap in enumerate(caps):
        asked = replace(part(len(caps) - at), cap=float(cap))
        result = guaranteed(asked, best, starts)
        results.append(result)
        starts = (result.basis,)
    return [*results, principal]


def _check_frontier(k: object, n_points: object, dims: int) -> None:
    if dims < 2:
        msg = f"X must span at least 2 dimensions; it spans {dims}. Add points."
        raise ValueError(msg)
    what = f"be a whole number between 1 and {dims - 1}"
    fits = is_whole(k) and 1 <= k < dims
    require(fits, "k", k, what, f"The points span {dims} dimensions.")
    fits = is_whole(n_points) and n_points >= 2
    require(fits, "n_points", n_points, "be a whole number, 2 or more", "Use 7.")

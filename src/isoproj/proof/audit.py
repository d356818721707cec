"""Measure what a linear map does to the squared length of every pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import isoproj
from isoproj.engines.base import Engine
from isoproj.numerics.arrays import Rows, check_memory_limit, check_points, require
from isoproj.numerics.maps import LinearMap, Orientation, linear_map
from isoproj.numerics.progress import Walk, watching
from isoproj.numerics.rounding import at_most, directionless, paired
from isoproj.numerics.shown import Table, Tabular
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import MEMORY_LIMIT, Storage
from isoproj.pairs.full_scan import largest_ratio, summarise
from isoproj.pairs.losses import PairSummary
from isoproj.pairs.nearness import Metric, check_queries
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairRule, PairSet, prepare_pairs
from isoproj.pairs.worst_pairs import Effort, WorstPairs, find_worst
from isoproj.proof.recall import Neighbors, check_neighbors, compare_neighbors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUANTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class AuditResult(Tabular):
    """Losses and gains of squared length under a linear map, over all pairs.

    Parameters
    ----------
    distortion : float
        Largest share of squared length that a pair loses; exact.
    stretch : float
        Largest share of squared length that a pair gains; 0 if no pair gains. For maps
        that stretch by less than 1e-6 it is a bound from the largest singular value.
    worst_pairs : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first; exact. If a row counts as
        a direction, its second number is the number of rows, which stands for the
        origin.
    worst_distortions : ndarray of shape (m,)
        Share of squared length that these pairs lose.
    mean : float
        Mean loss over all pairs; NaN without ``spread``.
    quantiles : dict of float to float
        For each fraction, a loss that this fraction of the pairs does not exceed. It is
        rounded up to the next edge of the histogram. Empty without ``spread``.
    histogram : tuple of ndarray
        Counts and bin edges of the losses, as ``numpy.histogram`` returns them. Empty
        without ``spread``.
    n_pairs : int
        Number of pairs that count.
    n_identical : int
        Number of pairs of identical points; they do not count.
    effort : Effort
        Number of pairs that were measured, and that were ruled out by bounds.
    n_close : int
        Number of pairs closer than ``min_distance``; they do not count.
    things : str
        What counts: ``"pairs"``, ``"rows"`` as directions, or ``"pairs and rows"``.
    origin : int or None
        The number that stands for the origin; None where no row is a direction.
    recall : dict of int to float
        For each number of neighbours asked for, the mean share of a query's nearest
        rows that are found among the nearest images; exact. Empty if none was asked.
    neighbors : Neighbors or None
        Hits of every query, share of queries whose nearest neighbour changed, and the
        neighbours that lose most; None without ``recall``.

    See Also
    --------
    isoproj.audit : Measure a linear map.
    """

    distortion: float
    stretch: float
    worst_pairs: Indices
    worst_distortions: Array
    n_pairs: int
    n_identical: int
    effort: Effort
    mean: float = math.nan
    quantiles: dict[float, float] = field(default_factory=dict)
    histogram: tuple[NDArray[np.int64], Array] = (np.empty(0, np.int64), np.empty(0))
    n_close: int = 0
    things: str = "pairs"
    origin: int | None = None
    recall: dict[int, float] = field(default_factory=dict)
    neighbors: Neighbors | None = None

    def coarse_histogram(
        self, n_bins: int, *, low: float = 0.0, high: float = 1.0
    ) -> tuple[NDArray[np.int64], Array]:
        """Return the histogram in fewer bins of equal width.

        Parameters
        ----------
        n_bins : int
            Number of bins.
        low, high : float
            First and last edge. Losses outside are counted in the first or last bin.

        Returns
        -------
        counts : ndarray of shape (n_bins,)
            Number of pairs in each bin.
        edges : ndarray of shape (n_bins + 1,)
            Bin edges, ascending.

        Examples
        --------
        >>> import numpy as np
        >>> from isoproj import audit
        >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
        >>> audit(X, [[1.0, 0.0]]).coarse_histogram(4)[0].tolist()
        [2, 0, 0, 1]
        """
        counts, fine = self.histogram
        edges = np.linspace(low, high, n_bins + 1)
        middles = np.clip((fine[:-1] + fine[1:]) / 2.0, low, high)
        coarse, _ = np.histogram(middles, bins=edges, weights=counts)
        return np.rint(coarse).astype(np.int64), edges

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how the losses spread over all pairs.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes
            The drawing of ``isoproj.plot.distortion_histogram``.
        """
        return isoproj.plot.distortion_histogram({"map": self}, ax=ax)

    def _table(self) -> Table:
        none = directionless(self.things)
        left_out = {none: self.n_identical, "too close": self.n_close}
        told = ", ".join(f"{n:,} {why}" for why, n in left_out.items() if n)
        worst = paired(self.worst_pairs[0].tolist(), self.origin)
        rows = [
            [self.things, f"{self.n_pairs:,}" + f" ({told} left out)" * bool(told)],
            ["worst pair loses", f"{self.distortion:.4f} (points {worst})"],
            ["worst pair gains", f"{self.stretch:.4f}"],
        ]
        if not math.isnan(self.mean):
            rows.append(["mean loss", f"{self.mean:.4f}"])
        rows += [
            [f"{q:.1%} lose at most", at_most(value)]
            for q, value in self.quantiles.items()
        ]
        return [], [*rows, *([] if self.neighbors is None else self.neighbors.rows)]


def audit(
    X: ArrayLike | Rows,
    components: LinearMap,
    *,
    orientation: Orientation | None = None,
    pairs: str | ArrayLike | PairRule = "all",
    labels: ArrayLike | None = None,
    n_neighbors: int = 10,
    min_distance: float = 0.0,
    include_norms: bool = False,
    n_worst: int = 10,
    spread: bool = True,
    recall: int | Sequence[int] | None = None,
    metric: Metric = "euclidean",
    queries: ArrayLike | Rows | None = None,
    progress: Callable[[int, int], None] | None = None,
    memory_limit: float = MEMORY_LIMIT,
    engine: Engine | None = None,
) -> AuditResult:
    """Measure a linear map on all pairs of points, exactly.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_points, n_features)
        The data. It need not fit in memory: a memory-mapped file (``numpy.load`` with
        ``mmap_mode="r"``) is used in place, and a Dask, HDF5 or Zarr array is read
        slice by slice.
    components : array-like, fitted estimator, linear layer or faiss transform
        The linear map; it need not be orthonormal. A matrix has shape (k, n_features)
        or (n_features, k). An estimator has ``components_``, and a ``transform`` that
        agrees with them; a pipeline has only such steps. A layer has a ``weight`` of
        two axes, as those of PyTorch have. A transform or a pre-transform index of
        faiss is trained. A map that adds a constant is audited without it, which
        changes no distance.
    orientation : {"rows", "columns"} or None
        Whether a row of a matrix is one output coordinate, or a column is. Only a
        square matrix that is not symmetric must say.
    pairs : str, array-like of shape (m, 2) or PairRule
        Which pairs count: ``"all"``, ``"directions"``, ``"neighbors"``,
        ``"approximate-neighbors"``, ``"labels"`` (pairs of different classes),
        ``"within-labels"``, ``"queries"``, or a list of pairs of row numbers. A
        ``PairRule``, such as ``certificate.pairs``, includes the next four parameters.
    labels : array-like of shape (n_points,) or None
        Class of every point, for ``"labels"`` and ``"within-labels"``; for
        ``"queries"`` which points are queries.
    n_neighbors : int
        Number of neighbours of each point with ``pairs="neighbors"``.
    min_distance : float
        Pairs closer than this do not count.
    include_norms : bool
        Whether every row counts as a direction, in addition to the pairs.
    n_worst : int
        Number of worst pairs to return.
    spread : bool
        Whether to measure mean, quantiles and histogram. Without them most pairs are
        ruled out by bounds, which is several times faster. The worst pairs are the
        same.
    recall : int, sequence of int or None
        Numbers of nearest neighbours to look for, before and after the map, by exact
        search over all rows in threads of this process. Of rows equally near, the one
        with the smaller number comes first; a row found counts if it is as near as the
        last true neighbour.
    metric : {"euclidean", "cosine", "inner_product"}
        How near is measured for ``recall``, before and after the map.
    queries : array-like or sparse matrix of shape (m, n_features) or None
        Points whose neighbours are looked for among ``X``. None means every row of
        ``X``, which is then not its own neighbour.
    progress : callable or None
        Called now and then with the number of pairs done and the number of all pairs.
    memory_limit : float
        Bytes that arrays as large as ``X`` may take in memory. Larger arrays lie in
        scratch files. The result does not depend on this limit.
    engine : Engine or None
        Where the work runs: ``DaskEngine(client)`` for a cluster, None for threads of
        this process.

    Returns
    -------
    AuditResult
        Exact over the pairs that count.

    Raises
    ------
    ValueError
        If the data, the map or the pairs are not usable.

    See Also
    --------
    isoproj.verify : Recompute the claims of a certificate.
    isoproj.compare : Measure several methods on the same data.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import audit
    >>> triangle = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    >>> result = audit(triangle, [[1.0, 0.0]])
    >>> round(result.distortion, 3), result.worst_pairs[0].tolist()
    (0.8, [1, 2])
    >>> audit(triangle, [[1.0, 0.0]], recall=1).recall
    {1: 1.0}
    """
    check_memory_limit(memory_limit)
    storage = Storage(memory_limit, is_shared=engine is not None)
    rows = check_points(X, storage)
    linear = linear_map(components, rows.shape[1], orientation=orientation)
    look = _neighbor_search(rows, linear, recall, metric, queries, storage)
    require(n_worst > 0, "n_worst", n_worst, "be 1 or more", "Ask for one pair.")
    pairs = PairRule.of(
        pairs,
        labels=labels,
        n_neighbors=n_neighbors,
        min_distance=min_distance,
        include_norms=include_norms,
    )
    points, selected = prepare_pairs(rows, pairs, rotate=False, storage=storage)
    # The faster search finds losses only, so no pair may gain.
    measure = _all_pairs if spread or largest_ratio(linear) > 1.0 + 1e-6 else _worst
    called = progress or (lambda _done, _n_pairs: None)
    with watching(lambda walk: called(walk.done, walk.total), Walk):
        found, described = measure(points, selected, linear, n_worst, engine)
        neighbors = look(n_worst)
    return AuditResult(
        distortion=float(found.worst_losses.max()),
        worst_pairs=found.worst_pairs,
        worst_distortions=found.worst_losses,
        n_pairs=selected.n_pairs,
        n_identical=selected.n_identical,
        effort=found.effort,
        n_close=selected.n_close,
        things=pairs.things,
        origin=int(rows.shape[0]) if pairs.has_origin else None,
        recall={} if neighbors is None else neighbors.recall,
        neighbors=neighbors,
        **described,
    )


def _neighbor_search(
    rows: Rows,
    linear: Array,
    recall: int | Sequence[int] | None,
    metric: Metric,
    queries: ArrayLike | Rows | None,
    storage: Storage,
) -> Callable[[int], Neighbors | None]:
    """Check what is asked of neighbours; return the search, a function of n_worst."""
    if recall is None:
        if queries is not None:
            msg = "queries needs recall; got None. Pass recall=(1, 10), or no queries."
            raise ValueError(msg)
        return lambda _n_worst: None
    asked = check_queries(queries, rows, storage)
    ks = check_neighbors(recall, metric, int(rows.shape[0]), is_own=asked is None)
    return lambda n_worst: compare_neighbors(
        rows,
        linear,
        ks,
        metric=metric,
        queries=asked,
        n_worst=n_worst,
        storage=storage,
    )


def _all_pairs(
    points: Points, pairs: PairSet, linear: Array, n_worst: int, engine: Engine | None
) -> tuple[WorstPairs, dict[str, Any]]:
    """Return the worst pairs, and the fields of an audit that describe all pairs."""
    summary = summarise(points, pairs, linear, n_worst=n_worst, engine=engine)
    effort = Effort(measured=summary.n_pairs)
    return WorstPairs(summary.worst_pairs, summary.worst_losses, effort), {
        "stretch": summary.largest_gain,
        "mean": summary.mean_loss,
        "quantiles": _quantiles(summary),
        "histogram": (summary.counts, summary.edges),
    }


def _worst(
    points: Points, pairs: PairSet, linear: Array, n_worst: int, engine: Engine | None
) -> tuple[WorstPairs, dict[str, Any]]:
    """Return the worst pairs alone, and a bound on what any pair gains."""
    found = find_worst(points, pairs, linear, n_worst=n_worst, engine=engine)
    return found, {"stretch": largest_ratio(linear) - 1.0}


def _quantiles(summary: PairSummary) -> dict[float, float]:
    """Return the quantiles of the losses, rounded up to edges of the histogram."""
    below = np.cumsum(summary.counts)
    worst = float(summary.worst_losses.max())
    reached = np.searchsorted(below, np.asarray(_QUANTILES) * below[-1])
    return {
        q: min(worst, float(summary.edges[bin_ + 1]))
        for q, bin_ in zip(_QUANTILES, reached, strict=True)
    }

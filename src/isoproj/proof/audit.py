"""What any linear map does to every distance: the referee's view."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isoproj.engines.base import Engine, Progress
from isoproj.numerics.arrays import Rows, check_map, check_points
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import MEMORY_LIMIT, Storage, check_memory_limit
from isoproj.pairs.full_scan import PairSummary, largest_ratio, summarise
from isoproj.pairs.rule import PairRule, prepare_pairs
from isoproj.pairs.worst_pairs import Effort, WorstPairs, find_worst

__all__ = ["AuditResult", "audit"]

_QUANTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AuditResult:
    """What a linear map does to the squared lengths of all pairs that count.

    Parameters
    ----------
    distortion : float
        Largest share of squared length that a pair loses; exact.
    stretch : float
        Largest share that a pair gains, 0 when none does. For maps that stretch by
        less than 1e-6 it is the bound from the largest singular value.
    worst_pairs : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first; exact. Where a row counts
        as a direction the second number is that of the origin, the number of rows.
    worst_distortions : ndarray of shape (m,)
        What these pairs lose.
    mean : float
        Mean share lost over all pairs; NaN if the spread was not measured.
    quantiles : dict of float to float
        Share lost that this fraction of pairs stays at or below, rounded up to the
        next edge of the histogram; empty if the spread was not measured.
    histogram : tuple of ndarray
        Counts and bin edges of the share lost, as ``numpy.histogram`` returns them;
        empty if the spread was not measured.
    n_pairs : int
        Pairs that count.
    n_identical : int
        Pairs of identical points, left out because they have no direction.
    effort : Effort
        How many pairs were ruled out how, and how many measured.
    n_close : int
        Pairs left out because they are closer than ``min_distance``.
    """

    distortion: float
    stretch: float
    worst_pairs: Indices
    worst_distortions: Array
    mean: float
    quantiles: dict[float, float]
    histogram: tuple[NDArray[np.int64], Array]
    n_pairs: int
    n_identical: int
    effort: Effort
    n_close: int = 0

    def coarse_histogram(
        self, n_bins: int, *, low: float = 0.0, high: float = 1.0
    ) -> tuple[NDArray[np.int64], Array]:
        """Return the histogram in fewer bins of one width.

        Parameters
        ----------
        n_bins : int
            How many.
        low, high : float
            First and last edge; what lies outside counts in the outermost bins.

        Returns
        -------
        counts : ndarray of shape (n_bins,)
            Pairs in each bin.
        edges : ndarray of shape (n_bins + 1,)
            Edges, ascending.

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

    def __str__(self) -> str:
        i, j = self.worst_pairs[0]
        lines = [
            f"{self.n_pairs:,} pairs ({self.n_identical:,} of identical points left"
            " out)" + (f", {self.n_close:,} too close" if self.n_close else ""),
            f"worst pair loses   {self.distortion:.4f}  (points {i} and {j})",
            f"worst pair gains   {self.stretch:.4f}",
        ]
        if not math.isnan(self.mean):
            lines.append(f"mean loss          {self.mean:.4f}")
        lines += [
            f"{q:<6.1%} lose at most {value:.4f}" for q, value in self.quantiles.items()
        ]
        return "\n".join(lines)


def audit(
    X: ArrayLike | Rows,
    components: ArrayLike | Any,  # noqa: ANN401 - an array or anything fitted
    *,
    pairs: str | ArrayLike | PairRule = "all",
    labels: ArrayLike | None = None,
    n_neighbors: int = 10,
    min_distance: float = 0.0,
    include_norms: bool = False,
    n_worst: int = 10,
    spread: bool = True,
    progress: Progress | None = None,
    memory_limit: float = MEMORY_LIMIT,
    engine: Engine | None = None,
) -> AuditResult:
    """Measure a linear map on all pairs of points, exactly.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_points, n_features)
        The data. It need not fit in memory: a mapped file (``numpy.load`` with
        ``mmap_mode="r"``) is read where it is, an array of Dask, HDF5 or Zarr slice by
        slice.
    components : array-like of shape (k, n_features) or fitted estimator
        The map, orthonormal or not; of an estimator its ``components_``.
    pairs : str, array-like of shape (m, 2) or PairRule
        Which pairs count: ``"all"``, ``"directions"``, ``"neighbors"``,
        ``"approximate-neighbors"``, ``"labels"`` (between classes),
        ``"within-labels"``, or a list of row numbers. A ``PairRule``, as certificates
        have one, says all of what follows too.
    labels : array-like of shape (n_points,) or None
        Class of every point, for the pairs that labels name.
    n_neighbors : int
        Neighbours of each point with ``pairs="neighbors"``.
    min_distance : float
        Pairs closer than this do not count.
    include_norms : bool
        Whether every row counts as a direction too.
    n_worst : int
        How many of the worst pairs to return.
    spread : bool
        Whether to measure mean, quantiles and histogram too. Without them most pairs
        are ruled out from a few coordinates, which is several times faster; the worst
        pairs are the same.
    progress : callable or None
        Called with pairs done and pairs in all, now and then.
    memory_limit : float
        Bytes that arrays as large as ``X`` may take in memory; what goes beyond lies in
        scratch files. The result does not depend on it.
    engine : Engine or None
        Where pairs are looked at: ``DaskEngine(client)`` for a cluster; None means
        threads of this process.

    Returns
    -------
    AuditResult
        Exact over the pairs that count.

    Raises
    ------
    ValueError
        If the data or the map is not usable; the message says how to mend it.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import audit
    >>> triangle = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    >>> result = audit(triangle, [[1.0, 0.0]])
    >>> round(result.distortion, 3), result.worst_pairs[0].tolist()
    (0.8, [1, 2])
    """
    check_memory_limit(memory_limit)
    storage = Storage(memory_limit, is_shared=engine is not None)
    rows = check_points(X, storage)
    linear = check_map(getattr(components, "components_", components), rows.shape[1])
    if n_worst < 1:
        msg = f"n_worst must be at least 1; got {n_worst}. Ask for one pair or more."
        raise ValueError(msg)
    pairs = PairRule.of(
        pairs,
        labels=labels,
        n_neighbors=n_neighbors,
        min_distance=min_distance,
        include_norms=include_norms,
    )
    points, selected = prepare_pairs(rows, pairs, rotate=False, storage=storage)
    # Without the spread only losses are looked for, so that no pair may gain.
    if spread or largest_ratio(linear) > 1.0 + 1e-6:
        summary = summarise(
            points,
            selected,
            linear,
            n_worst=n_worst,
            progress=progress,
            engine=engine,
        )
        spread_of = _spread(summary)
        found = WorstPairs(
            summary.worst_pairs,
            summary.worst_losses,
            Effort(measured=summary.n_pairs),
        )
    else:
        found = find_worst(
            points,
            selected,
            linear,
            n_worst=n_worst,
            progress=progress,
            engine=engine,
        )
        spread_of = {
            "stretch": largest_ratio(linear) - 1.0,
            "mean": math.nan,
            "quantiles": {},
            "histogram": (np.empty(0, dtype=np.int64), np.empty(0)),
        }
    return AuditResult(
        distortion=float(found.worst_losses.max()),
        worst_pairs=found.worst_pairs,
        worst_distortions=found.worst_losses,
        n_pairs=selected.n_pairs,
        n_identical=selected.n_identical,
        effort=found.effort,
        n_close=selected.n_close,
        **spread_of,
    )


def _spread(summary: PairSummary) -> dict[str, Any]:
    """Return what an audit tells beyond the worst pairs."""
    return {
        "stretch": summary.largest_gain,
        "mean": summary.mean_loss,
        "quantiles": _quantiles(summary),
        "histogram": (summary.counts, summary.edges),
    }


def _quantiles(summary: PairSummary) -> dict[float, float]:
    below = np.cumsum(summary.counts)
    worst = float(summary.worst_losses.max())
    reached = np.searchsorted(below, np.asarray(_QUANTILES) * below[-1])
    return {
        q: min(worst, float(summary.edges[bin_ + 1]))
        for q, bin_ in zip(_QUANTILES, reached, strict=True)
    }

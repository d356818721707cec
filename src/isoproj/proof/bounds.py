"""Bounds recomputed from scratch, in float64, by code that knows no solver.

For any weights ``w`` on the simplex and any orthonormal basis ``V``,
``1 - topk(M(w)) <= p* <= max 1 - |V^T x|^2``. So a certificate needs no trust in
whoever found ``w`` and ``V``: both sides are recomputed here from the data, with
rounding accounted for, outwards.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from isoproj.engines.base import Engine
from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import (
    Array,
    Indices,
    top_eigenvalue_sum,
    top_eigenvalues,
)
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.moments import pose
from isoproj.pairs.points import Points, squared_lengths
from isoproj.pairs.rule import LABELLED, PairKind, PairSet
from isoproj.pairs.worst_pairs import WorstPairs, find_worst
from isoproj.proof.certificate import Certificate, Exclusion, Guarantee
from isoproj.proof.confidence import share_above
from isoproj.proof.dense_weights import far_moment
from isoproj.proof.objective import Objective, kept_bound, share_kept

__all__ = [
    "certify",
    "certify_each",
    "certify_exclusion",
    "certify_guarantee",
    "data_fingerprint",
    "lower_bound",
    "lower_bounds",
    "rounded_up",
    "spectral_ratio",
]

_EPS = float(np.finfo(np.float64).eps)
_CHUNK = 4096
# Operations worth spending on a figure that is only informative.
_AFFORDABLE = 1e11


def data_fingerprint(rows: Rows) -> str:
    """Return the SHA-256 of the data: shape, then values row by row.

    Values are hashed as little-endian float64 with -0 written as 0, so that the same
    numbers give the same fingerprint in float32, float64, dense or sparse form.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n_points, n_features)
        The data.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.proof.bounds import data_fingerprint
    >>> half = np.array([[0.5, 0.25]], dtype=np.float32)
    >>> data_fingerprint(half) == data_fingerprint(half.astype(float))
    True
    """
    digest = hashlib.sha256(b"isoproj points 1\n")
    digest.update(np.asarray(rows.shape, dtype="<i8").tobytes())
    step = max(1, 2**20 // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        dense = as_dense(rows[start : start + step]) + 0.0
        digest.update(np.ascontiguousarray(dense, dtype="<f8").tobytes())
    return digest.hexdigest()


def lower_bound(points: Points, pairs: Indices, weights: Array, k: int) -> float:
    """Return a distortion that no projection to ``k`` dimensions can go below.

    Parameters
    ----------
    points : Points
        The geometry; directions are taken from its rows.
    pairs : ndarray of shape (m, 2)
        Pairs of distinct points.
    weights : ndarray of shape (m,)
        Nonnegative, not all zero; scaled to sum 1 here.
    k : int
        Number of dimensions.

    Returns
    -------
    float
        ``1 - topk(M(w))`` minus an allowance for rounding, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.proof.bounds import lower_bound
    >>> from isoproj.pairs.points import Points, squared_lengths
    >>> axes = np.vstack([np.zeros(4), np.eye(4)])
    >>> points = Points.prepare(axes, rotate=False)
    >>> star = np.array([[0, 1], [0, 2], [0, 3], [0, 4]])
    >>> round(lower_bound(points, star, np.ones(4), k=2), 9)
    0.5
    """
    return float(lower_bounds(points, pairs, weights, [k])[0])


@single_blas_thread
def lower_bounds(
    points: Points, pairs: Indices, weights: Array, ks: Sequence[int]
) -> Array:
    """Return what the same weights prove for several numbers of dimensions.

    Parameters
    ----------
    points, pairs, weights
        As for ``lower_bound``.
    ks : sequence of int
        Numbers of dimensions.

    Returns
    -------
    ndarray of shape (len(ks),)
        ``lower_bound`` at each; all of them hold, whichever the weights were made for.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.proof.bounds import lower_bounds
    >>> from isoproj.pairs.points import Points
    >>> axes = np.vstack([np.zeros(4), np.eye(4)])
    >>> points = Points.prepare(axes, rotate=False)
    >>> star = np.array([[0, 1], [0, 2], [0, 3], [0, 4]])
    >>> lower_bounds(points, star, np.ones(4), [1, 2, 3, 4]).round(9).tolist()
    [0.75, 0.5, 0.25, 0.0]
    """
    positive = weights > 0.0
    pairs = pairs[positive]
    shares = weights[positive] / math.fsum(weights[positive])
    n_features = int(points.rows.shape[1])
    m = int(shares.size)
    bounds = np.zeros(len(ks))
    counts = [k for k in ks if k < min(m, n_features)]
    if not counts:
        return bounds
    moment = _weighted_moment(points, pairs, shares)
    values = top_eigenvalues(moment, max(counts))
    for at, k in enumerate(ks):
        if k not in counts:
            continue
        # The moment has trace 1. Forming it errs by at most (m + n_features) eps in
        # norm, eigenvalues by a modest multiple of its order times eps; k add up.
        allowance = k * _EPS * (m + n_features + 8 * moment.shape[0] + 64)
        bounds[at] = max(0.0, 1.0 - float(values[-k:].sum()) - allowance)
    return bounds


def _weighted_moment(points: Points, pairs: Indices, shares: Array) -> Array:
    """Return ``M(w)``, or the Gram matrix with its nonzero eigenvalues if smaller."""
    n_features, m = int(points.rows.shape[1]), int(shares.size)
    if m <= n_features:
        roots = _weighted_directions(points, pairs, shares)
        return as_dense(roots @ roots.T)
    moment = np.zeros((n_features, n_features))
    dense = far_moment(points.rows, pairs, shares, _EPS * (m + n_features))
    if dense is not None:
        moment, far = dense
        pairs, shares = pairs[~far], shares[~far]
    for start in range(0, pairs.shape[0], _CHUNK):
        chunk = slice(start, start + _CHUNK)
        roots = _weighted_directions(points, pairs[chunk], shares[chunk])
        moment += as_dense(roots.T @ roots)
    return moment


def _weighted_directions(points: Points, pairs: Indices, shares: Array) -> Rows:
    """Return ``sqrt(w) x`` for each pair, one a row."""
    gaps = points.differences(pairs)
    factors = np.sqrt(shares / squared_lengths(gaps))
    if is_sparse(gaps):
        return scipy.sparse.diags_array(factors) @ gaps
    return gaps * factors[:, None]


@single_blas_thread
def spectral_ratio(points: Points, pairs: PairSet, k: int) -> float:
    """Return ``1 / (1 - sum_{j<=k} sigma_j^2 / n)``, the corrected Theorem 1.

    ``sigma_j`` are the singular values of the matrix of all unit directions. At the
    optimal dual weights the paper's read-out is within this factor of ``p*``. (The
    paper's own statement, with ``sigma_1`` alone, is false for ``k >= 2``.)

    Parameters
    ----------
    points : Points
        Geometry in span coordinates.
    pairs : PairSet
        The pairs; one weight for each is formed, so thousands of points at most.
    k : int
        Number of dimensions.

    Returns
    -------
    float
        At least 1; infinite when ``k`` dimensions hold every direction.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.proof.bounds import spectral_ratio
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> points, pairs = prepare_pairs(np.eye(4), "directions", rotate=True)
    >>> round(spectral_ratio(points, pairs, 2), 9)
    2.0
    """
    if k >= points.n_dims:
        return math.inf
    moment = _uniform_moment(points, pairs, k)
    if moment is None:
        return math.inf
    left = 1.0 - top_eigenvalue_sum(moment, k)
    return 1.0 / left if left > points.n_dims * k * _EPS else math.inf


def _uniform_moment(points: Points, pairs: PairSet, k: int) -> Array | None:
    """Return ``M(1/n)``, from exact differences where coordinates are too coarse.

    None where that would cost too much.
    """
    problem = pose(points, pairs, k)
    n, d = problem.n_pairs, int(points.rows.shape[1])
    if not is_sparse(points.rows) and not problem.is_close.any():
        return problem.moment(np.full(n, 1.0 / n))
    if n * d * d > _AFFORDABLE:
        return None
    moment = np.zeros((d, d))
    for start in range(0, n, _CHUNK):
        chunk = problem.pairs(np.arange(start, min(start + _CHUNK, n)))
        shares = np.full(chunk.shape[0], 1.0 / n)
        roots = _weighted_directions(points, chunk, shares)
        moment += as_dense(roots.T @ roots)
    return moment


def certify(
    points: Points,
    pairs: PairSet,
    components: NDArray[np.float64] | NDArray[np.float32],
    weighted_pairs: Indices,
    weights: Array,
    *,
    n_rows: int,
    n_worst: int = 10,
    spectral: bool = False,
    engine: Engine | None = None,
) -> Certificate:
    """Recompute both bounds for the matrix that ships and the weights that prove.

    Parameters
    ----------
    points : Points
        The geometry.
    pairs : PairSet
        The pairs that count.
    components : ndarray of shape (k, n_features)
        Orthonormal rows.
    weighted_pairs : ndarray of shape (m, 2)
        Support of the dual weights.
    weights : ndarray of shape (m,)
        Dual weights.
    n_rows : int
        Rows of the data, the origin not counted.
    n_worst : int
        How many worst pairs to record.
    spectral : bool
        Whether to compute ``spectral_ratio`` too.
    engine : Engine or None
        Where pairs are looked at; None means threads of this process.

    Returns
    -------
    Certificate
        Valid whatever the solver did.
    """
    lower = lower_bound(points, weighted_pairs, weights, components.shape[0])
    return _certificate(
        points,
        pairs,
        components,
        weighted_pairs,
        weights,
        lower,
        n_rows=n_rows,
        n_worst=n_worst,
        spectral=spectral,
        engine=engine,
    )


def certify_each(
    points: Points,
    pairs: PairSet,
    maps: Sequence[NDArray[np.float64] | NDArray[np.float32]],
    weighted_pairs: Indices,
    weights: Array,
    *,
    n_rows: int,
) -> list[Certificate]:
    """Do for several matrices, with the same weights, what ``certify`` does for one.

    Parameters
    ----------
    points, pairs, weighted_pairs, weights, n_rows
        As for ``certify``.
    maps : sequence of ndarray of shape (k, n_features)
        Matrices with orthonormal rows, each with a ``k`` of its own.

    Returns
    -------
    list of Certificate
        One for each.
    """
    ks = [components.shape[0] for components in maps]
    bounds = lower_bounds(points, weighted_pairs, weights, ks).tolist()
    return [
        _certificate(
            points, pairs, components, weighted_pairs, weights, lower, n_rows=n_rows
        )
        for components, lower in zip(maps, bounds, strict=True)
    ]


def _certificate(
    points: Points,
    pairs: PairSet,
    components: NDArray[np.float64] | NDArray[np.float32],
    weighted_pairs: Indices,
    weights: Array,
    lower: float,
    *,
    n_rows: int,
    n_worst: int = 10,
    spectral: bool = False,
    engine: Engine | None = None,
) -> Certificate:
    exact = components.astype(np.float64)
    k, n_features = exact.shape
    # Weight rests on pairs that lose much; where it does not, only time is lost.
    summary = find_worst(
        points, pairs, exact, n_worst=n_worst, suspects=weighted_pairs, engine=engine
    )
    rows = points.rows[:n_rows]
    ratio = _finite(spectral_ratio(points, pairs, k)) if spectral else None
    distortion, fingerprint = (
        rounded_up(summary, k, n_features),
        data_fingerprint(rows),
    )
    share = None
    if pairs.kind is PairKind.SAMPLED:
        share = share_above(points, exact, distortion, fingerprint)
    return Certificate(
        components=components,
        weighted_pairs=weighted_pairs,
        weights=weights,
        distortion=distortion,
        lower_bound=lower,
        worst_pairs=summary.worst_pairs,
        worst_distortions=summary.worst_losses,
        pair_kind=pairs.kind,
        listed_pairs=_stated(pairs.rule.pairs, pairs.kind.is_listed),
        labels=_stated(pairs.rule.labels, pairs.kind in LABELLED),
        n_close=pairs.n_close,
        min_distance=pairs.rule.min_distance,
        include_norms=pairs.rule.include_norms,
        n_pairs=pairs.n_pairs,
        n_identical=pairs.n_identical,
        n_points=n_rows,
        n_features=n_features,
        fingerprint=fingerprint,
        spectral_ratio=ratio,
        sampled_share=share,
    )


def _stated(named: ArrayLike | None, is_used: bool) -> Indices | None:
    return np.asarray(named) if is_used else None


def certify_guarantee(
    points: Points,
    pairs: PairSet,
    certificate: Certificate,
    objective: Objective,
    cap: float,
    capped_pairs: Indices,
    multipliers: Array,
) -> Certificate:
    """Recompute what is kept on the whole under a cap, and the most that can be.

    Parameters
    ----------
    points : Points
        The geometry.
    pairs : PairSet
        The pairs that count.
    certificate : Certificate
        Of the projection in question.
    objective : Objective
        What is kept.
    cap : float
        What no pair may lose more than.
    capped_pairs : ndarray of shape (m, 2)
        Pairs that carry multipliers.
    multipliers : ndarray of shape (m,)
        Nonnegative.

    Returns
    -------
    Certificate
        The same with its guarantee.
    """
    n_rows = certificate.n_points
    guarantee = Guarantee(
        objective=objective,
        cap=cap,
        kept=share_kept(
            points, pairs, objective, certificate.components, n_rows=n_rows
        ),
        kept_bound=kept_bound(
            points,
            pairs,
            objective,
            certificate.n_components,
            cap,
            capped_pairs,
            multipliers,
            n_rows=n_rows,
        ),
        capped_pairs=capped_pairs,
        multipliers=multipliers,
    )
    return replace(certificate, guarantee=guarantee)


def certify_exclusion(
    points: Points, cap: float, pairs: Indices, weights: Array
) -> Exclusion | None:
    """Return the largest number of dimensions that weights prove too small for a cap.

    Parameters
    ----------
    points : Points
        The geometry.
    cap : float
        What no pair should lose more than.
    pairs : ndarray of shape (m, 2)
        Pairs of distinct points that count.
    weights : ndarray of shape (m,)
        Nonnegative, not all zero.

    Returns
    -------
    Exclusion or None
        None if not even one dimension is proved too few.
    """
    most = min(int(points.rows.shape[1]), weights.size) - 1
    if most < 1:
        return None
    bounds = lower_bounds(points, pairs, weights, range(1, most + 1))
    count = int((bounds > cap).sum())
    if count == 0:
        return None
    return Exclusion(
        cap=cap,
        n_components=count,
        excluding_pairs=pairs,
        excluding_weights=weights / math.fsum(weights),
    )


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None


def rounded_up(summary: WorstPairs, k: int, n_features: int) -> float:
    """Return the worst loss with its own rounding added, so that it bounds ``p*``."""
    rounding = 2e-14 + 4 * _EPS * (k + n_features)
    # Nothing loses more than all of its length.
    return min(1.0, max(0.0, float(summary.worst_losses.max())) + rounding)

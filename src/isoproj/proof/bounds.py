"""Bounds on the best distortion, recomputed from the data in float64.

For any weights ``w`` on the simplex and any orthonormal basis ``V``,
``1 - topk(M(w)) <= p* <= max 1 - |V^T x|^2``. This module computes both sides from the
data, with an allowance for rounding. So a certificate is valid whatever the solver did.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isoproj.engines.base import Engine
from isoproj.exceptions import ClaimError
from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import (
    EPS,
    Array,
    Indices,
    Map,
    top_eigenvalue_sum,
    top_eigenvalues,
)
from isoproj.numerics.storage import SLICE_BYTES, row_slices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.moments import far_moment, pose, weighted_directions, weighted_moment
from isoproj.pairs.points import Points
from isoproj.pairs.rule import LABELLED, PairKind, PairSet
from isoproj.pairs.worst_pairs import WorstPairs, find_worst
from isoproj.proof.certificate import Certificate, Exclusion, Guarantee
from isoproj.proof.hull import HullProof, hull_bound
from isoproj.proof.objective import Objective, kept_bound, share_kept

# Bounds may cross by rounding, which is far less than this.
_TOLERANCE = 1e-9
# What to do if a solver returns what proves nothing.
_AGAIN = "Fit again, without a checkpoint."
# Most weights that a certificate holds. A draw of so many changed the bound of equal
# weights on a million pairs by at most 0.2 %.
_MOST_WEIGHTS = 100_000


def data_fingerprint(rows: Rows) -> str:
    """Return the SHA-256 of shape and values of the data, in hexadecimal.

    Values are hashed as little-endian float64, and -0 as 0. So the same numbers have
    the same fingerprint in float32 or float64, dense or sparse.
    """
    digest = hashlib.sha256(b"isoproj points 1\n")
    digest.update(np.asarray(rows.shape, dtype="<i8").tobytes())
    # Hashing copies a slice several times, in float64.
    for chunk in row_slices(rows, slice_bytes=SLICE_BYTES // 4):
        dense = as_dense(rows[chunk]) + 0.0
        digest.update(np.ascontiguousarray(dense, dtype="<f8").tobytes())
    return digest.hexdigest()


def lower_bound(points: Points, pairs: Indices, weights: Array, k: int) -> float:
    """Return a lower bound on the distortion of every projection to ``k`` dimensions.

    It is ``1 - topk(M(w))`` minus an allowance for rounding, at least 0. The weights
    are nonnegative, not all zero, and rest on pairs of distinct points.
    """
    return float(lower_bounds(points, pairs, weights, [k])[0])


@single_blas_thread
def lower_bounds(
    points: Points, pairs: Indices, weights: Array, ks: Sequence[int]
) -> Array:
    """Return ``lower_bound`` of the same weights for several numbers of dimensions."""
    positive = weights > 0.0
    pairs = pairs[positive]
    shares = weights[positive] / math.fsum(weights[positive])
    n_features = int(points.rows.shape[1])
    m = int(shares.size)
    bounds, most = np.zeros(len(ks)), min(m, n_features)
    if min(ks, default=most) >= most:
        return bounds
    moment = _gram_or_moment(points, pairs, shares)
    values = top_eigenvalues(moment, max(k for k in ks if k < most))
    for at, k in enumerate(ks):
        if k >= most:
            continue
        # The moment has trace 1. Its rounding error is at most (m + n_features) eps in
        # norm; that of each of the k eigenvalues is a small multiple of order * eps.
        allowance = k * EPS * (m + n_features + 8 * moment.shape[0] + 64)
        bounds[at] = max(0.0, 1.0 - float(values[-k:].sum()) - allowance)
    return bounds


def _gram_or_moment(points: Points, pairs: Indices, shares: Array) -> Array:
    """Return ``M(w)``, or the smaller Gram matrix with the same nonzero eigenvalues."""
    n_features, m = int(points.rows.shape[1]), int(shares.size)
    if m <= n_features:
        roots = weighted_directions(points, pairs, shares)
        return as_dense(roots @ roots.T)
    dense = far_moment(points.rows, pairs, shares, EPS * (m + n_features))
    if dense is None:
        return weighted_moment(points, pairs, shares)
    moment, far = dense
    return moment + weighted_moment(points, pairs[~far], shares[~far])


@single_blas_thread
def spectral_ratio(points: Points, pairs: PairSet, k: int) -> float:
    """Return ``1 / (1 - sum_{j<=k} sigma_j^2 / n)``, the corrected Theorem 1.

    ``sigma_j`` are the singular values of the matrix of all ``n`` unit directions. At
    the optimal dual weights the paper's projection is within this factor of the
    optimum. (The paper's statement has ``sigma_1`` alone, which is false for
    ``k >= 2``.) The ratio is infinite if ``k`` dimensions hold every direction, or if
    it takes too many operations.
    """
    if k >= points.n_dims:
        return math.inf
    problem = pose(points, pairs, k)
    n, d = problem.n_pairs, int(points.rows.shape[1])
    shares = np.full(n, 1.0 / n)
    if not is_sparse(points.rows) and not problem.is_close.any():
        moment = problem.moment(shares)
    elif n * d * d > 1e11:
        return math.inf
    else:
        # Exact differences of rows, because coordinates are too coarse.
        moment = weighted_moment(points, problem.pairs(np.arange(n)), shares)
    left = 1.0 - top_eigenvalue_sum(moment, k)
    return 1.0 / left if left > points.n_dims * k * EPS else math.inf


def certify(
    points: Points,
    pairs: PairSet,
    components: Map,
    weighted_pairs: Indices,
    weights: Array,
    *,
    spectral: bool = False,
    engine: Engine | None = None,
) -> Certificate:
    """Return the certificate of orthonormal components, with both bounds computed.

    The dual weights on ``weighted_pairs`` prove the lower bound. ``spectral`` adds
    ``spectral_ratio``.
    """
    fault = weights_fault(pairs, weighted_pairs, weights, points)
    if fault:
        msg = f"a lower bound must rest on pairs that count; got {fault}. {_AGAIN}"
        raise ClaimError(msg)
    k, exact = components.shape[0], components.astype(np.float64)
    # The search is faster if pairs that lose much are measured first.
    # Heaviest pairs that are measured before the search for the worst pair.
    suspects = weighted_pairs[np.argsort(-weights, kind="stable")[:4096]]
    # Number of worst pairs that a certificate lists.
    found = find_worst(
        points, pairs, exact, n_worst=10, suspects=suspects, engine=engine
    )
    distortion = rounded_up(found, *exact.shape)
    n_rows = points.n_points - pairs.rule.has_origin
    fingerprint = data_fingerprint(points.rows[:n_rows])
    share = None
    if pairs.kind is PairKind.SAMPLED:
        from isoproj.proof.confidence import drawn_losses, seed_of, share_of

        losses = drawn_losses(points, exact, seed_of(fingerprint, exact))
        share = share_of(losses, distortion)
    ratio = spectral_ratio(points, pairs, k) if spectral else math.inf
    rule, kind = pairs.rule, pairs.kind
    return _ordered(
        Certificate(
            components=components,
            weighted_pairs=weighted_pairs,
            weights=weights,
            distortion=distortion,
            lower_bound=lower_bound(points, weighted_pairs, weights, k),
            worst_pairs=found.worst_pairs,
            worst_distortions=found.worst_losses,
            pair_kind=kind,
            listed_pairs=np.asarray(rule.pairs) if kind.is_listed else None,
            n_pairs=pairs.n_pairs,
            n_identical=pairs.n_identical,
            n_points=n_rows,
            n_features=int(points.rows.shape[1]),
            fingerprint=fingerprint,
            spectral_ratio=ratio if math.isfinite(ratio) else None,
            sampled_share=share,
            labels=np.asarray(rule.labels) if kind in LABELLED else None,
            n_close=pairs.n_close,
            min_distance=rule.min_distance,
            include_norms=rule.include_norms,
        )
    )


def thinned(pairs: Indices, weights: Array) -> tuple[Indices, Array]:
    """Return weights on fewer pairs if they are very many: a draw at even steps.

    Any weights on pairs that count prove a bound.
    """
    if weights.size <= _MOST_WEIGHTS:
        return pairs, weights
    ends = np.cumsum(weights)
    steps = (np.arange(_MOST_WEIGHTS) + 0.5) * (ends[-1] / _MOST_WEIGHTS)
    drawn = np.searchsorted(ends, steps).clip(0, weights.size - 1)
    kept, counts = np.unique(drawn, return_counts=True)
    return pairs[kept], counts / _MOST_WEIGHTS


def _ordered(certificate: Certificate) -> Certificate:
    """Return the certificate; raise ClaimError if its bounds are in the wrong order."""
    if certificate.lower_bound > certificate.distortion + _TOLERANCE:
        msg = (
            f"the lower bound must not exceed the distortion; got "
            f"{certificate.lower_bound:.9f} and {certificate.distortion:.9f}. {_AGAIN}"
        )
        raise ClaimError(msg)
    return certificate


def certify_guarantee(
    points: Points,
    pairs: PairSet,
    certificate: Certificate,
    objective: Objective,
    cap: float,
    capped_pairs: Indices,
    multipliers: Array,
) -> Guarantee:
    """Return what a certified projection keeps under a cap, computed from the data."""
    k, components = certificate.n_components, certificate.components
    proof = capped_pairs, multipliers
    return Guarantee(
        objective=objective,
        cap=cap,
        kept=share_kept(points, pairs, objective, components),
        kept_bound=kept_bound(points, pairs, objective, k, cap, *proof),
        capped_pairs=capped_pairs,
        multipliers=multipliers,
    )


def certify_hull(
    points: Points, certificate: Certificate, axes: Array, pairs: Indices
) -> Certificate:
    """Return the certificate with a hull proof, if that raises the lower bound.

    ``axes`` has shape (k + 1, n_features).
    """
    bound = hull_bound(points, axes, pairs)
    if bound <= certificate.lower_bound:
        return certificate
    hull = HullProof(bound=bound, hull_axes=axes, hull_pairs=pairs)
    return _ordered(replace(certificate, hull=hull, lower_bound=bound))


def certify_exclusion(
    points: Points, cap: float, pairs: Indices, weights: Array
) -> Exclusion | None:
    """Return the largest number of dimensions that weights prove too small for a cap.

    Return None if not even one dimension is proved too small.
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


def rounded_up(summary: WorstPairs, k: int, n_features: int) -> float:
    """Return the largest loss plus its rounding error, at most 1."""
    rounding = 2e-14 + 4 * EPS * (k + n_features)
    # No pair loses more than its whole length.
    return min(1.0, max(0.0, float(summary.worst_losses.max())) + rounding)


def weights_fault(
    counting: PairSet, pairs: Indices, weights: Array, points: Points
) -> str:
    """Return why weights on pairs prove no bound, or an empty string."""
    if weights.shape != (pairs.shape[0],) or pairs.shape[1:] != (2,) or not pairs.size:
        return "weights that do not fit their pairs"
    if pairs.min() < 0 or pairs.max() >= points.n_points:
        return "pairs outside the data"
    with np.errstate(over="ignore"):
        mass = weights.sum()
    if not np.isfinite(mass) or weights.min() < 0.0:
        return "weights that are negative or not finite"
    if not points.are_distinct(pairs).all():
        return "a pair of identical points"
    # A pair that does not count may lose more than every pair that does.
    if not counting.holds(pairs, points.n_points).all():
        return "weight on a pair that does not count"
    return ""

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
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from isoproj.engines.base import Engine
from isoproj.exceptions import ClaimError
from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import (
    EPS,
    Array,
    Indices,
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
from isoproj.proof.hull import prove_hull
from isoproj.proof.objective import Objective, kept_bound, share_kept

# Orthonormal rows in the precision of the fitted model.
Map: TypeAlias = NDArray[np.float64] | NDArray[np.float32]

# Bounds may cross by rounding, which is far less than this.
_TOLERANCE = 1e-9
# What to do if a solver returns what proves nothing.
_AGAIN = "Fit again, without a checkpoint."
# Number of worst pairs that a certificate lists.
_N_WORST = 10
# Most weights that a certificate holds. A draw of so many changed the bound of equal
# weights on a million pairs by at most 0.2 %.
_MOST_WEIGHTS = 100_000
# Heaviest pairs that are measured before the search for the worst pair.
_SUSPECTS = 4096
# Most operations to spend on the spectral ratio, which is only informative.
_AFFORDABLE = 1e11


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
    bounds = np.zeros(len(ks))
    counts = [k for k in ks if k < min(m, n_features)]
    if not counts:
        return bounds
    moment = _gram_or_moment(points, pairs, shares)
    values = top_eigenvalues(moment, max(counts))
    for at, k in enumerate(ks):
        if k not in counts:
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
    ``k >= 2``.) The ratio is infinite if ``k`` dimensions hold every direction.
    """
    if k >= points.n_dims:
        return math.inf
    moment = _uniform_moment(points, pairs, k)
    if moment is None:
        return math.inf
    left = 1.0 - top_eigenvalue_sum(moment, k)
    return 1.0 / left if left > points.n_dims * k * EPS else math.inf


def _uniform_moment(points: Points, pairs: PairSet, k: int) -> Array | None:
    """Return ``M(1/n)``, or None if that takes too many operations.

    Exact differences of rows are used where coordinates are too coarse.
    """
    problem = pose(points, pairs, k)
    n, d = problem.n_pairs, int(points.rows.shape[1])
    if not is_sparse(points.rows) and not problem.is_close.any():
        return problem.moment(np.full(n, 1.0 / n))
    if n * d * d > _AFFORDABLE:
        return None
    return weighted_moment(points, problem.pairs(np.arange(n)), np.full(n, 1.0 / n))


def certify(
    points: Points,
    pairs: PairSet,
    components: Map,
    weighted_pairs: Indices,
    weights: Array,
    *,
    n_rows: int,
    spectral: bool = False,
    engine: Engine | None = None,
) -> Certificate:
    """Return the certificate of orthonormal components, with both bounds computed.

    The dual weights on ``weighted_pairs`` prove the lower bound. ``n_rows`` is the
    number of rows of the data without the origin. ``spectral`` adds ``spectral_ratio``.
    """
    certificates = certify_each(
        points,
        pairs,
        [components],
        weighted_pairs,
        weights,
        n_rows=n_rows,
        spectral=spectral,
        engine=engine,
    )
    return certificates[0]


def certify_each(
    points: Points,
    pairs: PairSet,
    maps: Sequence[Map],
    weighted_pairs: Indices,
    weights: Array,
    *,
    n_rows: int,
    spectral: bool = False,
    engine: Engine | None = None,
) -> list[Certificate]:
    """Return what ``certify`` returns, for several maps with the same dual weights.

    The maps may have different numbers of dimensions.
    """
    fault = weights_fault(pairs, weighted_pairs, weights, points)
    if fault:
        msg = f"a lower bound must rest on pairs that count; got {fault}. {_AGAIN}"
        raise ClaimError(msg)
    ks = [components.shape[0] for components in maps]
    bounds = lower_bounds(points, weighted_pairs, weights, ks).tolist()
    facts = _facts_of_data(points, pairs, n_rows)
    suspects = weighted_pairs[np.argsort(-weights, kind="stable")[:_SUSPECTS]]
    certificates = [
        Certificate(
            components=components,
            weighted_pairs=weighted_pairs,
            weights=weights,
            lower_bound=lower,
            spectral_ratio=_finite_ratio(points, pairs, k) if spectral else None,
            **_losses(
                points, pairs, components, suspects, facts["fingerprint"], engine
            ),
            **facts,
        )
        for components, k, lower in zip(maps, ks, bounds, strict=True)
    ]
    return [_ordered(certificate) for certificate in certificates]


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


def _losses(
    points: Points,
    pairs: PairSet,
    components: Map,
    suspects: Indices,
    fingerprint: str,
    engine: Engine | None,
) -> dict[str, Any]:
    """Return the claims of a certificate about the losses of pairs.

    The search is faster if pairs that lose much are among the suspects.
    """
    exact = components.astype(np.float64)
    found = find_worst(
        points, pairs, exact, n_worst=_N_WORST, suspects=suspects, engine=engine
    )
    distortion = rounded_up(found, *exact.shape)
    claims: dict[str, Any] = {
        "distortion": distortion,
        "worst_pairs": found.worst_pairs,
        "worst_distortions": found.worst_losses,
        "sampled_share": None,
    }
    if pairs.kind is PairKind.SAMPLED:
        from isoproj.proof.confidence import share_above

        claims["sampled_share"] = share_above(points, exact, distortion, fingerprint)
    return claims


def _facts_of_data(points: Points, pairs: PairSet, n_rows: int) -> dict[str, Any]:
    """Return the claims of a certificate about the data and the pairs that count."""
    rule, kind = pairs.rule, pairs.kind
    return {
        "pair_kind": kind,
        "listed_pairs": np.asarray(rule.pairs) if kind.is_listed else None,
        "labels": np.asarray(rule.labels) if kind in LABELLED else None,
        "min_distance": rule.min_distance,
        "include_norms": rule.include_norms,
        "n_pairs": pairs.n_pairs,
        "n_identical": pairs.n_identical,
        "n_close": pairs.n_close,
        "n_points": n_rows,
        "n_features": int(points.rows.shape[1]),
        "fingerprint": data_fingerprint(points.rows[:n_rows]),
    }


def _finite_ratio(points: Points, pairs: PairSet, k: int) -> float | None:
    """Return the spectral ratio, or None if it is infinite."""
    ratio = spectral_ratio(points, pairs, k)
    return ratio if math.isfinite(ratio) else None


def certify_guarantee(
    points: Points,
    pairs: PairSet,
    certificate: Certificate,
    objective: Objective,
    cap: float,
    capped_pairs: Indices,
    multipliers: Array,
) -> Certificate:
    """Return the certificate with a guarantee that is computed from the data."""
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


def certify_hull(
    points: Points, certificate: Certificate, axes: Array, pairs: Indices
) -> Certificate:
    """Return the certificate with a hull proof, if that raises the lower bound.

    ``axes`` has shape (k + 1, n_features).
    """
    hull = prove_hull(points, axes, pairs)
    if hull is None or hull.bound <= certificate.lower_bound:
        return certificate
    return _ordered(replace(certificate, hull=hull, lower_bound=hull.bound))


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

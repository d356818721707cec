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
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from isoproj._spectral import (
    Array,
    Indices,
    top_eigenvalue_sum,
    top_eigenvalues,
)
from isoproj._threads import single_blas_thread
from isoproj._validation import Rows, as_dense, check_points, is_sparse
from isoproj.certificate import Certificate, Exclusion, Guarantee, naming_fault
from isoproj.engines.base import Engine
from isoproj.exceptions import ClaimError
from isoproj.leaders import exact_losses
from isoproj.objective import Objective, kept_bound, share_kept
from isoproj.pairs import LABELLED, PairKind, PairSet, prepare_pairs
from isoproj.points import Points, squared_lengths
from isoproj.problem import pose
from isoproj.sampling import share_above
from isoproj.sifting import WorstPairs, find_worst

__all__ = [
    "Claim",
    "certify",
    "certify_exclusion",
    "certify_guarantee",
    "check_claims",
    "data_fingerprint",
    "lower_bound",
    "lower_bounds",
    "spectral_ratio",
    "verify",
]

_EPS = float(np.finfo(np.float64).eps)
_CHUNK = 4096
# Recomputation on another machine may round differently, by far less than this.
_TOLERANCE = 1e-9
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
    >>> from isoproj.certify import data_fingerprint
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
    >>> from isoproj.certify import lower_bound
    >>> from isoproj.points import Points, squared_lengths
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
    >>> from isoproj.certify import lower_bounds
    >>> from isoproj.points import Points
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
    for start in range(0, m, _CHUNK):
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
    >>> from isoproj.certify import spectral_ratio
    >>> from isoproj.pairs import prepare_pairs
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
    exact = components.astype(np.float64)
    k, n_features = exact.shape
    # Weight rests on pairs that lose much; where it does not, only time is lost.
    summary = find_worst(
        points, pairs, exact, n_worst=n_worst, suspects=weighted_pairs, engine=engine
    )
    rows = points.rows[:n_rows]
    ratio = _finite(spectral_ratio(points, pairs, k)) if spectral else None
    distortion, fingerprint = (
        _rounded_up(summary, k, n_features),
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
        lower_bound=lower_bound(points, weighted_pairs, weights, k),
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


def _rounded_up(summary: WorstPairs, k: int, n_features: int) -> float:
    """Return the worst loss with its own rounding added, so that it bounds ``p*``."""
    rounding = 2e-14 + 4 * _EPS * (k + n_features)
    # Nothing loses more than all of its length.
    return min(1.0, max(0.0, float(summary.worst_losses.max())) + rounding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement of a certificate beside what recomputation found.

    Parameters
    ----------
    name : str
        What is claimed.
    stated, found : str
        The claim and the recomputed value, as text.
    holds : bool
        Whether they agree.
    """

    name: str
    stated: str
    found: str
    holds: bool


def check_claims(
    certificate: Certificate, X: ArrayLike | Rows, *, scan: bool = True
) -> tuple[Claim, ...]:
    """Recompute every claim of a certificate on the data it is about.

    Parameters
    ----------
    certificate : Certificate
        What is claimed.
    X : array-like or sparse matrix of shape (n_points, n_features)
        The data.
    scan : bool
        Whether to walk over all pairs. Without it the claims that need a walk, that of
        the distortion among them, are left out.

    Returns
    -------
    tuple of Claim
        In order of cost; after a claim that makes the others meaningless fails
        (other data, other shape), the rest is left out.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import NearIsometricProjection
    >>> from isoproj.certify import check_claims
    >>> X = np.random.default_rng(0).normal(size=(12, 5))
    >>> model = NearIsometricProjection(n_components=2).fit(X)
    >>> all(claim.holds for claim in check_claims(model.certificate_, X))
    True
    """
    rows = check_points(X)
    named = {"listed_pairs", "labels"}
    named = {name for name in named if getattr(certificate, name) is not None}
    fault = naming_fault(certificate.pair_kind, named)
    if fault:
        msg = f"a certificate must have {fault}."
        raise ClaimError(msg)
    claims = [_shape_claim(certificate, rows)]
    if claims[-1].holds:
        claims.append(_orthonormal_claim(certificate))
    if claims[-1].holds:
        claims.append(_fingerprint_claim(certificate, rows))
    if not claims[-1].holds:
        return tuple(claims)
    try:
        points, pairs = prepare_pairs(rows, certificate.pairs, rotate=False)
    except ValueError as error:
        none = Claim(
            name="pairs that count",
            stated=f"{certificate.n_pairs:,}",
            found=str(error),
            holds=False,
        )
        return (*claims, none)
    claims.append(_count_claim(certificate, pairs))
    if scan:
        claims.extend(_distortion_claims(certificate, points, pairs))
    is_sampled = certificate.pair_kind is PairKind.SAMPLED
    if scan and (is_sampled or certificate.sampled_share is not None):
        claims.append(_sampled_claim(certificate, points))
    claims.append(_lower_bound_claim(certificate, points, pairs))
    if scan and certificate.spectral_ratio is not None:
        claims.append(_spectral_claim(certificate, rows))
    if certificate.exclusion is not None:
        claims.append(_exclusion_claim(certificate.exclusion, points, pairs))
    if certificate.guarantee is not None:
        claims.extend(
            _guarantee_claims(certificate, certificate.guarantee, points, pairs)
        )
    return tuple(claims)


def verify(certificate: Certificate, X: ArrayLike | Rows) -> None:
    """Recompute every claim of a certificate; return if all hold.

    Parameters
    ----------
    certificate : Certificate
        What is claimed.
    X : array-like or sparse matrix of shape (n_points, n_features)
        The data it is claimed of.

    Raises
    ------
    ClaimError
        On the first claim that does not hold.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import NearIsometricProjection, verify
    >>> X = np.random.default_rng(0).normal(size=(12, 5))
    >>> model = NearIsometricProjection(n_components=2).fit(X)
    >>> verify(model.certificate_, X)
    """
    for claim in check_claims(certificate, X):
        if not claim.holds:
            msg = (
                f"{claim.name} does not hold: the certificate states {claim.stated}, "
                f"recomputation gives {claim.found}. Do not rely on it for this data."
            )
            raise ClaimError(msg)


def _shape_claim(certificate: Certificate, rows: Rows) -> Claim:
    stated = (certificate.n_points, certificate.n_features)
    return Claim(
        name="shape of the data",
        stated=f"{stated[0]} x {stated[1]}",
        found=f"{rows.shape[0]} x {rows.shape[1]}",
        holds=stated == tuple(rows.shape)
        and certificate.components.shape[1] == rows.shape[1]
        and certificate.components.shape[0] > 0,
    )


def _count_claim(certificate: Certificate, pairs: PairSet) -> Claim:
    stated = [certificate.n_pairs, certificate.n_close, certificate.n_identical]
    found = [pairs.n_pairs, pairs.n_close, pairs.n_identical]
    return Claim(
        name="pairs that count",
        stated=_counts(*stated),
        found=_counts(*found),
        # A list may be kept without its pairs of identical points.
        holds=stated[:2] == found[:2]
        and (certificate.pair_kind.is_listed or stated == found),
    )


def _counts(n_pairs: int, n_close: int, n_identical: int) -> str:
    text = f"{n_pairs:,}"
    text += f", {n_close:,} too close" if n_close else ""
    return text + (f", {n_identical:,} identical" if n_identical else "")


def _fingerprint_claim(certificate: Certificate, rows: Rows) -> Claim:
    found = data_fingerprint(rows)
    return Claim(
        name="fingerprint of the data",
        stated=certificate.fingerprint[:12],
        found=found[:12],
        holds=certificate.fingerprint == found,
    )


def _orthonormal_claim(certificate: Certificate) -> Claim:
    exact = certificate.components.astype(np.float64)
    error = stretch = math.inf
    if np.abs(exact).max() < 2.0:  # False for NaN too
        gram = exact @ exact.T
        error = float(np.abs(gram - np.eye(exact.shape[0])).max())
        # What stretches could seem to lose less than any projection must.
        stretch = float(np.linalg.eigvalsh(gram)[-1]) - 1.0
    allowed = 1e-10 if certificate.components.dtype == np.float64 else 1e-5
    rounding = 64.0 * _EPS * sum(exact.shape)
    return Claim(
        name="orthonormal rows",
        stated=f"off by at most {allowed:.0e}",
        found=f"off by {error:.1e}",
        holds=error <= allowed and stretch <= rounding,
    )


def _distortion_claims(
    certificate: Certificate, points: Points, pairs: PairSet
) -> list[Claim]:
    exact = certificate.components.astype(np.float64)
    n_worst = max(1, certificate.worst_pairs.shape[0])
    summary = find_worst(points, pairs, exact, n_worst=n_worst)
    distortion = _rounded_up(summary, *exact.shape)
    sampled = "sampled " if certificate.pair_kind is PairKind.SAMPLED else ""
    return [
        Claim(
            name=f"distortion over all {sampled}pairs",
            stated=f"{certificate.distortion:.9f}",
            found=f"{distortion:.9f}",
            holds=abs(certificate.distortion - distortion) <= _TOLERANCE,
        ),
        Claim(
            name="worst pairs",
            stated=_listing(certificate.worst_pairs),
            found=_listing(summary.worst_pairs),
            holds=_are_worst(certificate, points, pairs, summary),
        ),
    ]


def _are_worst(
    certificate: Certificate, points: Points, counting: PairSet, summary: WorstPairs
) -> bool:
    """Return whether the stated pairs lose what the worst ones lose, in order.

    Pairs that tie may come in another order on another machine.
    """
    pairs, stated = certificate.worst_pairs, certificate.worst_distortions
    if pairs.shape != summary.worst_pairs.shape or stated.shape != pairs.shape[:1]:
        return False
    if pairs.min() < 0 or pairs.max() >= points.n_points:
        return False
    if np.unique(np.sort(pairs, axis=1), axis=0).shape != pairs.shape:
        return False
    first = points.first_copy[pairs]
    if (first[:, 0] == first[:, 1]).any():
        return False
    if not counting.holds(pairs, points.n_points).all():
        return False
    exact = exact_losses(points, pairs, certificate.components.astype(np.float64))
    return bool(
        np.abs(stated - summary.worst_losses).max() <= _TOLERANCE
        and np.abs(stated - exact).max() <= _TOLERANCE
    )


def _sampled_claim(certificate: Certificate, points: Points) -> Claim:
    exact = certificate.components.astype(np.float64)
    stated = certificate.sampled_share
    # A loss at the very limit may round differently on another machine.
    least, found, most = (
        share_above(
            points, exact, certificate.distortion + slack, certificate.fingerprint
        )
        for slack in (_TOLERANCE, 0.0, -_TOLERANCE)
    )
    return Claim(
        name="share of all pairs above (sampled)",
        stated="nothing" if stated is None else f"at most {stated:.3e}",
        found=f"at most {found:.3e}",
        # Only a sample is judged by another.
        holds=certificate.pair_kind is PairKind.SAMPLED
        and stated is not None
        and least * (1.0 - 1e-6) <= stated <= most * (1.0 + 1e-6),
    )


def _spectral_claim(certificate: Certificate, rows: Rows) -> Claim:
    points, pairs = prepare_pairs(rows, certificate.pairs, rotate=True)
    stated = certificate.spectral_ratio or math.nan
    found = spectral_ratio(points, pairs, certificate.n_components)
    holds = math.isfinite(found) and abs(stated - found) <= _TOLERANCE * found
    return Claim(
        name="spectral ratio",
        stated=f"{stated:.9f}",
        found=f"{found:.9f}",
        holds=holds,
    )


def _listing(pairs: Indices) -> str:
    return ", ".join(f"{i}-{j}" for i, j in pairs[:3].tolist())


def _lower_bound_claim(
    certificate: Certificate, points: Points, counting: PairSet
) -> Claim:
    stated = f"{certificate.lower_bound:.9f}"
    pairs, weights = certificate.weighted_pairs, certificate.weights
    fault = _weights_fault(counting, pairs, weights, points)
    if not fault and abs(math.fsum(weights) - 1.0) > _TOLERANCE:
        fault = f"weights that sum to {math.fsum(weights):.9f}"
    if fault:
        return Claim(name="lower bound", stated=stated, found=fault, holds=False)
    found = lower_bound(
        points,
        certificate.weighted_pairs,
        certificate.weights,
        certificate.n_components,
    )
    return Claim(
        name="lower bound",
        stated=stated,
        found=f"{found:.9f}",
        holds=abs(certificate.lower_bound - found) <= _TOLERANCE,
    )


def _exclusion_claim(exclusion: Exclusion, points: Points, counting: PairSet) -> Claim:
    name = "too few dimensions"
    stated = f"{exclusion.n_components} for {exclusion.cap:.9f}"
    pairs, weights = exclusion.excluding_pairs, exclusion.excluding_weights
    fault = _weights_fault(counting, pairs, weights, points)
    if not fault and exclusion.n_components < 1:
        fault = "no dimensions"
    if fault:
        return Claim(name=name, stated=stated, found=fault, holds=False)
    found = lower_bound(points, pairs, weights, exclusion.n_components)
    return Claim(
        name=name,
        stated=stated,
        found=f"every projection to {exclusion.n_components} loses {found:.9f} or more",
        holds=found > exclusion.cap,
    )


def _guarantee_claims(
    certificate: Certificate, guarantee: Guarantee, points: Points, pairs: PairSet
) -> list[Claim]:
    cap = Claim(
        name="cap on every pair",
        stated=f"{guarantee.cap:.9f}",
        found=f"{certificate.distortion:.9f}",
        # Nothing loses more than all of its length.
        holds=certificate.distortion <= guarantee.cap <= 1.0,
    )
    stated = f"{guarantee.kept:.9f}, at most {guarantee.kept_bound:.9f}"
    what = f"{guarantee.objective.value} kept"
    fault = _weights_fault(pairs, guarantee.capped_pairs, guarantee.multipliers, points)
    if fault and guarantee.multipliers.size:
        return [cap, Claim(name=what, stated=stated, found=fault, holds=False)]
    found = certify_guarantee(
        points,
        pairs,
        certificate,
        guarantee.objective,
        guarantee.cap,
        guarantee.capped_pairs,
        guarantee.multipliers,
    ).guarantee
    assert found is not None
    holds = abs(found.kept - guarantee.kept) <= _TOLERANCE
    holds &= abs(found.kept_bound - guarantee.kept_bound) <= _TOLERANCE
    text = f"{found.kept:.9f}, at most {found.kept_bound:.9f}"
    return [cap, Claim(name=what, stated=stated, found=text, holds=holds)]


def _weights_fault(
    counting: PairSet, pairs: Indices, weights: Array, points: Points
) -> str:
    """Return why weights on pairs prove nothing, or an empty string."""
    if weights.shape != (pairs.shape[0],) or pairs.shape[1:] != (2,) or not pairs.size:
        return "weights that do not fit their pairs"
    if pairs.min() < 0 or pairs.max() >= points.n_points:
        return "pairs outside the data"
    with np.errstate(over="ignore"):
        mass = weights.sum()
    if not np.isfinite(mass) or weights.min() < 0.0:
        return "weights that are negative or not finite"
    first = points.first_copy[pairs]
    if (first[:, 0] == first[:, 1]).any():
        return "a pair of identical points"
    # Weight may rest only on pairs that count: others could be worse than all.
    if not counting.holds(pairs, points.n_points).all():
        return "weight on a pair that does not count"
    return ""

"""Recompute every claim of a certificate from the data."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from isoproj.exceptions import ClaimError
from isoproj.numerics.arrays import Rows, check_memory_limit, check_points
from isoproj.numerics.spectral import EPS, Indices
from isoproj.numerics.storage import MEMORY_LIMIT, Storage
from isoproj.pairs.losses import exact_losses
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairKind, PairSet, prepare_pairs
from isoproj.pairs.worst_pairs import WorstPairs, find_worst
from isoproj.proof.bounds import (
    certify_guarantee,
    data_fingerprint,
    lower_bound,
    rounded_up,
    spectral_ratio,
    weights_fault,
)
from isoproj.proof.certificate import Certificate, Exclusion, Guarantee, certificate_of
from isoproj.proof.confidence import (
    chance_of_more,
    drawn_losses,
    seed_of,
    share_of,
)
from isoproj.proof.file import naming_fault
from isoproj.proof.hull import HullProof, hull_bound

# Another machine may round differently, by far less than this.
_TOLERANCE = 1e-9
# A certificate lists few worst pairs; a search for very many would take hours.
_MOST_WORST = 1000
# A fresh sample that is rarer than this under the stated share contradicts it.
_RARE = 1e-9
# What a prefix states for itself; everything else is the same for all rows.
_OF_PREFIX = {
    "components",
    "weighted_pairs",
    "weights",
    "distortion",
    "lower_bound",
    "worst_pairs",
    "worst_distortions",
    "sampled_share",
    "guarantee",
    "exclusion",
    "hull",
    "prefixes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedClaim:
    """One claim of a certificate, as stated and as recomputed, both in words.

    ``over`` says which pairs a claim about pairs is about.
    """

    name: str
    stated: str
    found: str
    holds: bool
    over: str = ""

    @property
    def title(self) -> str:
        """The name, with the pairs that the claim is about."""
        return f"{self.name}{self._where}"

    @property
    def refusal(self) -> str:
        """The begin of a message that the claim does not hold."""
        return f"{self.name} does not hold{self._where}"

    @property
    def _where(self) -> str:
        return f" over {self.over}" if self.over else ""


def check_claims(
    model: Any,  # noqa: ANN401 - a certificate or a fitted estimator
    X: ArrayLike | Rows,
    *,
    scan: bool = True,
    memory_limit: float = MEMORY_LIMIT,
    names: Sequence[str] | None = None,
) -> tuple[CheckedClaim, ...]:
    """Recompute every claim of a certificate on its data, cheap claims first.

    Of a fitted estimator all that ``transform`` uses is a claim too. ``names`` are
    those of the features of the data, if the data have any.
    Without ``scan`` the claims that need a walk over all pairs are left out, such as
    the distortion. If shape, map or fingerprint do not fit, the other claims mean
    nothing and are left out.
    """
    check_memory_limit(memory_limit)
    storage = Storage(memory_limit)
    certificate = certificate_of(model)
    rows = check_points(X, storage)
    names = getattr(X, "columns", None) if names is None else names
    naming = ("listed_pairs", "labels")
    present = {name for name in naming if getattr(certificate, name) is not None}
    fault = naming_fault(certificate.pair_kind, present)
    if fault:
        msg = f"a certificate must have {fault}. Fit again."
        raise ClaimError(msg)
    claims = [_shape_claim(certificate, rows)]
    if claims[-1].holds:
        claims.append(_orthonormal_claim(certificate))
    if claims[-1].holds:
        claims.append(_fingerprint_claim(certificate, rows))
    if not claims[-1].holds:
        return tuple(claims)
    try:
        points, pairs = prepare_pairs(
            rows, certificate.pairs, rotate=False, storage=storage
        )
    except ValueError as error:
        none = CheckedClaim(
            name="pairs that count",
            stated=f"{certificate.n_pairs:,}",
            found=str(error),
            holds=False,
        )
        return (*claims, none)
    claims.append(_count_claim(certificate, pairs))
    claims += _pair_claims(certificate, points, pairs, scan=scan)
    for prefix in certificate.prefixes:
        claims += _prefix_claims(certificate, prefix, points, pairs, scan=scan)
    if scan and certificate.spectral_ratio is not None:
        claims.append(_spectral_claim(certificate, rows, storage))
    if model is not certificate:
        claims += _names_claims(model, names)
        claims += model._further_claims(rows)
    return tuple(claims)


def _of_prefix(prefix: Certificate, name: str) -> str:
    """Return the name of a claim about the first rows of a nested projection."""
    return f"first {prefix.n_components}: {name}"


def _prefix_claims(
    whole: Certificate,
    prefix: Certificate,
    points: Points,
    pairs: PairSet,
    *,
    scan: bool,
) -> list[CheckedClaim]:
    """Recompute all claims about the first rows of a nested projection."""
    first = _prefix_claim(whole, prefix)
    if not first.holds:
        return [first]
    claims = _pair_claims(prefix, points, pairs, scan=scan)
    return [first, *(replace(c, name=_of_prefix(prefix, c.name)) for c in claims)]


def _prefix_claim(whole: Certificate, prefix: Certificate) -> CheckedClaim:
    """Check that a prefix is the first rows of a projection, on the same data."""
    stated = {entry.name: getattr(prefix, entry.name) for entry in fields(prefix)}
    shared = set(stated) - _OF_PREFIX
    other = [
        name
        for name in sorted(shared)
        if not np.array_equal(stated[name], getattr(whole, name))
    ]
    k = prefix.n_components
    if not np.array_equal(prefix.components, whole.components[:k]):
        other.append("components")
    if not 0 < k < whole.n_components or prefix.prefixes:
        other.append("prefixes")
    return CheckedClaim(
        name=_of_prefix(prefix, "rows"),
        stated=f"the first {k} of {whole.n_components}",
        found=f"other {', '.join(other)}" if other else "the same",
        holds=not other,
    )


def _names_claims(
    model: Any,  # noqa: ANN401 - a fitted estimator
    names: Sequence[str] | None,
) -> list[CheckedClaim]:
    """Compare the names of the features, if model and data have names."""
    stated = getattr(model, "feature_names_in_", None)
    if stated is None or names is None:
        return []
    pairs = list(zip(map(str, stated), map(str, names), strict=False))
    other = [pair for pair in pairs if pair[0] != pair[1]]
    shown = other[0] if other else pairs[0]
    return [
        CheckedClaim(
            name="names of the features",
            stated=repr(shown[0]),
            found=repr(shown[1]),
            holds=not other and len(stated) == len(names),
        )
    ]


def _pair_claims(
    certificate: Certificate, points: Points, pairs: PairSet, *, scan: bool
) -> list[CheckedClaim]:
    """Recompute the claims about losses of pairs and the bounds."""
    claims = []
    if scan:
        claims += _distortion_claims(certificate, points, pairs)
        is_sampled = certificate.pair_kind is PairKind.SAMPLED
        if is_sampled or certificate.sampled_share is not None:
            claims += _sampled_claims(certificate, points)
    claims.append(_lower_bound_claim(certificate, points, pairs))
    if certificate.exclusion is not None:
        claims.append(_exclusion_claim(certificate.exclusion, points, pairs))
    if certificate.guarantee is not None:
        claims += _guarantee_claims(certificate, certificate.guarantee, points, pairs)
    # Claims about a sample of all pairs say so themselves.
    over = certificate.scope
    return [c if c.over else replace(c, over=over) for c in claims]


def verify(
    certificate: Certificate | Any,  # noqa: ANN401 - or a fitted estimator
    X: ArrayLike | Rows,
    *,
    memory_limit: float = MEMORY_LIMIT,
) -> None:
    """Recompute every claim of a certificate, and raise if one does not hold.

    Parameters
    ----------
    certificate : Certificate or fitted estimator
        The claims to check. Of an estimator, all that its ``transform`` and the exports
        use is checked too, such as the mean of ``GuaranteedPCA``.
    X : array-like or sparse matrix of shape (n_points, n_features)
        The data that the certificate is about. As for ``audit``, it need not fit in
        memory.
    memory_limit : float
        Bytes that arrays as large as ``X`` may take in memory. Larger arrays lie in
        scratch files.

    Raises
    ------
    ClaimError
        If a claim does not hold; the message is about the first such claim.
    ValueError
        If ``X`` is not a matrix of finite numbers.

    See Also
    --------
    isoproj.audit : Measure any linear map on the data.
    isoproj.Certificate : The claims, and the weights that prove them.

    Notes
    -----
    The claims are recomputed by code that knows no solver. The lower bound follows from
    the dual weights of the certificate by Ky Fan's theorem, or from the inradius of its
    hull, whose facets are computed and checked anew.

    References
    ----------
    K. Fan, "On a theorem of Weyl concerning eigenvalues of linear transformations I",
    Proceedings of the National Academy of Sciences 35, 1949.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import NearIsometricProjection, verify
    >>> X = np.random.default_rng(0).normal(size=(12, 5))
    >>> model = NearIsometricProjection(n_components=2, random_state=0).fit(X)
    >>> verify(model.certificate_, X)
    """
    for claim in check_claims(certificate, X, memory_limit=memory_limit):
        if not claim.holds:
            msg = (
                f"{claim.refusal}: the certificate states {claim.stated}, "
                f"recomputation gives {claim.found}. Do not rely on it for this data."
            )
            raise ClaimError(msg)


def _shape_claim(certificate: Certificate, rows: Rows) -> CheckedClaim:
    """Compare the shapes of data and components with those stated."""
    stated = (certificate.n_points, certificate.n_features)
    return CheckedClaim(
        name="shape of the data",
        stated=f"{stated[0]} x {stated[1]}",
        found=f"{rows.shape[0]} x {rows.shape[1]}",
        holds=stated == tuple(rows.shape)
        and certificate.components.shape[1] == rows.shape[1]
        and certificate.components.shape[0] > 0,
    )


def _count_claim(certificate: Certificate, pairs: PairSet) -> CheckedClaim:
    """Compare the numbers of pairs with those stated."""
    stated = [certificate.n_pairs, certificate.n_close, certificate.n_identical]
    found = [pairs.n_pairs, pairs.n_close, pairs.n_identical]
    return CheckedClaim(
        name="pairs that count",
        stated=_counts(*stated),
        found=_counts(*found),
        holds=stated == found,
    )


def _counts(n_pairs: int, n_close: int, n_identical: int) -> str:
    """Return the numbers of pairs in words."""
    text = f"{n_pairs:,}"
    text += f", {n_close:,} too close" if n_close else ""
    return text + (f", {n_identical:,} identical" if n_identical else "")


def _fingerprint_claim(certificate: Certificate, rows: Rows) -> CheckedClaim:
    """Compare the fingerprint of the data with the one stated."""
    found = data_fingerprint(rows)
    return CheckedClaim(
        name="fingerprint of the data",
        stated=certificate.fingerprint[:12],
        found=found[:12],
        holds=certificate.fingerprint == found,
    )


def _orthonormal_claim(certificate: Certificate) -> CheckedClaim:
    """Check that the components are orthonormal and stretch nothing."""
    exact = certificate.components.astype(np.float64)
    error = stretch = math.inf
    if np.abs(exact).max() < 2.0:  # False for NaN too
        gram = exact @ exact.T
        error = float(np.abs(gram - np.eye(exact.shape[0])).max())
        # A map that stretches could lose less than any projection can.
        stretch = float(np.linalg.eigvalsh(gram)[-1]) - 1.0
    allowed = 1e-10 if certificate.components.dtype == np.float64 else 1e-5
    rounding = 64.0 * EPS * sum(exact.shape)
    return CheckedClaim(
        name="orthonormal rows",
        stated=f"off by at most {allowed:.0e}",
        found=f"off by {error:.1e}",
        holds=error <= allowed and stretch <= rounding,
    )


def _distortion_claims(
    certificate: Certificate, points: Points, pairs: PairSet
) -> list[CheckedClaim]:
    """Find the worst pairs; compare them and their losses with those stated."""
    exact = certificate.components.astype(np.float64)
    n_stated = certificate.worst_pairs.shape[0]
    n_worst = max(1, n_stated) if n_stated <= _MOST_WORST else 1
    summary = find_worst(points, pairs, exact, n_worst=n_worst)
    distortion = rounded_up(summary, *exact.shape)
    too_many = f"{n_stated:,} pairs where at most {_MOST_WORST:,} are listed"
    return [
        CheckedClaim(
            name="distortion",
            stated=f"{certificate.distortion:.9f}",
            found=f"{distortion:.9f}",
            holds=abs(certificate.distortion - distortion) <= _TOLERANCE,
        ),
        CheckedClaim(
            name="worst pairs",
            stated=_listing(certificate.worst_pairs),
            found=_listing(summary.worst_pairs)
            if n_stated <= _MOST_WORST
            else too_many,
            holds=_are_worst(certificate, points, pairs, summary),
        ),
    ]


def _are_worst(
    certificate: Certificate, points: Points, counting: PairSet, summary: WorstPairs
) -> bool:
    """Return whether the stated pairs are worst pairs, with the losses stated.

    Pairs of equal loss may come in another order on another machine.
    """
    pairs, stated = certificate.worst_pairs, certificate.worst_distortions
    if pairs.shape != summary.worst_pairs.shape or stated.shape != pairs.shape[:1]:
        return False
    if pairs.min() < 0 or pairs.max() >= points.n_points:
        return False
    if np.unique(np.sort(pairs, axis=1), axis=0).shape != pairs.shape:
        return False
    if not points.are_distinct(pairs).all():
        return False
    if not counting.holds(pairs, points.n_points).all():
        return False
    exact = exact_losses(points, pairs, certificate.components.astype(np.float64))
    return bool(
        np.abs(stated - summary.worst_losses).max() <= _TOLERANCE
        and np.abs(stated - exact).max() <= _TOLERANCE
    )


def _sampled_claims(certificate: Certificate, points: Points) -> list[CheckedClaim]:
    """Check the stated share on the sample of its rule, and on one drawn now."""
    exact = certificate.components.astype(np.float64)
    stated, distortion = certificate.sampled_share, certificate.distortion
    losses = drawn_losses(points, exact, seed_of(certificate.fingerprint, exact))
    # A loss close to the distortion may round differently on another machine.
    least, found, most = (
        share_of(losses, distortion + slack) for slack in (_TOLERANCE, 0.0, -_TOLERANCE)
    )
    shown = "nothing" if stated is None else f"at most {stated:.3e}"
    # The claim is made only if the pairs are a sample.
    is_made = certificate.pair_kind is PairKind.SAMPLED and stated is not None
    total = points.n_points * (points.n_points - 1) // 2
    over = f"{losses.size:,} draws from {total:,} pairs"
    claims = [
        CheckedClaim(
            name="share of all pairs above (sampled)",
            stated=shown,
            found=f"at most {found:.3e}",
            holds=is_made
            and least * (1.0 - 1e-6) <= (stated or 0.0) <= most * (1.0 + 1e-6),
            over=f"{over} that data and map decide",
        )
    ]
    if is_made:
        # The maker may have tried maps until the draw was favourable; this draw is
        # the verifier's own.
        fresh = drawn_losses(points, exact, secrets.randbits(63))
        n_above = int((fresh > distortion + _TOLERANCE).sum())
        chance = chance_of_more(n_above, fresh.size, stated or 0.0)
        claims.append(
            CheckedClaim(
                name="share of all pairs above (sampled anew)",
                stated=shown,
                found=f"at most {share_of(fresh, distortion):.3e}",
                holds=chance >= _RARE,
                over=f"{over}, made for this check",
            )
        )
    return claims


def _spectral_claim(
    certificate: Certificate, rows: Rows, storage: Storage
) -> CheckedClaim:
    """Compute the spectral ratio again, and compare it with the one stated."""
    points, pairs = prepare_pairs(rows, certificate.pairs, rotate=True, storage=storage)
    stated = certificate.spectral_ratio or math.nan
    found = spectral_ratio(points, pairs, certificate.n_components)
    holds = math.isfinite(found) and abs(stated - found) <= _TOLERANCE * found
    return CheckedClaim(
        name="spectral ratio",
        stated=f"{stated:.9f}",
        found=f"{found:.9f}",
        holds=holds,
    )


def _listing(pairs: Indices) -> str:
    """Return the first three pairs in words."""
    return ", ".join(f"{i}-{j}" for i, j in pairs[:3].tolist())


def _lower_bound_claim(
    certificate: Certificate, points: Points, counting: PairSet
) -> CheckedClaim:
    """Compute the lower bound from the dual weights again."""
    stated = f"{certificate.lower_bound:.9f}"
    pairs, weights = certificate.weighted_pairs, certificate.weights
    fault = weights_fault(counting, pairs, weights, points)
    if not fault and abs(math.fsum(weights) - 1.0) > _TOLERANCE:
        fault = f"weights that sum to {math.fsum(weights):.9f}"
    if fault:
        return CheckedClaim(name="lower bound", stated=stated, found=fault, holds=False)
    found = lower_bound(
        points,
        certificate.weighted_pairs,
        certificate.weights,
        certificate.n_components,
    )
    if certificate.hull is not None:
        hull, fault = _hull_bound(certificate, certificate.hull, counting, points)
        if fault:
            return CheckedClaim(
                name="lower bound", stated=stated, found=fault, holds=False
            )
        found = max(found, hull)
    crossing = certificate.lower_bound > certificate.distortion
    return CheckedClaim(
        name="lower bound",
        stated=f"{stated}, above the distortion" if crossing else stated,
        found=f"{found:.9f}",
        holds=abs(certificate.lower_bound - found) <= _TOLERANCE and not crossing,
    )


def _hull_bound(
    certificate: Certificate, hull: HullProof, counting: PairSet, points: Points
) -> tuple[float, str]:
    """Compute the bound of the hull again, and return why it proves none, or ""."""
    axes, pairs = hull.hull_axes, hull.hull_pairs
    if axes.shape != (certificate.n_components + 1, certificate.n_features):
        return 0.0, "a subspace of another number of dimensions"
    fault = weights_fault(counting, pairs, np.ones(pairs.shape[0]), points)
    if fault:
        return 0.0, f"a hull with {fault}"
    found = hull_bound(points, axes, pairs)
    if not abs(found - hull.bound) <= _TOLERANCE:
        return 0.0, f"a hull that proves {found:.9f}"
    return found, ""


def _exclusion_claim(
    exclusion: Exclusion, points: Points, counting: PairSet
) -> CheckedClaim:
    """Check that the weights exclude the stated number of dimensions."""
    name = "too few dimensions"
    stated = f"{exclusion.n_components} for {exclusion.cap:.9f}"
    pairs, weights = exclusion.excluding_pairs, exclusion.excluding_weights
    fault = weights_fault(counting, pairs, weights, points)
    if not fault and exclusion.n_components < 1:
        fault = "no dimensions"
    if fault:
        return CheckedClaim(name=name, stated=stated, found=fault, holds=False)
    found = lower_bound(points, pairs, weights, exclusion.n_components)
    return CheckedClaim(
        name=name,
        stated=stated,
        found=f"every projection to {exclusion.n_components} loses {found:.9f} or more",
        holds=found > exclusion.cap,
    )


def _guarantee_claims(
    certificate: Certificate, guarantee: Guarantee, points: Points, pairs: PairSet
) -> list[CheckedClaim]:
    """Check the cap, and compute the share kept and its bound again."""
    cap = CheckedClaim(
        name="cap on every pair",
        stated=f"{guarantee.cap:.9f}",
        found=f"{certificate.distortion:.9f}",
        # No pair loses more than its whole length.
        holds=certificate.distortion <= guarantee.cap <= 1.0,
    )
    stated = f"{guarantee.kept:.9f}, at most {guarantee.kept_bound:.9f}"
    what = f"{guarantee.objective.value} kept"
    fault = weights_fault(pairs, guarantee.capped_pairs, guarantee.multipliers, points)
    if fault and guarantee.multipliers.size:
        return [cap, CheckedClaim(name=what, stated=stated, found=fault, holds=False)]
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
    holds &= guarantee.kept <= guarantee.kept_bound
    text = f"{found.kept:.9f}, at most {found.kept_bound:.9f}"
    return [cap, CheckedClaim(name=what, stated=stated, found=text, holds=holds)]

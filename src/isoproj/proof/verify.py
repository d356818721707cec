"""Recompute every claim of a certificate from the data."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike

from isoproj.exceptions import ClaimError
from isoproj.numerics.arrays import Rows, check_memory_limit, check_points
from isoproj.numerics.rounding import directionless
from isoproj.numerics.spectral import EPS, Fitted, Indices
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
from isoproj.proof.file import OF_PREFIX, naming_fault
from isoproj.proof.hull import hull_bound

# Another machine may round differently, by far less than this.
_TOLERANCE = 1e-9
# A certificate lists few worst pairs; a search for very many would take hours.
_MOST_WORST = 1000


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """One claim of a certificate, as stated and as recomputed, both in words.

    ``over`` says which pairs a claim about pairs is about.
    """

    name: str
    stated: str
    found: str
    _: KW_ONLY
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
    model: Fitted,
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
    claims: list[CheckedClaim] = []
    for check in (_shape_claim, _orthonormal_claim, _fingerprint_claim):
        claims.append(check(certificate, rows))
        if not claims[-1].holds:
            return tuple(claims)
    try:
        points, pairs = prepare_pairs(
            rows, certificate.pairs, rotate=False, storage=storage
        )
    except ValueError as error:
        stated = f"{certificate.n_pairs:,}"
        none = CheckedClaim("pairs that count", stated, str(error), holds=False)
        return (*claims, none)
    both = certificate, pairs
    stated, found = (_counts(each, certificate.pairs.things) for each in both)
    claims.append(
        CheckedClaim("pairs that count", stated, found, holds=stated == found)
    )
    claims += _pair_claims(certificate, points, pairs, scan=scan)
    for prefix in certificate.prefixes:
        claims += _prefix_claims(certificate, prefix, points, pairs, scan=scan)
    if scan and certificate.spectral_ratio is not None:
        claims.append(_spectral_claim(certificate, rows, storage))
    if model is not certificate:
        claims += _names_claims(model, names)
        claims += model._further_claims(rows)
    return tuple(claims)


def _prefix_claims(
    whole: Certificate,
    prefix: Certificate,
    points: Points,
    pairs: PairSet,
    *,
    scan: bool,
) -> list[CheckedClaim]:
    """Check that a prefix is the first rows, and recompute all claims about them."""
    k, own = prefix.n_components, {*OF_PREFIX, "components", "prefixes"}
    other = [
        name
        for name in sorted({entry.name for entry in fields(prefix)} - own)
        if not np.array_equal(getattr(prefix, name), getattr(whole, name))
    ]
    if not np.array_equal(prefix.components, whole.components[:k]):
        other.append("components")
    if not 0 < k < whole.n_components or prefix.prefixes:
        other.append("prefixes")
    found = f"other {', '.join(other)}" if other else "the same"
    stated = f"the first {k} of {whole.n_components}"
    claims = [CheckedClaim("rows", stated, found, holds=not other)]
    if not other:
        claims += _pair_claims(prefix, points, pairs, scan=scan)
    return [replace(c, name=f"first {k}: {c.name}") for c in claims]


def _names_claims(model: Fitted, names: Sequence[str] | None) -> list[CheckedClaim]:
    """Compare the names of the features, if model and data have names."""
    stated = getattr(model, "feature_names_in_", None)
    if stated is None or names is None:
        return []
    pairs = list(zip(map(str, stated), map(str, names), strict=False))
    other = [pair for pair in pairs if pair[0] != pair[1]]
    shown = other[0] if other else pairs[0]
    holds = not other and len(stated) == len(names)
    return [
        CheckedClaim("names of the features", *map(repr, shown), holds=holds),
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
    certificate: Certificate | Fitted,
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
    n, d = certificate.n_points, certificate.n_features
    k, width = certificate.components.shape
    return CheckedClaim(
        "shape of the data",
        f"{n} x {d}",
        f"{rows.shape[0]} x {rows.shape[1]}",
        holds=(n, d) == tuple(rows.shape) and width == d and k > 0,
    )


def _counts(pairs: Certificate | PairSet, things: str) -> str:
    """Return the numbers of pairs or rows in words."""
    none = directionless(things)
    left_out = {"too close": pairs.n_close, none: pairs.n_identical}
    words = [f"{number:,} {why}" for why, number in left_out.items() if number]
    return ", ".join([f"{pairs.n_pairs:,}", *words])


def _fingerprint_claim(certificate: Certificate, rows: Rows) -> CheckedClaim:
    """Compare the fingerprint of the data with the one stated."""
    stated, found = certificate.fingerprint, data_fingerprint(rows)
    name = "fingerprint of the data"
    return CheckedClaim(name, stated[:12], found[:12], holds=stated == found)


def _orthonormal_claim(certificate: Certificate, _: Rows) -> CheckedClaim:
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
        "orthonormal rows",
        f"off by at most {allowed:.0e}",
        f"off by {error:.1e}",
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
    listed = _listing(summary.worst_pairs)
    if n_stated > _MOST_WORST:
        listed = f"{n_stated:,} pairs where at most {_MOST_WORST:,} are listed"
    return [
        _number_claim("distortion", certificate.distortion, distortion),
        CheckedClaim(
            "worst pairs",
            _listing(certificate.worst_pairs),
            listed,
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
    is_twice = np.unique(np.sort(pairs, axis=1), axis=0).shape != pairs.shape
    if is_twice or weights_fault(counting, pairs, np.ones(len(pairs)), points):
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
            "share of all pairs above (sampled)",
            shown,
            f"at most {found:.3e}",
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
        # A fresh sample that is rarer than this under the stated share contradicts it.
        claims.append(
            CheckedClaim(
                "share of all pairs above (sampled anew)",
                shown,
                f"at most {share_of(fresh, distortion):.3e}",
                holds=chance >= 1e-9,
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
    return _number_claim("spectral ratio", stated, found, max(1.0, found))


def _number_claim(
    name: str, stated: float, found: float, scale: float = 1.0
) -> CheckedClaim:
    """Compare a number with the one stated, relative to a scale."""
    holds = math.isfinite(found) and abs(stated - found) <= _TOLERANCE * scale
    return CheckedClaim(name, f"{stated:.9f}", f"{found:.9f}", holds=holds)


def _listing(pairs: Indices) -> str:
    """Return the first three pairs in words."""
    return ", ".join(f"{i}-{j}" for i, j in pairs[:3].tolist())


def _lower_bound_claim(
    certificate: Certificate, points: Points, counting: PairSet
) -> CheckedClaim:
    """Compute the lower bound from its proof again."""
    lower = certificate.lower_bound
    found, fault = _proved_bound(certificate, counting, points)
    if fault:
        return CheckedClaim("lower bound", f"{lower:.9f}", fault, holds=False)
    claim = _number_claim("lower bound", lower, found)
    if lower <= certificate.distortion:
        return claim
    return replace(claim, stated=f"{claim.stated}, above the distortion", holds=False)


def _proved_bound(
    certificate: Certificate, counting: PairSet, points: Points
) -> tuple[float, str]:
    """Return the bound of weights and hull, and why they prove none, or ""."""
    pairs, weights = certificate.weighted_pairs, certificate.weights
    fault = weights_fault(counting, pairs, weights, points)
    if not fault and abs(math.fsum(weights) - 1.0) > _TOLERANCE:
        fault = f"weights that sum to {math.fsum(weights):.9f}"
    if fault:
        return 0.0, fault
    bound = lower_bound(points, pairs, weights, certificate.n_components)
    hull = certificate.hull
    if hull is None:
        return bound, ""
    axes, pairs = hull.hull_axes, hull.hull_pairs
    if axes.shape != (certificate.n_components + 1, certificate.n_features):
        return 0.0, "a subspace of another number of dimensions"
    fault = weights_fault(counting, pairs, np.ones(pairs.shape[0]), points)
    if fault:
        return 0.0, f"a hull with {fault}"
    found = hull_bound(points, axes, pairs)
    if not abs(found - hull.bound) <= _TOLERANCE:
        return 0.0, f"a hull that proves {found:.9f}"
    return max(bound, found), ""


def _exclusion_claim(
    exclusion: Exclusion, points: Points, counting: PairSet
) -> CheckedClaim:
    """Check that the weights exclude the stated number of dimensions."""
    name, k = "too few dimensions", exclusion.n_components
    stated = f"{k} for {exclusion.cap:.9f}"
    pairs, weights = exclusion.excluding_pairs, exclusion.excluding_weights
    fault = weights_fault(counting, pairs, weights, points)
    if not fault and k < 1:
        fault = "no dimensions"
    if fault:
        return CheckedClaim(name, stated, fault, holds=False)
    bound = lower_bound(points, pairs, weights, k)
    found = f"every projection to {k} loses {bound:.9f} or more"
    return CheckedClaim(name, stated, found, holds=bound > exclusion.cap)


def _guarantee_claims(
    certificate: Certificate, guarantee: Guarantee, points: Points, pairs: PairSet
) -> list[CheckedClaim]:
    """Check the cap, and compute the share kept and its bound again."""
    cap = CheckedClaim(
        "cap on every pair",
        f"{guarantee.cap:.9f}",
        f"{certificate.distortion:.9f}",
        # No pair loses more than its whole length.
        holds=certificate.distortion <= guarantee.cap <= 1.0,
    )
    stated = f"{guarantee.kept:.9f}, at most {guarantee.kept_bound:.9f}"
    what = f"{guarantee.objective.value} kept"
    proof = guarantee.capped_pairs, guarantee.multipliers
    fault = weights_fault(pairs, *proof, points)
    if fault and guarantee.multipliers.size:
        return [cap, CheckedClaim(what, stated, fault, holds=False)]
    found = certify_guarantee(
        points, pairs, certificate, guarantee.objective, guarantee.cap, *proof
    )
    holds = abs(found.kept - guarantee.kept) <= _TOLERANCE
    holds &= abs(found.kept_bound - guarantee.kept_bound) <= _TOLERANCE
    holds &= guarantee.kept <= guarantee.kept_bound
    text = f"{found.kept:.9f}, at most {found.kept_bound:.9f}"
    return [cap, CheckedClaim(what, stated, text, holds=holds)]

"""The certificate: a projection, its distortion, and the proof of a lower bound."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any, Literal

from numpy.typing import NDArray

from isoproj.numerics.container import (
    Header,
    Tensors,
    read_container,
    write_container,
)
from isoproj.numerics.rounding import at_least, at_most, counted, directionless, trimmed
from isoproj.numerics.shown import Shown
from isoproj.numerics.spectral import Array, Fitted, Indices, Map
from isoproj.pairs.rule import PairKind, PairRule
from isoproj.proof.file import OF_PREFIX, pack, prefix_ranks, unpack
from isoproj.proof.hull import HullProof
from isoproj.proof.objective import Objective

# What the maker of a certificate chose, in words; all pairs and directions need none.
_RULES = {
    PairKind.LISTED: "listed by the maker",
    PairKind.SAMPLED: "drawn by the maker",
    PairKind.LABELS: "of different classes by the maker's labels",
    PairKind.WITHIN: "of one class by the maker's labels",
    PairKind.QUERIES: "of a query and another row by the maker's marks",
}
# What is measured of pairs and rows.
_SIZES = {"pairs": "distances", "rows": "lengths"}
_SIZES["pairs and rows"] = "distances and lengths"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Exclusion(Shown):
    """The proof that a number of dimensions is too small for a cap.

    Parameters
    ----------
    cap : float
        Largest allowed loss of any pair, as a share of its squared length.
    n_components : int
        Every projection to this many dimensions, or fewer, loses more than the cap on
        some pair.
    excluding_pairs : ndarray of shape (m, 2)
        Pairs with a positive dual weight.
    excluding_weights : ndarray of shape (m,)
        Dual weights. They prove a lower bound above the cap at ``n_components``.

    See Also
    --------
    Certificate : Holds an exclusion when the number of dimensions was searched for.
    """

    cap: float
    n_components: int
    excluding_pairs: Indices
    excluding_weights: Array

    def __str__(self) -> str:
        return (
            f"No projection to {self.n_components} or fewer dimensions loses at most "
            f"{trimmed(at_least(100 * self.cap))}% of every pair."
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Guarantee(Shown):
    """The share of the objective that is kept under a cap, and its upper bound.

    Parameters
    ----------
    objective : Objective
        Variance, or mean squared length.
    cap : float
        No pair that counts loses more than this share of its squared length.
    kept : float
        Share of the objective that the projection keeps.
    kept_bound : float
        No projection to the same number of dimensions under the same cap keeps more.
    capped_pairs : ndarray of shape (m, 2)
        Pairs with a positive multiplier.
    multipliers : ndarray of shape (m,)
        Multipliers of the cap; they prove ``kept_bound``.

    See Also
    --------
    Certificate : Holds a guarantee when ``GuaranteedPCA`` made it.
    """

    objective: Objective
    cap: float
    kept: float
    kept_bound: float
    capped_pairs: Indices
    multipliers: Array

    @property
    def gap(self) -> float:
        """Largest relative gain that another projection under the cap could have."""
        return self.kept_bound / self.kept - 1.0 if self.kept > 0.0 else math.inf

    def __str__(self) -> str:
        return (
            f"It keeps {at_least(100 * self.kept, 2)}% of {self.objective.phrase}; no "
            "projection under which no pair loses more than "
            f"{trimmed(at_least(100 * self.cap))}% can keep more than "
            f"{at_most(100 * self.kept_bound, 2)}%."
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Certificate(Shown):
    """A projection, its exact distortion, and the proof of a lower bound.

    Parameters
    ----------
    components : ndarray of shape (k, n_features)
        Orthonormal rows, in the precision of the fitted model.
    weighted_pairs : ndarray of shape (m, 2)
        Pairs with a positive dual weight.
    weights : ndarray of shape (m,)
        Dual weights; they are nonnegative and sum to 1. They prove ``lower_bound``
        unless ``hull`` does.
    distortion : float
        Largest share of squared length that any pair loses.
    lower_bound : float
        No projection to k dimensions has a smaller distortion.
    worst_pairs : ndarray of shape (w, 2)
        The pairs that lose most, worst first.
    worst_distortions : ndarray of shape (w,)
        Share of squared length that these pairs lose.
    pair_kind : PairKind
        Which pairs count.
    listed_pairs : ndarray of shape (m, 2) or None
        The pairs that count, if they were listed, sampled, or are neighbours.
    n_pairs, n_identical : int
        Number of pairs that count, and of pairs of identical points, which do not.
    n_points, n_features : int
        Shape of the data.
    fingerprint : str
        SHA-256 of the data's values.
    spectral_ratio : float or None
        Upper bound on the ratio of the distortion of ``solver="dual_ascent"`` to the
        optimum, from the spectrum of all directions. None if it was not computed or is
        infinite.
    sampled_share : float or None
        If the pairs are a sample: with 95 % confidence at most this share of all pairs
        loses more than ``distortion``. None for other kinds of pairs.
    guarantee : Guarantee or None
        Share of the objective kept under a cap, for models of ``GuaranteedPCA``.
    exclusion : Exclusion or None
        Proof that fewer dimensions do not suffice, for fits with ``max_distortion``.
    labels : ndarray of shape (n_points,) or None
        Class of every row, if labels select the pairs.
    n_close : int
        Number of pairs of distinct points that are closer than ``min_distance``.
    min_distance : float
        Pairs closer than this do not count.
    include_norms : bool
        Whether every row counts as a direction, in addition to the pairs.
    hull : HullProof or None
        Proof of ``lower_bound`` by the hull of directions in a subspace, if it is
        stronger than that of the dual weights.
    prefixes : tuple of Certificate
        For a nested projection: the certificates of its first rows, ascending. Each
        has components that are the first rows of these, and is about the same data.

    See Also
    --------
    isoproj.verify : Recompute every claim of a certificate from the data.
    isoproj.audit : Measure any linear map on the data.

    References
    ----------
    K. Fan, "On a theorem of Weyl concerning eigenvalues of linear transformations I",
    Proceedings of the National Academy of Sciences 35, 1949: the theorem that the lower
    bound rests on.
    """

    components: Map
    weighted_pairs: Indices
    weights: Array
    distortion: float
    lower_bound: float
    worst_pairs: Indices
    worst_distortions: Array
    pair_kind: PairKind
    listed_pairs: Indices | None
    n_pairs: int
    n_identical: int
    n_points: int
    n_features: int
    fingerprint: str
    spectral_ratio: float | None = None
    sampled_share: float | None = None
    guarantee: Guarantee | None = None
    exclusion: Exclusion | None = None
    labels: Indices | None = None
    n_close: int = 0
    min_distance: float = 0.0
    include_norms: bool = False
    hull: HullProof | None = None
    prefixes: tuple[Certificate, ...] = ()

    @property
    def by_dimension(self) -> dict[int, Certificate]:
        """The certificates of all prefixes and of all rows, by number of rows."""
        return {part.n_components: part for part in (*self.prefixes, self)}

    @property
    def n_components(self) -> int:
        """Target dimension."""
        return int(self.components.shape[0])

    @property
    def proof(self) -> Literal["fantope", "hull"]:
        """What ``lower_bound`` rests on: ``"fantope"`` (dual weights) or ``"hull"``."""
        return "fantope" if self.hull is None else "hull"

    @property
    def optimality_gap(self) -> float:
        """Largest relative amount by which the distortion can exceed the optimum."""
        if self.distortion <= 1e-9:
            return 0.0
        if self.lower_bound <= 0.0:
            return math.inf
        return self.distortion / self.lower_bound - 1.0

    @property
    def scope(self) -> str:
        """Which pairs the claims are about: how many of how many, and by which rule."""
        n, kind, what = self.n_points, self.pair_kind, self.pairs.things
        total = n * (n - 1) // 2 * ("pairs" in what) + n * ("rows" in what)
        rules = [_RULES[kind]] if kind in _RULES else []
        if self.min_distance > 0.0:
            rules.append(f"at least {self.pairs.least} apart")
        if self.n_pairs == total and not rules:
            return f"all {total:,} {what}"
        rule = "; ".join(rules or [f"all that are not {directionless(what)}"])
        return f"{self.n_pairs:,} of {total:,} {what} ({rule})"

    @property
    def sampled_words(self) -> str:
        """What a sample says of all pairs, with its confidence; empty without one."""
        if self.pair_kind is not PairKind.SAMPLED:
            return ""
        share = 1.0 if self.sampled_share is None else self.sampled_share
        return (
            f"sampled: of all {self.pairs.things}, with 95 % confidence, at most "
            f"{at_most(100 * share)}% lose more"
        )

    @property
    def pairs(self) -> PairRule:
        """The pairs that count; ``audit`` and the estimators accept this object."""
        listed = self.listed_pairs
        return PairRule(
            self.pair_kind.value if listed is None else listed,
            labels=self.labels,
            min_distance=self.min_distance,
            include_norms=self.include_norms,
        )

    def __str__(self) -> str:
        # Percentages are rounded so that the statement remains true.
        what, rest = _SIZES[self.pairs.things], ""
        if self.pair_kind is PairKind.SAMPLED:
            what, rest = f"sampled {what}", f" {self.sampled_words.capitalize()}."
        subject = f"Every one of {self.n_pairs:,} {what}"
        if self.n_pairs == 1:
            one = what.replace("s and ", " or ").removesuffix("s")
            subject = f"The only {one} that counts"
        sentence = (
            f"{subject} keeps at least {at_least(100 * (1.0 - self.distortion), 2)}% "
            f"of its squared length in {counted(self.n_components, 'dimension')}; no "
            "projection can guarantee more than "
            f"{at_most(100 * (1.0 - self.lower_bound), 2)}%.{rest}"
        )
        further = [str(part) for part in (self.guarantee, self.exclusion) if part]
        return " ".join([sentence, *further, *map(_prefix_sentence, self.prefixes)])

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the certificate as a JSON-able dict and named arrays."""
        entries, arrays = pack(self)
        if self.prefixes:
            entries["prefixes"] = []
        for prefix in self.prefixes:
            k = prefix.n_components
            stated, own = pack(prefix, OF_PREFIX)
            entries["prefixes"].append({"n_components": k, **stated})
            arrays |= {f"first_{k}_{name}": array for name, array in own.items()}
        return entries, arrays

    @classmethod
    def from_parts(cls, entries: Header, arrays: Tensors) -> Certificate:
        """Return the certificate that ``parts`` took apart; else raise FormatError."""
        whole = cls(**_unpacked(entries, arrays))
        stated = entries.get("prefixes")
        ks = [] if stated is None else prefix_ranks(stated, whole.n_components)
        prefixes = []
        for k, inner in zip(ks, stated or (), strict=True):
            first = f"first_{k}_"
            own = {
                name.removeprefix(first): array
                for name, array in arrays.items()
                if name.startswith(first)
            }
            values = {"spectral_ratio": None, **_unpacked(inner, own, OF_PREFIX)}
            prefix = replace(whole, components=whole.components[:k], **values)
            prefixes.append(prefix)
        return replace(whole, prefixes=tuple(prefixes))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file.

        Parameters
        ----------
        path : path-like
            Name of the file, by convention ``*.isoproj``.
        """
        scalars, tensors = self.parts()
        write_container(path, {"certificate": scalars}, tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate from its own file or from a model file.

        Parameters
        ----------
        path : path-like
            Name of the file.

        Returns
        -------
        Certificate
            The claims of the file. ``verify`` recomputes them from the data.

        Raises
        ------
        FormatError
            If the file is not an isoproj file, or was changed after it was written.
        """
        header, tensors = read_container(path)
        return cls.from_parts(header.get("certificate", {}), tensors)


def _unpacked(
    entries: Header, arrays: Tensors, only: set[str] | None = None
) -> dict[str, Any]:
    """Return the stored fields of a certificate, and the parts that it may have."""
    found = unpack(Certificate, "certificate", entries, arrays, only)
    parts = {"guarantee": Guarantee, "exclusion": Exclusion, "hull": HullProof}
    for name, kind in parts.items():
        stated = entries.get(name)
        found[name] = (
            None if stated is None else kind(**unpack(kind, name, stated, arrays))
        )
    return found


def _prefix_sentence(prefix: Certificate) -> str:
    """Return what the first rows of a nested projection keep, in words."""
    k = prefix.n_components
    return (
        f"Its first {counted(k, 'dimension')} keep{'s' * (k == 1)} at least "
        f"{at_least(100 * (1.0 - prefix.distortion), 2)}%, of at most "
        f"{at_most(100 * (1.0 - prefix.lower_bound), 2)}%."
    )


def certificate_of(model: Fitted) -> Certificate:
    """Return the certificate of a fitted estimator, or the certificate given."""
    certificate = getattr(model, "certificate_", model)
    if not isinstance(certificate, Certificate):
        msg = (
            "model must be a certificate, or a fitted estimator with a certificate; "
            f"got {type(model).__name__}. Fit a NearIsometricProjection first."
        )
        raise ValueError(msg)  # noqa: TRY004 - scikit-learn's convention
    return certificate

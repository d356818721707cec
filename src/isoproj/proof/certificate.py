"""A projection with what it loses and the proof of what any other must lose."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.numerics.container import Header, Tensors, read_container, write_container
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.rule import LABELLED, PairKind, PairRule
from isoproj.proof.objective import Objective

__all__ = ["Certificate", "Exclusion", "Guarantee"]

_SCALARS: dict[str, tuple[type, ...]] = {
    "distortion": (float,),
    "lower_bound": (float,),
    "n_pairs": (int,),
    "n_identical": (int,),
    "n_points": (int,),
    "n_features": (int,),
    "fingerprint": (str,),
    "spectral_ratio": (float, type(None)),
    "sampled_share": (float, type(None)),
}
# Files written before these were known have none of them.
_LATER: dict[str, tuple[type, int | float | bool]] = {
    "n_close": (int, 0),
    "min_distance": (float, 0.0),
    "include_norms": (bool, False),
}
_TENSORS: dict[str, tuple[tuple[str, ...], int]] = {
    "components": (("f8", "f4"), 2),
    "weighted_pairs": (("i8",), 2),
    "weights": (("f8",), 1),
    "worst_pairs": (("i8",), 2),
    "worst_distortions": (("f8",), 1),
    "listed_pairs": (("i8",), 2),
    "labels": (("i8",), 1),
}
_OPTIONAL = ("listed_pairs", "labels")

_GUARANTEE_SCALARS = ("cap", "kept", "kept_bound")
_GUARANTEE_TENSORS: dict[str, tuple[tuple[str, ...], int]] = {
    "capped_pairs": (("i8",), 2),
    "multipliers": (("f8",), 1),
}
_EXCLUSION_TENSORS: dict[str, tuple[tuple[str, ...], int]] = {
    "excluding_pairs": (("i8",), 2),
    "excluding_weights": (("f8",), 1),
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Exclusion:
    """The proof that some number of dimensions is too small for a cap.

    Parameters
    ----------
    cap : float
        What no pair should lose more than.
    n_components : int
        Every projection to as many dimensions, or fewer, loses more of some pair.
    excluding_pairs : ndarray of shape (m, 2)
        Pairs with a positive dual weight.
    excluding_weights : ndarray of shape (m,)
        The weights, whose bound at ``n_components`` is above the cap.
    """

    cap: float
    n_components: int
    excluding_pairs: Indices
    excluding_weights: Array

    def __str__(self) -> str:
        return (
            f"No projection to {self.n_components} or fewer dimensions loses at most "
            f"{100 * self.cap:.4g}% of every pair."
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Guarantee:
    """How much is kept on the whole under a cap, and the most that can be.

    Parameters
    ----------
    objective : Objective
        What is kept: variance, or squared length on average.
    cap : float
        No pair that counts loses more of its squared length.
    kept : float
        Share of the objective that the projection keeps.
    kept_bound : float
        No projection to as many dimensions under the same cap keeps more.
    capped_pairs : ndarray of shape (m, 2)
        Pairs with a positive multiplier.
    multipliers : ndarray of shape (m,)
        What proves ``kept_bound``.
    """

    objective: Objective
    cap: float
    kept: float
    kept_bound: float
    capped_pairs: Indices
    multipliers: Array

    @property
    def gap(self) -> float:
        """How much more, relatively, another projection under the cap might keep."""
        return self.kept_bound / self.kept - 1.0 if self.kept > 0.0 else math.inf

    def __str__(self) -> str:
        what = {
            Objective.VARIANCE: "the variance",
            Objective.DISTORTION: "squared length on average",
        }[self.objective]
        return (
            f"It keeps {_rounded_down(self.kept):.2f}% of {what}; no projection under "
            f"which no pair loses more than {100 * self.cap:.4g}% can keep more than "
            f"{_rounded_up(self.kept_bound):.2f}%."
        )


def _rounded_down(share: float) -> float:
    """Return a share in per cent, rounded down, but for rounding itself."""
    return max(0, math.floor(share * 1e4 + 1e-5)) / 100


def _rounded_up(share: float) -> float:
    """Return a share in per cent, rounded up, but for rounding itself."""
    return math.ceil(share * 1e4 - 1e-5) / 100


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Certificate:
    """A projection, what it loses, and the proof of what any other must lose.

    Parameters
    ----------
    components : ndarray of shape (k, n_features)
        Orthonormal rows, in the precision that is shipped.
    weighted_pairs : ndarray of shape (m, 2)
        Pairs with a positive dual weight.
    weights : ndarray of shape (m,)
        The weights, on the simplex.
    distortion : float
        No pair that counts loses more of its squared length.
    lower_bound : float
        No projection to k dimensions has a smaller distortion.
    worst_pairs : ndarray of shape (w, 2)
        The pairs that lose most, worst first.
    worst_distortions : ndarray of shape (w,)
        What they lose.
    pair_kind : PairKind
        Which pairs count.
    listed_pairs : ndarray of shape (m, 2) or None
        The pairs of rows themselves when they were listed, or are neighbours.
    n_pairs, n_identical : int
        Pairs that count, and pairs of identical points left out.
    n_points, n_features : int
        Shape of the data.
    fingerprint : str
        SHA-256 of the data's values.
    spectral_ratio : float or None
        Bound on ``distortion / p*`` of the paper's algorithm at its optimum, from the
        spectrum of the unweighted directions; None where it was not computed or is
        infinite.
    sampled_share : float or None
        Where the pairs are a sample: with 95 % confidence no more than this share of
        all pairs loses more than ``distortion``, from a fresh sample; else None.
    guarantee : Guarantee or None
        What is kept on the whole under a cap, where that was the question.
    exclusion : Exclusion or None
        Why fewer dimensions cannot do, where their number was the question.
    labels : ndarray of shape (n_points,) or None
        Classes of the rows where they name the pairs.
    n_close : int
        Pairs of distinct points left out because they are closer than
        ``min_distance``.
    min_distance : float
        Pairs closer than this do not count.
    include_norms : bool
        Whether the rows themselves count as directions too.
    """

    components: NDArray[np.float64] | NDArray[np.float32]
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

    @property
    def n_components(self) -> int:
        """Target dimension."""
        return int(self.components.shape[0])

    @property
    def optimality_gap(self) -> float:
        """How far, relatively, the distortion may be above the best possible."""
        if self.distortion <= 1e-9:
            return 0.0
        if self.lower_bound <= 0.0:
            return math.inf
        return self.distortion / self.lower_bound - 1.0

    @property
    def pairs(self) -> PairRule:
        """The pairs that count, in a form the public functions take."""
        listed = self.listed_pairs
        return PairRule(
            self.pair_kind.value if listed is None else listed,
            labels=self.labels,
            min_distance=self.min_distance,
            include_norms=self.include_norms,
        )

    def __str__(self) -> str:
        # Rounded outwards: what is promised must hold.
        if self.pair_kind is PairKind.SAMPLED:
            share = 100.0 if self.sampled_share is None else 100 * self.sampled_share
            what = "sampled distances"
            rest = (
                f" Sampled: of all pairs, with 95 % confidence, at most {share:.2g}% "
                "keep less."
            )
        else:
            what = "distances and lengths" if self.include_norms else "distances"
            rest = ""
        sentence = (
            f"Every one of {self.n_pairs:,} {what} keeps at least "
            f"{_rounded_down(1.0 - self.distortion):.2f}% of its squared length in "
            f"{self.n_components} dimensions; no projection can guarantee more than "
            f"{_rounded_up(1.0 - self.lower_bound):.2f}%.{rest}"
        )
        further = [str(part) for part in (self.guarantee, self.exclusion) if part]
        return " ".join([sentence, *further])

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the certificate as a JSON-able dict and named arrays."""
        scalars = {name: getattr(self, name) for name in (*_SCALARS, *_LATER)}
        tensors = {
            name: getattr(self, name)
            for name in _TENSORS
            if getattr(self, name) is not None
        }
        scalars["pair_kind"] = self.pair_kind.value
        if self.guarantee is not None:
            scalars["guarantee"] = {
                "objective": self.guarantee.objective.value,
                **{name: getattr(self.guarantee, name) for name in _GUARANTEE_SCALARS},
            }
            for name in _GUARANTEE_TENSORS:
                tensors[name] = getattr(self.guarantee, name)
        if self.exclusion is not None:
            scalars["exclusion"] = {
                "cap": self.exclusion.cap,
                "n_components": self.exclusion.n_components,
            }
            for name in _EXCLUSION_TENSORS:
                tensors[name] = getattr(self.exclusion, name)
        return scalars, tensors

    @classmethod
    def from_parts(cls, scalars: Header, tensors: Tensors) -> Certificate:
        """Return the certificate that ``parts`` took apart.

        Raises
        ------
        FormatError
            If a part is missing or of another type.
        """
        fault = (
            _fault_of(scalars, tensors)
            or _guarantee_fault(scalars.get("guarantee"), tensors)
            or _exclusion_fault(scalars.get("exclusion"), tensors)
        )
        if fault:
            msg = f"a certificate must have {fault}. Write one with save()."
            raise FormatError(msg)
        arrays: dict[str, Any] = {name: tensors.get(name) for name in _TENSORS}
        numbers: dict[str, Any] = {name: scalars.get(name) for name in _SCALARS}
        return cls(
            **numbers,
            **{name: scalars.get(name, usual) for name, (_, usual) in _LATER.items()},
            **arrays,
            pair_kind=PairKind(scalars["pair_kind"]),
            guarantee=_guarantee_of(scalars.get("guarantee"), tensors),
            exclusion=_exclusion_of(scalars.get("exclusion"), tensors),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file that anyone can verify.

        Parameters
        ----------
        path : path-like
            Where to; by convention ``*.isoproj``.
        """
        scalars, tensors = self.parts()
        write_container(path, {"certificate": scalars}, tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read the certificate of a file, be it bare or a whole model.

        Parameters
        ----------
        path : path-like
            Where from.

        Returns
        -------
        Certificate
            As stated in the file; ``verify`` recomputes what it states.

        Raises
        ------
        FormatError
            If the file is not one of ours or was changed.
        """
        header, tensors = read_container(path)
        return cls.from_parts(header.get("certificate", {}), tensors)


def _fault_of(scalars: Header, tensors: Tensors) -> str:
    """Return what a stored certificate lacks, or an empty string."""
    if not isinstance(scalars, Mapping):
        return "a table of its numbers"
    for name, kinds in _SCALARS.items():
        if not isinstance(scalars.get(name), kinds):
            return f"the entry {name!r}"
    for name, (later, usual) in _LATER.items():
        if type(scalars.get(name, usual)) is not later:
            return f"the entry {name!r} of another type"
    kind = scalars.get("pair_kind")
    if not isinstance(kind, str) or kind not in set(PairKind):
        return "a known 'pair_kind'"
    fault = _tensor_fault(_TENSORS, tensors)
    if fault:
        return fault
    return naming_fault(PairKind(kind), set(tensors))


def naming_fault(kind: PairKind, present: set[str]) -> str:
    """Return which array that names pairs is missing or too many, or nothing."""
    if ("listed_pairs" in present) != kind.is_listed:
        return "'listed_pairs' exactly when pairs are listed"
    if ("labels" in present) != (kind in LABELLED):
        return "'labels' exactly when labels name the pairs"
    return ""


def _tensor_fault(
    wanted: Mapping[str, tuple[tuple[str, ...], int]], tensors: Tensors
) -> str:
    """Return which array is missing or of another type, or an empty string."""
    for name, (kinds, ndim) in wanted.items():
        tensor = tensors.get(name)
        if tensor is None:
            if name not in _OPTIONAL:
                return f"the array {name!r}"
        elif tensor.dtype.str[1:] not in kinds or tensor.ndim != ndim:
            return f"{name!r} of type {kinds[0]} with {ndim} axes"
        elif name.endswith("_pairs") and tensor.shape[1] != 2:
            return f"two columns in {name!r}"
    return ""


def _guarantee_fault(stated: object, tensors: Tensors) -> str:
    """Return what a stored guarantee lacks, or an empty string."""
    if stated is None:
        return ""
    if not isinstance(stated, Mapping):
        return "a table under 'guarantee'"
    objective = stated.get("objective")
    if not isinstance(objective, str) or objective not in set(Objective):
        return "a known 'objective'"
    for name in _GUARANTEE_SCALARS:
        if not isinstance(stated.get(name), float):
            return f"the entry {name!r}"
    return _tensor_fault(_GUARANTEE_TENSORS, tensors)


def _guarantee_of(
    stated: Mapping[str, Any] | None, tensors: Tensors
) -> Guarantee | None:
    if stated is None:
        return None
    arrays: dict[str, Any] = {name: tensors[name] for name in _GUARANTEE_TENSORS}
    return Guarantee(
        objective=Objective(stated["objective"]),
        **{name: stated[name] for name in _GUARANTEE_SCALARS},
        **arrays,
    )


def _exclusion_fault(stated: object, tensors: Tensors) -> str:
    """Return what a stored exclusion lacks, or an empty string."""
    if stated is None:
        return ""
    if not isinstance(stated, Mapping):
        return "a table under 'exclusion'"
    if not isinstance(stated.get("cap"), float):
        return "the entry 'cap'"
    if not isinstance(stated.get("n_components"), int):
        return "the entry 'n_components'"
    return _tensor_fault(_EXCLUSION_TENSORS, tensors)


def _exclusion_of(
    stated: Mapping[str, Any] | None, tensors: Tensors
) -> Exclusion | None:
    if stated is None:
        return None
    arrays: dict[str, Any] = {name: tensors[name] for name in _EXCLUSION_TENSORS}
    return Exclusion(cap=stated["cap"], n_components=stated["n_components"], **arrays)

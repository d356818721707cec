"""A projection with what it loses and the proof of what any other must lose."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj._container import Header, Tensors, read_container, write_container
from isoproj._spectral import Array, Indices
from isoproj.exceptions import FormatError
from isoproj.pairs import PairKind

__all__ = ["Certificate"]

_SCALARS: dict[str, tuple[type, ...]] = {
    "distortion": (float,),
    "lower_bound": (float,),
    "n_pairs": (int,),
    "n_identical": (int,),
    "n_points": (int,),
    "n_features": (int,),
    "fingerprint": (str,),
    "spectral_ratio": (float, type(None)),
}
_TENSORS: dict[str, tuple[tuple[str, ...], int]] = {
    "components": (("f8", "f4"), 2),
    "weighted_pairs": (("i8",), 2),
    "weights": (("f8",), 1),
    "worst_pairs": (("i8",), 2),
    "worst_distortions": (("f8",), 1),
    "listed_pairs": (("i8",), 2),
}


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
    listed_pairs : ndarray of shape (n_pairs, 2) or None
        The pairs themselves when they were listed.
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
    def pairs(self) -> str | Indices:
        """The pairs that count, in the form the public functions take."""
        return self.pair_kind.value if self.listed_pairs is None else self.listed_pairs

    def __str__(self) -> str:
        # Rounded outwards, but for rounding itself: what is promised must hold.
        keeps = max(0, math.floor((1.0 - self.distortion) * 1e4 + 1e-5))
        most = math.ceil((1.0 - self.lower_bound) * 1e4 - 1e-5)
        return (
            f"Every one of {self.n_pairs:,} distances keeps at least {keeps / 100:.2f}%"
            f" of its squared length in {self.n_components} dimensions; no projection "
            f"can guarantee more than {most / 100:.2f}%."
        )

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the certificate as a JSON-able dict and named arrays."""
        scalars = {name: getattr(self, name) for name in _SCALARS}
        tensors = {
            name: getattr(self, name)
            for name in _TENSORS
            if getattr(self, name) is not None
        }
        return {**scalars, "pair_kind": self.pair_kind.value}, tensors

    @classmethod
    def from_parts(cls, scalars: Header, tensors: Tensors) -> Certificate:
        """Return the certificate that ``parts`` took apart.

        Raises
        ------
        FormatError
            If a part is missing or of another type.
        """
        fault = _fault_of(scalars, tensors)
        if fault:
            msg = f"a certificate must have {fault}. Write one with save()."
            raise FormatError(msg)
        arrays: dict[str, Any] = {name: tensors.get(name) for name in _TENSORS}
        return cls(
            **{name: scalars[name] for name in _SCALARS},
            **arrays,
            pair_kind=PairKind(scalars["pair_kind"]),
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
    kind = scalars.get("pair_kind")
    if not isinstance(kind, str) or kind not in set(PairKind):
        return "a known 'pair_kind'"
    for name, (kinds_, ndim) in _TENSORS.items():
        tensor = tensors.get(name)
        if tensor is None and name != "listed_pairs":
            return f"the array {name!r}"
        if tensor is not None and (
            tensor.dtype.str[1:] not in kinds_ or tensor.ndim != ndim
        ):
            return f"{name!r} of type {kinds_[0]} with {ndim} axes"
    for name in ("weighted_pairs", "worst_pairs", "listed_pairs"):
        if name in tensors and tensors[name].shape[1] != 2:
            return f"two columns in {name!r}"
    listed = tensors.get("listed_pairs") is not None
    if listed != (scalars["pair_kind"] == PairKind.LISTED):
        return "'listed_pairs' exactly when pairs are listed"
    return ""

"""What a long solve keeps on disk, so that one that is killed can go on."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from isoproj.exceptions import FormatError
from isoproj.numerics.container import Header, Tensors, read_container, write_container
from isoproj.pairs.oracle import PairSearch
from isoproj.proof.bounds import weights_fault


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that holds the state of one solve after its last round.

    Parameters
    ----------
    path : path-like
        Where; written whole or not at all.
    identity : dict
        What the solve is of: data, dimension, tolerance. A file of another solve is
        refused.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from isoproj.solvers.checkpoint import Checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(pathlib.Path(folder) / "run", {"k": 2})
    ...     first = checkpoint.load()
    ...     checkpoint.save({"round": 1}, {})
    ...     again = checkpoint.load()
    >>> first is None, again[0]["round"]
    (True, 1)
    """

    path: str | os.PathLike[str]
    identity: Mapping[str, Any]

    def load(self) -> tuple[Header, Tensors] | None:
        """Return the state after the last round, or None if there is none yet.

        Raises
        ------
        FormatError
            If the file is broken, or of another solve.
        """
        if not Path(self.path).exists():
            return None
        header, tensors = read_container(self.path)
        theirs = header.get("checkpoint_of")
        if theirs != dict(self.identity):
            theirs = theirs if isinstance(theirs, dict) else {}
            differing = [n for n, v in self.identity.items() if theirs.get(n) != v]
            msg = (
                f"checkpoint {self.path} must be of this fit; it differs in "
                f"{', '.join(differing) or 'kind'}. Delete it, or name another file."
            )
            raise FormatError(msg)
        if not isinstance(header.get("state"), dict):
            reason = "it has no state"
            raise self.damaged(reason)
        return header["state"], tensors

    def damaged(self, reason: str) -> FormatError:
        """Return the error that says why the file cannot be used."""
        msg = f"checkpoint {self.path} is damaged: {reason}. Delete it."
        return FormatError(msg)

    def save(self, state: Header, tensors: Tensors) -> None:
        """Write the state after a round."""
        header = {"checkpoint_of": dict(self.identity), "state": dict(state)}
        write_container(self.path, header, tensors)


def check_state(search: PairSearch, k: int, state: Header, arrays: Tensors) -> None:
    """Raise ValueError unless the state of a solve can be taken up."""
    numbers = [*state["starts"], *state.get("search", [0.0])[:2]]
    numbers += [*state.get("bound", []), *state.get("gains", [])]
    if not all(isinstance(n, int | float) and not math.isnan(n) for n in numbers):
        _refuse("its counters are no numbers")
    for codes, weights in (
        ("working", None),
        ("codes", "weights"),
        ("bound_codes", "bound_weights"),
    ):
        if codes in arrays or codes != "bound_codes":
            _check_pairs(search, arrays[codes], arrays.get(weights or ""), codes)
    n_dims = search.points.n_dims
    for name, width in (("basis", k), ("start", k), ("hull_axes", k + 1)):
        basis = arrays.get(name)
        is_needed = name == "basis" or basis is not None
        if is_needed and not _is_basis(basis, (n_dims, width)):
            _refuse(f"its {name} is not orthonormal")
    space = arrays.get("bound_space")
    if space is not None and not _is_basis(space, (n_dims, space.shape[-1])):
        _refuse("its bound_space is not orthonormal")
    for name in ("factor", "bound_occupations"):
        array = arrays.get(name, np.zeros((n_dims, 0)))
        if not np.isfinite(array).all():
            _refuse(f"its {name} is not finite")
    if arrays.get("factor", np.zeros((n_dims, 0))).shape[:1] != (n_dims,):
        _refuse("its factor is of other points")
    if space is not None and arrays["bound_occupations"].shape != space.shape[1:]:
        _refuse("its bound_occupations are too many or too few")
    if arrays["values"].shape != (3,) or np.isnan(arrays["values"]).any():
        _refuse("its values are no numbers")


def _check_pairs(search: PairSearch, codes: Any, weights: Any, name: str) -> None:  # noqa: ANN401
    """Raise ValueError unless all codes stand for pairs that count."""
    if codes.ndim != 1 or codes.dtype.kind != "i":
        _refuse(f"its {name} are no pairs")
    weights = np.ones(codes.size) if weights is None else weights
    if codes.size == 0 and weights.size == 0 and name == "codes":
        return
    if codes.size and (codes.min() < 0 or codes.max() >= search.points.n_points**2):
        _refuse(f"its {name} has pairs outside the data")
    fault = weights_fault(search.pairs, search.decode(codes), weights, search.points)
    if fault:
        _refuse(f"its {name} has {fault}")


def _is_basis(basis: Any, shape: tuple[int, int]) -> bool:  # noqa: ANN401
    """Return whether an array of a file has orthonormal columns, up to rounding."""
    if basis is None or basis.shape != shape:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(basis.T @ basis - np.eye(basis.shape[1]))
    return bool((error < 1e-8).all())


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)

"""Open a model file, whichever estimator wrote it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import isoproj
from isoproj.cli.errors import Trouble
from isoproj.files.read.reading import DataFile, holds_model, read_pairs, read_points
from isoproj.numerics.arrays import Rows
from isoproj.numerics.container import read_container
from isoproj.numerics.storage import MEMORY_LIMIT, Storage
from isoproj.pairs.rule import WORDS
from isoproj.proof.certificate import Certificate, Guarantee

__all__ = [
    "Model",
    "describe_data",
    "describe_guarantee",
    "load_model",
    "memory_limit",
    "options_data",
    "pair_options",
    "read_labels",
]

# Share of the memory for the data as read; the rest is for what is made of them.
_DATA_SHARE = 0.1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Model:
    """A model file: its header, its certificate, and the estimator if it holds one.

    Parameters
    ----------
    path : str
        Where from.
    header : dict
        As stored.
    certificate : Certificate
        As stated; nothing is verified.
    estimator : LinearProjection or None
        None for a bare certificate.
    """

    path: str
    header: dict[str, Any]
    certificate: Certificate
    estimator: Any

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features that it was fitted on, where they had any."""
        names = getattr(self.estimator, "feature_names_in_", None)
        return None if names is None else tuple(str(name) for name in names)

    @property
    def mean(self) -> NDArray[Any] | None:
        """What the model subtracts before it projects, where it does."""
        mean: NDArray[Any] | None = getattr(self.estimator, "mean_", None)
        return mean

    def check_fits(self, data: DataFile) -> Rows:
        """Return the points if they have the model's features, in its order."""
        expected, got = self.certificate.n_features, data.points.shape[1]
        if expected != got:
            msg = (
                f"{data.name} must have the {expected} features of {self.path}; it has "
                f"{got}. Choose them with --columns, or fit again."
            )
            raise Trouble(msg)
        theirs, ours = data.names, self.feature_names
        if theirs is not None and ours is not None and theirs != ours:
            at = next(i for i in range(expected) if theirs[i] != ours[i])
            msg = (
                f"{data.name} must have the features of {self.path} in their order; "
                f"column {at} is {theirs[at]!r} where {ours[at]!r} is expected. "
                "Choose them with --columns."
            )
            raise Trouble(msg)
        return data.points


def load_model(path: str) -> Model:
    """Read a model file.

    Parameters
    ----------
    path : str
        Where from.

    Returns
    -------
    Model
        Certificate and, where the file holds one, estimator.

    Raises
    ------
    FormatError
        If it is damaged or not a model.
    Trouble
        If it is data, or needs a newer isoproj.
    """
    if not holds_model(path):
        msg = (
            f"{path} must be a model of isoproj fit; it is data. "
            "The model comes first: VERB MODEL DATA."
        )
        raise Trouble(msg)
    header, tensors = read_container(path)
    certificate = Certificate.from_parts(_dict(header.get("certificate")), tensors)
    name = header.get("estimator")
    estimator = None
    if name is not None:
        if name not in isoproj.__all__ or not hasattr(getattr(isoproj, name), "load"):
            msg = f"{path} holds a {name!r}, which this isoproj lacks. Upgrade isoproj."
            raise Trouble(msg)
        estimator = getattr(isoproj, name).load(path)
    return Model(path=path, header=header, certificate=certificate, estimator=estimator)


def options_data(options: argparse.Namespace, *, min_rows: int) -> DataFile:
    """Read the points that a command line names."""
    return read_points(
        options.data,
        array=options.array,
        columns=options.columns,
        header=options.header,
        min_rows=min_rows,
        storage=Storage(_DATA_SHARE * memory_limit(options)),
    )


def memory_limit(options: argparse.Namespace) -> float:
    """Return the bytes that a command line allows, or the usual number."""
    asked: float | None = getattr(options, "memory_limit", None)
    return MEMORY_LIMIT if asked is None else asked


def describe_data(data: DataFile) -> dict[str, Any]:
    """Return what the JSON result says of a data file."""
    from isoproj.numerics.arrays import is_sparse

    return {
        "name": data.name,
        "format": data.format,
        "chosen": data.chosen or None,
        "n_points": int(data.points.shape[0]),
        "n_features": int(data.points.shape[1]),
        "dtype": str(data.points.dtype),
        "sparse": is_sparse(data.points),
    }


def pair_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return which pairs a command line asks for, as far as it says so."""
    pairs: Any = options.pairs
    if pairs is not None and pairs not in WORDS:
        pairs = read_pairs(str(pairs))
    asked = {
        "pairs": pairs,
        "n_neighbors": options.neighbors,
        "min_distance": options.min_distance,
        "include_norms": options.include_norms,
    }
    return {name: value for name, value in asked.items() if value is not None}


def read_labels(name: str | None, data: DataFile) -> list[str] | None:
    """Read one label a line for every point, if a file is named."""
    if name is None:
        return None
    # Bytes that are no text must not keep anyone from a report.
    text = Path(name).read_text(encoding="utf-8", errors="replace")
    labels = text.removesuffix("\n").split("\n")
    n_points = int(data.points.shape[0])
    if len(labels) != n_points:
        msg = (
            f"{name} must have a line for each of the {n_points} points of "
            f"{data.name}; it has {len(labels)}. Write one label a line."
        )
        raise Trouble(msg)
    return labels


def describe_guarantee(guarantee: Guarantee | None) -> dict[str, Any] | None:
    """Return what the JSON result says of what is kept under a cap."""
    if guarantee is None:
        return None
    return {
        "objective": guarantee.objective.value,
        "cap": guarantee.cap,
        "kept": guarantee.kept,
        "kept_bound": guarantee.kept_bound,
    }


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

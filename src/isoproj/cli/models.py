"""Read what a command line names: model, data, pairs, labels."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

import isoproj
from isoproj.cli.errors import UsageError
from isoproj.files.read.reading import DataFile, holds_model, read_pairs, read_points
from isoproj.files.read.sources import split_name
from isoproj.numerics.arrays import Rows, require
from isoproj.numerics.container import read_container
from isoproj.numerics.rounding import at_least, gap_in_words
from isoproj.numerics.storage import MEMORY_LIMIT, Storage
from isoproj.pairs.rule import LABELLED, WORDS
from isoproj.proof.certificate import Certificate

if TYPE_CHECKING:
    from isoproj.files.read.maps import MapFile
    from isoproj.numerics.maps import Orientation


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Model:
    """The contents of a model file; a bare certificate has no estimator."""

    path: str
    header: dict[str, Any]
    certificate: Certificate
    estimator: Any

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features in the fit, or None."""
        names = getattr(self.estimator, "feature_names_in_", None)
        return None if names is None else tuple(str(name) for name in names)

    @property
    def mean(self) -> NDArray[Any] | None:
        """Mean that the model subtracts before it projects, or None."""
        mean: NDArray[Any] | None = getattr(self.estimator, "mean_", None)
        return mean

    def check_fits(self, data: DataFile) -> Rows:
        """Return the points; raise an error unless their features are the model's."""
        expected = self.certificate.n_features
        check_features(data, expected, self.path)
        theirs, ours = data.names, self.feature_names
        if theirs is not None and ours is not None and theirs != ours:
            at = next(i for i in range(expected) if theirs[i] != ours[i])
            msg = (
                f"{data.name} must have the features of {self.path} in the same order; "
                f"column {at} is {theirs[at]!r} where {ours[at]!r} is expected. "
                "Choose them with --columns."
            )
            raise UsageError(msg)
        return data.points


def prefix_table(certificate: Certificate) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table of a nested projection's prefixes."""
    rows = [
        [
            f"first {k}",
            f"{part.distortion:.6f}",
            at_least(part.lower_bound, 6),
            gap_in_words(part.optimality_gap)
            if math.isfinite(part.optimality_gap)
            else "",
        ]
        for k, part in certificate.by_dimension.items()
    ]
    return ["dimensions", "worst pair loses", "lower bound", "gap"], rows


def check_features(data: DataFile, n_features: int, path: str) -> None:
    """Raise ValueError unless the data have as many features as a model or matrix."""
    got, what = data.points.shape[1], f"have the {n_features} features of {path}"
    advice = "Choose them with --columns, or fit again."
    require(got == n_features, data.name, got, what, advice)


def check_dimensions(ks: Iterable[int], data: DataFile) -> None:
    """Raise ValueError unless every k is between 1 and the number of features."""
    n_features = int(data.points.shape[1])
    for k in ks:
        what = f"be between 1 and the {n_features} features of {data.name}"
        require(1 <= k <= n_features, "-k", k, what, "Choose a value in that range.")


def load_model(path: str) -> Model:
    """Read a model file that any estimator or a certificate wrote."""
    if not holds_model(path):
        msg = (
            f"{path} must be a model of isoproj fit; it is data. "
            "The model comes first: VERB MODEL DATA."
        )
        raise UsageError(msg)
    header, tensors = read_container(path)
    certificate = Certificate.from_parts(header.get("certificate", {}), tensors)
    name = header.get("estimator")
    estimator = None
    if name is not None:
        from isoproj.estimators.certified import CertifiedProjection

        kind = getattr(isoproj, name) if name in isoproj.__all__ else None
        if not (isinstance(kind, type) and issubclass(kind, CertifiedProjection)):
            msg = (
                f"{path} must hold an estimator that this isoproj has; it holds "
                f"{name!r}. Upgrade isoproj."
            )
            raise UsageError(msg)
        estimator = kind.load(path)
    return Model(path=path, header=header, certificate=certificate, estimator=estimator)


def check_map_name(name: str) -> None:
    """Raise FileNotFoundError if a map is neither a file, a folder nor ``first:K``."""
    if not name.startswith("first:") and not split_name(name)[0].exists():
        holds_model(name)  # Says what is missing, with a similar name.


def map_of(
    name: str, data: DataFile, orientation: Orientation | None = None
) -> MapFile:
    """Read the linear map of a file, a folder or ``first:K``, for the data."""
    from isoproj.files.read.maps import read_map

    path, _ = split_name(name)
    if path.suffix.lower() == ".isoproj" and path.is_file():
        check_features(data, load_model(name).certificate.n_features, name)
    return read_map(name, int(data.points.shape[1]), orientation=orientation)


def options_data(
    options: argparse.Namespace, *, min_rows: int, name: str | None = None
) -> DataFile:
    """Read the data of a command line, or other data with the same options."""
    # Share of the memory limit for the data; the rest is for the computation.
    return read_points(
        options.data if name is None else name,
        array=options.array,
        columns=options.columns,
        header=options.header,
        min_rows=min_rows,
        storage=Storage(0.1 * memory_limit(options)),
    )


def read_queries(options: argparse.Namespace, data: DataFile) -> Rows | None:
    """Read queries, which have the features of the data; None without ``--queries``."""
    if options.queries is None:
        return None
    found = options_data(options, min_rows=1, name=options.queries)
    check_features(found, int(data.points.shape[1]), data.name)
    return found.points


def memory_limit(options: argparse.Namespace) -> float:
    """Return the memory limit of a command line in bytes, or the default."""
    asked: float | None = getattr(options, "memory_limit", None)
    return MEMORY_LIMIT if asked is None else asked


def pair_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options about pairs that the user gave, as keyword arguments."""
    pairs: Any = options.pairs
    if pairs is not None and pairs not in WORDS:
        near = difflib.get_close_matches(pairs, WORDS, n=1)
        if near and not split_name(pairs)[0].exists():
            msg = (
                f"--pairs must be a file or a word that -h lists; got {pairs!r}. "
                f"Did you mean {near[0]!r}?"
            )
            raise UsageError(msg)
        pairs = read_pairs(str(pairs))
    elif pairs in LABELLED and options.labels is None:
        msg = f"--pairs {pairs} needs the class of every point. Add --labels FILE."
        raise UsageError(msg)
    asked = {
        "pairs": pairs,
        "n_neighbors": options.neighbors,
        "min_distance": options.min_distance,
        "include_norms": options.include_norms or None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def read_labels(name: str | None, data: DataFile) -> list[str] | None:
    """Read a file with one label a line, one for every point; None without a file."""
    if name is None:
        return None
    # Invalid bytes are replaced; labels are only shown or compared.
    text = Path(name).read_text(encoding="utf-8", errors="replace")
    labels = text.removesuffix("\n").split("\n")
    n_points = int(data.points.shape[0])
    n_given = len(labels)
    what = f"have a line for each of the {n_points} points of {data.name}"
    require(n_given == n_points, name, n_given, what, "Write one label a line.")
    return labels

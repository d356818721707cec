"""Measure ways to reduce vectors; choose the cheapest that finds enough neighbours.

Methods, numbers of dimensions, scores and number formats are tried alike. Half of the
queries choose; the other half, which chose nothing, says what the choice is worth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isoproj.baselines.pca import PCAProjection
from isoproj.estimators.guaranteed_pca import GuaranteedPCA
from isoproj.estimators.near_isometric import NearIsometricProjection
from isoproj.numerics.arrays import Rows, as_dense, check_points
from isoproj.numerics.rounding import at_least
from isoproj.numerics.shown import Table, Tabular
from isoproj.numerics.spectral import Array
from isoproj.numerics.storage import Storage
from isoproj.pairs.nearness import Metric, check_metric, check_queries
from isoproj.pairs.rows import largest_entry
from isoproj.plot.axes import drawn
from isoproj.plot.marks import Axis, Chart, Dots, Mark
from isoproj.plot.style import Look, look_of
from isoproj.proof.confidence import CONFIDENCE, fewest_points
from isoproj.search.plan import Question, SearchPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Rows that play the queries where none are given, as a share and at most.
_HELDOUT, _MOST_HELDOUT = 0.2, 1000
Code = Callable[[NDArray[Any]], NDArray[Any]]


def _int8(rows: NDArray[Any]) -> Code:
    """Return the code of 256 steps a column, from the range of the rows."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    step = np.where(high > low, (high - low) / 255.0, 1.0)

    def coded(some: NDArray[Any]) -> NDArray[Any]:
        steps = np.clip(np.rint((some - low) / step), 0, 255)
        return np.asarray(low + step * steps, dtype=np.float32)

    return coded


def _signs(rows: NDArray[Any]) -> Code:
    """Return the code of the sides of the rows' mean, -1 and 1, in every column."""
    mean = rows.mean(axis=0)
    return lambda some: np.where(some < mean, -1.0, 1.0)


# How vectors are stored: bits of a number, and the code that suits some rows.
FORMATS: dict[str, tuple[int, Callable[[NDArray[Any]], Code]]] = {
    "float32": (32, lambda _: lambda some: some.astype(np.float32)),
    "float16": (16, lambda _: lambda some: some.astype(np.float16)),
    "int8": (8, _int8),
    "bits": (1, _signs),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to reduce vectors, as measured on the queries that choose.

    ``candidates`` is the number that finds the wanted share, on average, ``recall`` the
    share found without more than the neighbours, ``n_bytes`` the size of a stored
    vector, and ``read`` the bytes that a query reads: all reduced vectors, and the full
    ones of the candidates.
    """

    method: str
    k: int
    format: str
    score: Metric
    n_bytes: int
    candidates: int
    recall: float
    read: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Choice(Tabular):
    """What was measured, and the cheapest that finds the wanted share of neighbours.

    ``plan`` is that of ``best``, on the queries that chose nothing; ``components`` is
    its map. ``options`` holds all that was tried.
    """

    wanted: float
    options: tuple[Option, ...]
    best: Option
    plan: SearchPlan
    components: Array

    @property
    def frontier(self) -> list[Option]:
        """The options that none beats in both bytes a vector and candidates."""
        found: list[Option] = []
        for one in sorted(self.options, key=lambda o: (o.n_bytes, o.candidates)):
            if not found or one.candidates < found[-1].candidates:
                found.append(one)
        return found

    def _table(self) -> Table:
        names = "method", "k", "format", "score", "bytes", "candidates", "found", "read"
        rows = [
            [
                *(o.method, str(o.k), o.format, o.score),
                *(f"{o.n_bytes:,}", f"{o.candidates:,}", at_least(o.recall)),
                f"{o.read / 1e6:.3g} MB" + (" *" if o == self.best else ""),
            ]
            for o in self.frontier
        ]
        return names, rows

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw candidates against bytes a vector, every option a point."""
        marks: list[Mark] = [
            Dots(
                name,
                [o.n_bytes for o in self.options if o.method == name],
                [o.candidates for o in self.options if o.method == name],
                label=name,
                marker=(look_of(name) or Look("")).marker,
            )
            for name in dict.fromkeys(o.method for o in self.options)
        ]
        spot = ([self.best.n_bytes], [self.best.candidates])
        marks.append(Dots("floor", *spot, label="cheapest", marker="s", size=9.0))
        chart = Chart(
            x=Axis("bytes of a stored vector", log=True),
            y=Axis(f"candidates that find {self.wanted:g} of the neighbours", log=True),
            marks=marks,
            about="Candidates against bytes of a stored vector",
            names="best",
        )
        return drawn(chart, ax)


def choose(
    X: ArrayLike | Rows,
    wanted: float,
    n_neighbors: int = 10,
    *,
    queries: ArrayLike | Rows | None = None,
    metric: Metric = "euclidean",
    maps: Mapping[str, Array] | Callable[[Rows], Iterator[tuple[str, Array]]],
    at_most: int | None = None,
    confidence: float = CONFIDENCE,
) -> Choice:
    """Measure reduced vectors of every kind, and return the cheapest that suffices.

    ``wanted`` is the mean share of neighbours to be found. ``maps`` are matrices by
    name, or a function such as ``fitted_maps`` returns, of the rows that may be seen.
    ``at_most`` limits the candidates. Without queries some rows are held out as such.
    """
    check_metric(metric)
    rows, asked = _parts(X, queries, confidence)
    question = Question(rows, n_neighbors, queries=asked, metric=metric, stored=False)
    half = int(asked.shape[0]) // 2
    tried: list[Option] = []
    best: Option | None = None
    known = maps(rows) if callable(maps) else iter(maps.items())
    for name, matrix in known:
        vectors = [as_dense(some @ matrix.T) for some in (rows, asked)]
        # Every format has room for numbers of size 1, whatever the units.
        exponent = math.frexp(max(map(largest_entry, vectors)))[1]
        vectors = [np.ldexp(some, -exponent) for some in vectors]
        for kind, score in itertools.product(FORMATS, _scores(metric)):
            bits, code_of = FORMATS[kind]
            if bits == 1 and score != "euclidean":
                continue  # Signs are all of one length: every score is the same.
            reduced = tuple(map(code_of(vectors[0]), vectors))
            plan = question.plan(reduced=reduced, score=score, confidence=confidence)
            option = _measured(name, kind, bits, plan, wanted, half)
            tried.append(option)
            is_allowed = option.candidates <= (at_most or math.inf)
            if is_allowed and (best is None or option.read < best.read):
                judged = plan.query_ranks[half:]  # type: ignore[index]
                best, chosen = option, (replace(plan, query_ranks=judged), matrix)
    if best is None:
        least = min(option.candidates for option in tried)
        msg = (
            f"at_most must allow {least} candidates, the fewest that find {wanted:g} "
            f"of the neighbours; got {at_most}. Allow more, or more dimensions."
        )
        raise ValueError(msg)
    return Choice(
        wanted=wanted,
        options=tuple(tried),
        best=best,
        plan=chosen[0],
        components=chosen[1],
    )


def fitted_maps(
    ks: Sequence[int] | None, time_limit: float | None = None, seed: int = 0
) -> Callable[[Rows], Iterator[tuple[str, Array]]]:
    """Return a function that fits every method for every number of dimensions."""

    def maps(rows: Rows) -> Iterator[tuple[str, Array]]:
        width = int(rows.shape[1])
        for k in ks or sorted({max(1, width // part) for part in (16, 8, 4)}):
            limits: dict[str, Any] = {"time_limit": time_limit, "random_state": seed}
            models = {
                "pca": PCAProjection(k),
                "guaranteed_pca": GuaranteedPCA(k, **limits),
                "near_isometric": NearIsometricProjection(k, **limits),
            }
            for name, model in models.items():
                yield name, model.fit(rows).components_.astype(np.float64)
            yield "first", np.eye(k, width)

    return maps


def _parts(
    X: ArrayLike | Rows, queries: ArrayLike | Rows | None, confidence: float
) -> tuple[Rows, Rows]:
    """Return stored rows and queries; the latter are held out if none are given."""
    storage = Storage()
    rows = check_points(X, storage)
    needed = 2 * fewest_points(confidence)
    asked = check_queries(queries, rows, storage)
    if asked is None:
        n_rows = int(rows.shape[0])
        n_asked = min(_MOST_HELDOUT, math.ceil(_HELDOUT * n_rows))
        order = np.random.default_rng(0).permutation(n_rows)
        asked, rows = rows[np.sort(order[:n_asked])], rows[np.sort(order[n_asked:])]
    if asked.shape[0] < needed:
        msg = (
            f"choosing at confidence {confidence:g} needs at least {needed} queries, "
            f"half to choose and half to judge; got {asked.shape[0]}. Pass more."
        )
        raise ValueError(msg)
    return rows, asked


def _scores(metric: Metric) -> tuple[Metric, Metric]:
    """Return how reduced vectors may be compared."""
    return ("euclidean", "inner_product" if metric == "inner_product" else "cosine")


def _measured(
    name: str, kind: str, bits: int, plan: SearchPlan, wanted: float, half: int
) -> Option:
    """Return what the first half of the queries says of one way to reduce."""
    ranks = plan.query_ranks[:half]  # type: ignore[index]
    ordered = np.sort(ranks, axis=None)
    at = max(1, math.ceil(round(wanted * ordered.size, 6)))
    candidates = max(int(ordered[at - 1]), plan.n_neighbors)
    n_bytes = -(-bits * plan.n_components // 8)
    return Option(
        method=name,
        k=plan.n_components,
        format=kind,
        score=plan.score,
        n_bytes=n_bytes,
        candidates=candidates,
        recall=float((ranks <= plan.n_neighbors).mean()),
        read=float(plan.n_rows * n_bytes + 4 * plan.n_features * candidates),
    )

"""Methods compared on the same points: one record per fit, a table, a plot."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from isoproj import baselines
from isoproj.comparison.referee import Record, measure, measure_map
from isoproj.estimators.guaranteed_pca import GuaranteedPCA
from isoproj.estimators.near_isometric import NearIsometricProjection
from isoproj.numerics.arrays import Rows, is_whole, require
from isoproj.numerics.container import versions
from isoproj.numerics.maps import LinearMap
from isoproj.numerics.shown import Shown, aligned
from isoproj.numerics.threads import n_threads
from isoproj.plot.axes import drawn
from isoproj.plot.charts import curve_chart, floor_marks, loss_line
from isoproj.plot.marks import Axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Data = ArrayLike | Rows | Callable[[int], Any]

METHODS: dict[str, Callable[[], Any]] = {
    "minimax": lambda: NearIsometricProjection(solver="minimax"),
    "guaranteed": GuaranteedPCA,
    "dual_ascent": baselines.DualAscent,
    "sdp+dr": baselines.SDPProjection,
    "sdp+rr": lambda: baselines.SDPProjection(rounding="randomized"),
    "sdp+binned": lambda: baselines.SDPProjection(rounding="binned"),
    "sap": baselines.SecantAvoidance,
    "fair_pca": baselines.FairPCA,
    "fair_pca+seq": baselines.SequentialFairPCA,
    "stable_pca": baselines.StablePCA,
    "pca": baselines.PCAProjection,
    "pca_directions": lambda: baselines.PCAProjection(of="directions"),
    "random": baselines.RandomProjection,
    "gaussian": lambda: baselines.RandomProjection(kind="gaussian", rescale=True),
    "adagio": baselines.Adagio,
    "nile_pro": baselines.NILEPro,
    "fro_max": baselines.FroMax,
    "nu_max": baselines.NuMax,
}
DEFAULT_METHODS = (
    "minimax",
    "dual_ascent",
    "sdp+dr",
    "sdp+rr",
    "sap",
    "fair_pca",
    "pca",
    "random",
)
_LABELS = {
    "contracted": "distortion (share of squared length the worst pair loses)",
    "distortion": "largest share of squared length lost",
    "stretch": "largest share of squared length gained",
    "isometry": "two-sided isometry constant after the best scaling",
    "mean": "mean share of squared length lost",
    "recall": "share of the ten nearest that stay among the ten nearest",
    "seconds": "seconds",
    "peak_bytes": "peak memory added, bytes",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Shown):
    """The records of a comparison, and ways to look at them.

    Parameters
    ----------
    records : tuple of dict
        One per method, k and seed; failed ones carry ``error`` instead of numbers.
    """

    records: tuple[Record, ...]

    def __str__(self) -> str:
        return self.table()

    def json_lines(self) -> str:
        """Return one JSON object a line."""
        return "".join(json.dumps(record) + "\n" for record in self.records)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the records as JSON lines."""
        Path(path).write_text(self.json_lines(), encoding="utf-8")

    def values(self, metric: str = "contracted") -> dict[str, dict[int, list[float]]]:
        """Return a metric by method and k, one value per seed that succeeded."""
        found: dict[str, dict[int, list[float]]] = {}
        for record in self.records:
            by_k = found.setdefault(record["method"], {})
            values = by_k.setdefault(record["k"], [])
            if record.get(metric) is not None:
                values.append(float(record[metric]))
        return found

    def floor(self) -> dict[int, float]:
        """Return by k the mean over seeds of the best certified lower bound.

        No orthogonal projection, and no other map once it is scaled to stretch
        nothing (``contracted``), goes below.
        """
        best: dict[int, dict[int, float]] = {}
        for record in self.records:
            bound = record.get("lower_bound")
            if bound is not None and record["n_components"] == record["k"]:
                seeds = best.setdefault(record["k"], {})
                seeds[record["seed"]] = max(seeds.get(record["seed"], 0.0), bound)
        return {k: float(np.mean(list(seeds.values()))) for k, seeds in best.items()}

    def table(self, metric: str = "contracted") -> str:
        """Return a plain text table, methods by k, the best of each column marked.

        Parameters
        ----------
        metric : str
            Any number of the records.

        Returns
        -------
        str
            Means over seeds, with standard deviations where there are several.
        """
        values = self.values(metric)
        ks = sorted({record["k"] for record in self.records})
        rows = {name: {k: by_k.get(k, []) for k in ks} for name, by_k in values.items()}
        choose = max if metric == "recall" else min
        best = {k: _best([row[k] for row in rows.values()], choose) for k in ks}
        lines = [
            [name, *(_cell(row[k], best[k]) for k in ks)] for name, row in rows.items()
        ]
        if metric in ("contracted", "distortion") and (floor := self.floor()):
            cells = (f"{floor[k]:.4f} " if k in floor else "" for k in ks)
            lines.append(["lower bound", *cells])
        table = aligned(["", *(f"k={k}" for k in ks)], lines)
        title = f"{_LABELS.get(metric, metric)}; * marks the best"
        return "\n".join([title, table, *self._notes()])

    def _notes(self) -> Iterator[str]:
        """Yield one line per method that failed, with the reason."""
        errors = {(r["method"], r["error"]) for r in self.records if r.get("error")}
        for method, error in sorted(errors):
            yield f"{method} failed: {error}"

    def plot(self, ax: Axes | None = None, *, metric: str = "contracted") -> Axes:
        """Draw a metric against k, with the lower bound as the floor.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.
        metric : str
            Any number of the records.

        Returns
        -------
        matplotlib Axes
            The drawing.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        lines = []
        for name, by_k in self.values(metric).items():
            ks = sorted(k for k, values in by_k.items() if values)
            means = [float(np.mean(by_k[k])) for k in ks]
            spread = [float(np.std(by_k[k])) for k in ks]
            lines.append(loss_line(name, ks, means, label=name, errors=spread))
        floor = dict(sorted(self.floor().items()))
        has_floor = bool(floor) and metric in ("contracted", "distortion")
        below = floor_marks(list(floor), list(floor.values())) if has_floor else []
        label = _LABELS.get(metric, metric)
        return drawn(replace(curve_chart(lines, below), y=Axis(label=label)), ax)


def compare(
    X: Data,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    ks: Sequence[int] = (2, 5, 10),
    seeds: Sequence[int] = (0,),
    time_limit: float | None = None,
    *,
    maps: Mapping[str, LinearMap] | None = None,
    y: object = None,
    progress: Callable[[Record], None] | None = None,
) -> Comparison:
    """Fit every method for every dimension and seed; one referee scores all maps.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_points, n_features), or callable
        The points; a callable gets the seed and returns them.
    methods : iterable of str, or mapping of str to estimator
        Names from ``METHODS``, or any estimators that take ``n_components``.
    ks : sequence of int
        Dimensions.
    seeds : sequence of int
        Set as ``random_state`` where a method has one.
    time_limit : float or None
        Seconds each ``fit`` may take, for the methods that have a limit.
    maps : mapping of str to linear map, or None
        Maps that are measured as they are, by name, each at its own number of
        dimensions: whatever ``isoproj.audit`` takes.
    y : object
        Passed to every ``fit``.
    progress : callable or None
        Called with every record as it is made.

    Returns
    -------
    Comparison
        A method that fails is a record with its reason; the others go on.

    Raises
    ------
    ValueError
        If a name is unknown, a number is not whole, or there is nothing to compare.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.comparison.compare import compare
    >>> X = np.random.default_rng(0).normal(size=(12, 5))
    >>> result = compare(X, ["pca", "sap"], ks=[2, 3])
    >>> [(r["method"], r["k"]) for r in result.records]
    [('pca', 2), ('sap', 2), ('pca', 3), ('sap', 3)]
    """
    asked: dict[str, Any] = {"ks": ks, "seeds": seeds}
    for name, values in asked.items():
        fits = isinstance(values, Collection) and all(map(is_whole, values))
        require(fits, name, values, "list whole numbers", "Put one in a list: [5].")
    estimators = _estimators(methods)
    if not estimators or not len(ks) or not len(seeds):
        msg = (
            f"compare needs at least one method, k and seed; got {len(estimators)}, "
            f"{len(ks)} and {len(seeds)}. Pass one of each."
        )
        raise ValueError(msg)
    facts = machine_facts()
    records: list[Record] = []
    for seed in seeds:
        points = X(seed) if callable(X) else X
        for name, given in (maps or {}).items():
            records.append(measure_map(name, given, points, int(seed)) | facts)
            if progress is not None:
                progress(records[-1])
        for k in ks:
            for name, estimator in estimators.items():
                record = measure(
                    name, estimator, points, int(k), seed, time_limit=time_limit, y=y
                )
                records.append(record | facts)
                if progress is not None:
                    progress(records[-1])
    return Comparison(tuple(records))


def _estimators(methods: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return estimators by name; raise if a name is unknown."""
    if isinstance(methods, Mapping):
        return dict(methods)
    if isinstance(methods, str):
        methods = [methods]
    chosen = {}
    for name in methods:
        what = f"be among {', '.join(METHODS)}"
        advice = "Pass a mapping of names to estimators for others."
        require(name in METHODS, "methods", name, what, advice)
        chosen[name] = METHODS[name]()
    return chosen


def machine_facts() -> Record:
    """Return versions and machine, so that a record can be read years later."""
    # Records call scikit-learn by the name that Python imports.
    libraries = {name.replace("scikit-", "sk"): v for name, v in versions().items()}
    return {
        **libraries,
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": n_threads(),
    }


def _best(
    columns: Iterable[list[float]], choose: Callable[[list[float]], float]
) -> float:
    """Return the best mean of some lists, NaN where all are empty."""
    means = [float(np.mean(values)) for values in columns if values]
    return choose(means) if means else math.nan


def _cell(values: list[float], best: float) -> str:
    """Return mean and spread of a table's cell, with a mark where it is the best."""
    if not values:
        return "failed "
    mean = float(np.mean(values))
    spread = f" ±{np.std(values):.4f}" if len(values) > 1 else ""
    # Equal to the digits shown is equal: both are marked.
    mark = "*" if f"{mean:.4f}" == f"{best:.4f}" else " "
    return f"{mean:.4f}{spread}{mark}"

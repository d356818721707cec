"""One referee for every method: the same code scores any linear map.

Methods never score themselves. Seconds and memory are taken around ``fit`` alone; what
the map does to every pair is measured afterwards, outside the timed region.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from isoproj.numerics.arrays import Rows, check_points
from isoproj.numerics.maps import LinearMap, linear_map
from isoproj.numerics.spectral import Fitted
from isoproj.proof.audit import audit

Record = dict[str, Any]

# Neighbours that recall is about.
_NEIGHBORS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What the referee measured of one map on one set of points.

    ``distortion`` and ``stretch`` are the largest shares of squared length that a pair
    loses and gains, exact and at least 0. ``isometry`` is the two-sided constant after
    the best scaling: every squared length within ``1 +- isometry``; for a projection
    that is ``eps / (2 - eps)``. ``contracted`` is the distortion once the map is scaled
    down to stretch no vector at all, which a bound on projections can be compared with.
    ``mean`` and the quantiles are of the shares lost. ``recall`` is the mean share of a
    point's ten nearest others (of all, if they are fewer) that stay among its ten
    nearest, exact. ``orthonormality`` is the largest
    entry of ``A A^T - I``. ``seconds`` and ``cpu_seconds`` (all threads together) are
    those of ``fit``, ``peak_bytes`` the resident memory that ``fit`` added at its peak,
    from samples 5 ms apart. ``lower_bound`` is the method's own certified bound. NaN
    stands for what was not measured.
    """

    n_components: int
    distortion: float
    stretch: float
    isometry: float
    contracted: float
    mean: float
    q50: float
    q90: float
    q99: float
    q999: float
    orthonormality: float
    recall: float = math.nan
    seconds: float = math.nan
    cpu_seconds: float = math.nan
    peak_bytes: float = math.nan
    lower_bound: float = math.nan

    def as_dict(self) -> dict[str, float | int | None]:
        """Return the numbers for JSON, with None for NaN."""
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }


def score_map(
    X: ArrayLike | Rows,
    components: LinearMap,
    *,
    pairs: str | ArrayLike = "all",
    with_recall: bool = False,
) -> Score:
    """Measure any linear map, or a fitted estimator's, on all pairs that count."""
    rows = check_points(X)
    k = min(_NEIGHBORS, int(rows.shape[0]) - 1)
    linear = linear_map(components, rows.shape[1])
    found = audit(
        rows,
        linear,
        orientation="rows",
        pairs=pairs,
        n_worst=1,
        recall=k if with_recall else None,
    )
    error = float(np.abs(linear @ linear.T - np.eye(linear.shape[0])).max())
    norm = float(np.linalg.norm(linear, 2)) ** 2
    least = 1.0 - found.distortion
    most = 1.0 + found.stretch
    # Rows this far from orthonormal are still a projection's, in float32.
    if error > 1e-5 and found.stretch == 0.0 and least > 0.0:
        # The scan reports gains only, so it is asked about the map scaled up.
        enlarged = linear / math.sqrt(least)
        scaled = audit(rows, enlarged, orientation="rows", pairs=pairs, n_worst=1)
        most = (1.0 + scaled.stretch) * least
    q = found.quantiles
    return Score(
        n_components=int(linear.shape[0]),
        distortion=max(0.0, found.distortion),
        stretch=found.stretch,
        isometry=(most - least) / (most + least) if most + least > 0.0 else 1.0,
        contracted=max(0.0, 1.0 - least / norm) if norm > 0.0 else 1.0,
        mean=found.mean,
        q50=q[0.5],
        q90=q[0.9],
        q99=q[0.99],
        q999=q[0.999],
        orthonormality=error,
        recall=found.recall.get(k, math.nan),
        lower_bound=float(getattr(components, "lower_bound_", math.nan)),
    )


def run(
    estimator: Fitted,
    X: ArrayLike | Rows,
    y: object = None,
    *,
    pairs: str | ArrayLike = "all",
) -> Score:
    """Fit an estimator, measure seconds and memory of that, then score its map."""
    with _watched_memory() as peak:
        start, cpu_start = time.perf_counter(), time.process_time()
        estimator.fit(X, y)
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - cpu_start
    score = score_map(X, estimator, pairs=pairs, with_recall=True)
    return replace(score, seconds=seconds, cpu_seconds=cpu_seconds, peak_bytes=peak[0])


def measure(
    name: str,
    estimator: Fitted,
    X: ArrayLike | Rows,
    k: int,
    seed: int,
    *,
    time_limit: float | None = None,
    y: object = None,
    inspect: Callable[[Any], Record] | None = None,
) -> Record:
    """Fit a copy of an estimator once and return a record of its score.

    The copy is given ``n_components``, ``random_state`` and ``time_limit`` where it has
    them. What ``inspect`` returns of the fitted copy joins the record. A method that
    fails leaves a record with ``error`` instead of numbers.
    """
    record = _begun(name, k, int(seed), X, time_limit)
    wanted = {"n_components": k, "random_state": int(seed), "time_limit": time_limit}
    try:
        fresh = clone(estimator)
        known = fresh.get_params(deep=False)
        fresh.set_params(**{n: v for n, v in wanted.items() if n in known})
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            score = run(fresh, X, y, pairs=known.get("pairs", "all"))
            found = {} if inspect is None else inspect(fresh)
    except Exception as error:
        reason = _on_one_line(error) or "no reason given"
        return record | {"error": f"{type(error).__name__}: {reason}"}
    status = getattr(fresh, "status_", None)
    return record | {
        **score.as_dict(),
        "status": None if status is None else str(status),
        "warnings": [_on_one_line(warning.message) for warning in told],
        **found,
    }


def measure_map(name: str, given: LinearMap, X: ArrayLike | Rows, seed: int) -> Record:
    """Return a record of the score of a map that nobody fits."""
    score = score_map(X, given, with_recall=True)
    begun = _begun(name, score.n_components, seed, X)
    return {**begun, **score.as_dict(), "status": None, "warnings": []}


def _begun(
    name: str, k: int, seed: int, X: ArrayLike | Rows, time_limit: float | None = None
) -> Record:
    """Return what a record says before anything is measured."""
    shape = [int(size) for size in X.shape] if hasattr(X, "shape") else None
    record = {"method": name, "k": k, "seed": seed, "shape": shape}
    return {**record, "time_limit": time_limit}


def _on_one_line(message: object) -> str:
    """Return a message with every run of white space as one blank."""
    return " ".join(str(message).split())


@contextmanager
def _watched_memory() -> Iterator[list[float]]:
    """Yield a list whose number is the peak of resident memory inside the context.

    A thread samples it, as tracing allocations would slow ``fit``. It is what was added
    since the beginning, NaN where the system does not say.
    """
    before, done = _resident_bytes(), threading.Event()
    peak = [before - before]

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], _resident_bytes() - before)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak[0] = max(peak[0], _resident_bytes() - before)


def _resident_bytes() -> float:
    """Return this process's resident memory, NaN where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return math.nan
    import resource

    return float(pages * resource.getpagesize())

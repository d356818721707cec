"""One referee for every method: the same code scores any linear map.

Methods never score themselves. Seconds and memory are taken around ``fit`` alone; what
the map does to every pair is measured afterwards, outside the timed region.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics.arrays import Rows, check_map, check_points
from isoproj.numerics.spectral import Array
from isoproj.proof.audit import audit

__all__ = ["Score", "run", "score_map"]

# Rows this far from orthonormal are still a projection's, in float32.
_ORTHONORMAL = 1e-5
_SAMPLE_SECONDS = 0.005
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What the referee found out about one map on one set of points.

    Parameters
    ----------
    n_components : int
        Output dimensions.
    distortion : float
        Largest share of squared length a pair loses; exact. At least 0.
    stretch : float
        Largest share a pair gains; exact. At least 0.
    isometry : float
        Two-sided constant after the best scaling: every squared length within
        ``1 +- isometry``. For a projection that is ``eps / (2 - eps)``.
    contracted : float
        Distortion once the map is scaled down to stretch no vector at all: what a
        bound on projections can be compared with. Equal to ``distortion`` for them.
    mean : float
        Mean share lost.
    q50, q90, q99, q999 : float
        Share lost that this part of the pairs stays at or below.
    orthonormality : float
        Largest entry of ``A A^T - I``.
    seconds : float
        Wall time of ``fit``; NaN where a bare map was scored.
    cpu_seconds : float
        Processor time of ``fit``, all threads together: what a busy machine does not
        change; NaN where a bare map was scored.
    peak_bytes : float
        Resident memory that ``fit`` added at its peak, from samples 5 ms apart; NaN
        where it could not be measured.
    lower_bound : float
        The method's own certified bound; NaN where it has none.
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
    seconds: float = math.nan
    cpu_seconds: float = math.nan
    peak_bytes: float = math.nan
    lower_bound: float = math.nan

    def as_dict(self) -> dict[str, float | int | None]:
        """Return the numbers as JSON can say them, None for NaN."""
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }


def score_map(
    X: ArrayLike | Rows,
    components: ArrayLike | Any,  # noqa: ANN401 - an array or anything fitted
    *,
    pairs: str | ArrayLike = "all",
) -> Score:
    """Measure any linear map on all pairs that count.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_points, n_features)
        The points.
    components : array-like of shape (k, n_features) or fitted estimator
        The map, or anything with ``components_``.
    pairs : {"all", "directions"} or array-like of shape (m, 2)
        Which pairs count.

    Returns
    -------
    Score
        Without seconds and memory.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.reproduction.referee import score_map
    >>> X = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])
    >>> score = score_map(X, [[1.0, 0.0]])
    >>> score.distortion, score.isometry
    (1.0, 1.0)
    """
    rows = check_points(X)
    linear = check_map(getattr(components, "components_", components), rows.shape[1])
    found = audit(rows, linear, pairs=pairs, n_worst=1)
    error = float(np.abs(linear @ linear.T - np.eye(linear.shape[0])).max())
    norm = float(np.linalg.norm(linear, 2)) ** 2
    least = 1.0 - found.distortion
    most = 1.0 + found.stretch
    if error > _ORTHONORMAL and found.stretch == 0.0 and least > 0.0:
        most = _largest_share(rows, linear, least, pairs)
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
        lower_bound=float(getattr(components, "lower_bound_", math.nan)),
    )


def _largest_share(
    rows: Rows, linear: Array, least: float, pairs: str | ArrayLike
) -> float:
    """Return the largest ratio of a map that stretches nothing.

    The scan reports gains only, so it is asked about the map scaled up.
    """
    scaled = audit(rows, linear / math.sqrt(least), pairs=pairs, n_worst=1)
    return (1.0 + scaled.stretch) * least


def run(
    estimator: Any,  # noqa: ANN401 - anything with fit and components_
    X: ArrayLike | Rows,
    y: object = None,
    *,
    pairs: str | ArrayLike = "all",
) -> Score:
    """Fit an estimator under the clock, then score its map.

    Parameters
    ----------
    estimator : object
        Has ``fit`` and, afterwards, ``components_``.
    X : array-like or sparse matrix of shape (n_points, n_features)
        The points.
    y : object
        Passed to ``fit``.
    pairs : {"all", "directions"} or array-like of shape (m, 2)
        Which pairs count for the score.

    Returns
    -------
    Score
        With seconds and memory of ``fit``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import PCAProjection
    >>> from isoproj.reproduction.referee import run
    >>> X = np.random.default_rng(0).normal(size=(10, 4))
    >>> run(PCAProjection(n_components=2), X).seconds > 0.0
    True
    """
    with _MemoryWatch() as memory:
        start, cpu_start = time.perf_counter(), time.process_time()
        estimator.fit(X, y)
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - cpu_start
    score = score_map(X, estimator, pairs=pairs)
    return replace(
        score, seconds=seconds, cpu_seconds=cpu_seconds, peak_bytes=memory.peak
    )


class _MemoryWatch:
    """Samples resident memory in a thread; tracing allocations would slow ``fit``."""

    def __init__(self) -> None:
        self.peak = math.nan
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._before = _resident_bytes()
        if not math.isnan(self._before):
            self.peak = 0.0
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._done.set()
            self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, _resident_bytes() - self._before)
            if self._done.wait(_SAMPLE_SECONDS):
                return


def _resident_bytes() -> float:
    """Return this process's resident memory, NaN where the system does not tell."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return math.nan
    import resource

    return float(pages * resource.getpagesize())

"""Estimate how long one exact search of all pairs takes, from a block of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from isoproj.engines.base import Engine
from isoproj.numerics.arrays import is_sparse
from isoproj.numerics.threads import n_threads, one_blas_thread
from isoproj.pairs.losses import exact_losses
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet
from isoproj.pairs.settings import USUAL

# Points on both sides of the block, and pairs of a list that are measured.
_BLOCK = 1024
_LISTED = 512
# Further columns of a sieve's product, and the passes over a block of a whole scan.
_FURTHER = 64
_PASSES = 3.0
_REPEATS = 3


def scan_seconds(
    points: Points, pairs: PairSet, k: int, engine: Engine | None = None
) -> float:
    """Return about how long the exact worst pair under a map to ``k`` takes."""
    d = int(points.rows.shape[1])
    if not pairs.is_dense(points.n_points):
        assert pairs.listed is not None
        some = pairs.listed[:: max(1, pairs.n_pairs // _LISTED)][:_LISTED]
        some_map = np.eye(min(k, d), d)
        each = _seconds(lambda: exact_losses(points, some, some_map)) / len(some)
        return each * pairs.n_pairs / _workers(engine)
    n_pairs = pairs.n_pairs
    if is_sparse(points.rows) or pairs.listed is not None:
        n_pairs = 0  # No sieve is used.
    return all_pairs_seconds(points.n_points, points.n_dims, k, n_pairs, engine)


def all_pairs_seconds(
    n_points: int, n_dims: int, k: int, n_sieved: int, engine: Engine | None = None
) -> float:
    """Return about how long a walk over all pairs takes, a sieve where it pays."""
    is_sieved = n_sieved > USUAL.few_pairs
    width = k + (min(_FURTHER, n_dims) if is_sieved else n_dims)
    rows = np.full((_BLOCK, width), 0.5, np.float32)

    def block() -> object:
        return np.flatnonzero(rows @ rows.T < 0.0)

    with one_blas_thread():
        each = _seconds(block) / _BLOCK**2
    each *= 1.0 if is_sieved else _PASSES
    return each * n_points**2 / 2.0 / _workers(engine)


def _workers(engine: Engine | None) -> int:
    """Return how many blocks are worked on at once."""
    return n_threads() if engine is None else int(getattr(engine, "n_threads", 1))


def _seconds(work: Callable[[], object]) -> float:
    """Return the shortest time of a piece of work."""
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)

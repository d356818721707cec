"""Find identical rows: hashes give candidates, the rows themselves decide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import Indices
from isoproj.numerics.threads import n_threads, threaded_map

__all__ = ["first_copies"]

Words = NDArray[np.uint64]

_CHUNK = 4096


def first_copies(rows: Rows) -> Indices:
    """Return for every row the smallest number of a row identical to it."""
    hashes = _sparse_hashes(rows) if is_sparse(rows) else _dense_hashes(rows)
    first = np.arange(rows.shape[0])
    order = np.argsort(hashes, kind="stable")
    repeated = np.flatnonzero(np.diff(hashes[order]) == 0)
    # Rows with equal hashes are candidates; the rows themselves are compared.
    for run in np.split(repeated, np.flatnonzero(np.diff(repeated) > 1) + 1):
        if run.size == 0:
            continue
        members = order[run[0] : run[-1] + 2]
        while members.size:
            same = _equals(rows, members)
            first[members[same]] = members[0]
            members = members[~same]
    return first


def _equals(rows: Rows, members: Indices) -> NDArray[np.bool_]:
    """Return which of the rows numbered ``members`` equal the first of them."""
    lead = as_dense(rows[members[:1]])
    same = np.empty(members.size, dtype=bool)
    for start in range(0, members.size, _CHUNK):
        block = as_dense(rows[members[start : start + _CHUNK]])
        same[start : start + _CHUNK] = (block == lead).all(axis=1)
    return same


def _multipliers(count: int) -> Words:
    """Return fixed random odd numbers."""
    generator = np.random.default_rng(20131)
    return generator.integers(1, 2**63, size=count, dtype=np.uint64) | np.uint64(1)


def _words(values: Rows) -> Words:
    """Return floats as 32-bit words; adding 0 makes -0 and 0 the same."""
    normal = np.ascontiguousarray(values + values.dtype.type(0.0))
    return normal.view(np.uint32).astype(np.uint64)


def _dense_hashes(rows: Rows) -> Words:
    """Return one 64-bit hash a row: words times random odd numbers, modulo 2^64."""
    per_value = rows.dtype.itemsize // 4
    multipliers = _multipliers(rows.shape[1] * per_value)
    hashes = np.empty(rows.shape[0], dtype=np.uint64)
    # Blocks of rows are small enough for their words to stay in the cache.
    step = max(1, 2**17 // max(1, multipliers.size))

    def fill(start: int) -> None:
        hashes[start : start + step] = _words(rows[start : start + step]) @ multipliers

    for _ in threaded_map(fill, range(0, rows.shape[0], step), n_threads()):
        pass
    return hashes


def _sparse_hashes(rows: Rows) -> Words:
    """Return the same hash as for dense rows, from the stored entries alone."""
    per_value = rows.dtype.itemsize // 4
    multipliers = _multipliers(rows.shape[1] * per_value).reshape(-1, per_value)
    terms = (_words(rows.data).reshape(-1, per_value) * multipliers[rows.indices]).sum(
        axis=1, dtype=np.uint64
    )
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])

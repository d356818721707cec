"""Operations on rows, dense or sparse: lengths, scaling, products, identical rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage
from isoproj.numerics.threads import (
    for_each_chunk,
    n_threads,
    threaded_list,
    threaded_map,
)

# Rows of a product, and rows that stay in the cache.
_CHUNK = 4096
_SMALL_CHUNK = 1024
# Entries of rows from which on threads share a product with them.
_MANY_ENTRIES = 2**17
# Sizes between 2^-100 and 2^100 can be squared in float64 without over- or underflow.
_SAFE_EXPONENT = 100
Real = NDArray[Any]
Words = NDArray[np.uint64]


def squared_lengths(gaps: Rows) -> Array:
    """Return the squared length of every row, dense or sparse."""
    if is_sparse(gaps):
        return np.asarray(gaps.multiply(gaps).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", gaps, gaps))


def largest_of_each(rows: Rows) -> Array:
    """Return the largest absolute value of every row, dense or sparse."""
    size = abs(rows).max(axis=1)
    return np.asarray(size.toarray().ravel() if is_sparse(rows) else size)


def scale_each(factors: Array, rows: Rows) -> Rows:
    """Multiply every row by its factor; dense rows in place."""
    if is_sparse(rows):
        return scipy.sparse.csr_array(scipy.sparse.diags_array(factors) @ rows)
    rows *= factors[:, None]
    return rows


def largest_entry(rows: Rows) -> float:
    """Return the largest absolute value."""
    values = rows.data if is_sparse(rows) else rows

    def look(start: int) -> float:
        chunk = values[start : start + _SMALL_CHUNK]
        return max(float(chunk.max()), -float(chunk.min()))

    starts = range(0, values.shape[0], _SMALL_CHUNK)
    return max(threaded_map(look, starts, n_threads()), default=0.0)


def power_of_two(rows: Rows) -> int:
    """Return the exponent of the power of two that makes squares safe when divided out.

    Zero, the common case, leaves the data as they are.
    """
    exponent = math.frexp(largest_entry(rows))[1]
    return exponent if abs(exponent) > _SAFE_EXPONENT else 0


def scale_in_place(values: Rows, exponent: int) -> None:
    """Divide dense or sparse values by ``2 ** exponent``."""
    if exponent == 0:
        return
    data = values.data if is_sparse(values) else values

    # Products round as ldexp does and are far faster. A power of two that is too large
    # to be a number is applied in two halves.
    powers = [exponent // 2, exponent - exponent // 2]
    factors = [2.0**-p for p in ([exponent] if abs(exponent) < 1000 else powers)]

    def scale(chunk: slice) -> None:
        for factor in factors:
            data[chunk] *= factor

    for_each_chunk(scale, data.shape[0], _SMALL_CHUNK)


def stacked(rows: Rows, more: Rows, storage: Storage | None = None) -> Rows:
    """Return rows above more rows; sparse if one of them is, else in ``storage``."""
    if is_sparse(rows) or is_sparse(more):
        first = scipy.sparse.csr_array(rows)
        return scipy.sparse.vstack([first, more], format="csr")
    shape = (rows.shape[0] + more.shape[0], rows.shape[1])
    both = (storage or Storage()).empty(shape, np.result_type(rows, more))
    both[: rows.shape[0]], both[rows.shape[0] :] = rows, more
    return both


def shared_parts(rows: Real) -> list[slice]:
    """Return slices of rows, one for each thread that has enough to do."""
    count = n_threads() if rows.size > _MANY_ENTRIES else 1
    ends = [len(rows) * part // count for part in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def share(work: Callable[[slice], None], rows: Real) -> None:
    """Call a function with slices of rows, on threads: for work that comes often."""
    threaded_list(work, shared_parts(rows), n_threads())


def shared_images(rows: Real, basis: Real) -> Real:
    """Return ``rows @ basis``, shared among threads."""
    images = np.empty((len(rows), basis.shape[1]), np.result_type(rows, basis))

    def project(part: slice) -> None:
        np.matmul(rows[part], basis, out=images[part])

    share(project, rows)
    return images


def shared_pull(rows: Real, coefficients: Real) -> Real:
    """Return ``rows.T @ coefficients``, shared among threads."""
    parts = threaded_list(
        lambda part: rows[part].T @ coefficients[part], shared_parts(rows), n_threads()
    )
    return np.asarray(sum(parts[1:], start=parts[0]))


def times(
    rows: Array,
    directions: Array,
    storage: Storage | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """Return ``rows @ directions``, the same for any number of threads.

    The result goes to ``out`` if that is given, otherwise to ``storage`` (None means
    memory).
    """
    shape = (rows.shape[0], directions.shape[1])
    result = (storage or Storage()).empty(shape) if out is None else out

    def fill(chunk: slice) -> None:
        np.matmul(rows[chunk], directions, out=result[chunk])

    for_each_chunk(fill, rows.shape[0], _CHUNK)
    return result


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

    def fill(chunk: slice) -> None:
        hashes[chunk] = _words(rows[chunk]) @ multipliers

    for_each_chunk(fill, rows.shape[0], step)
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

"""Exact recall of 10,000 queries among the 60,000 training images of MNIST.

``python benchmarks/recall.py mnist`` looks for the neighbours of the test images before
and after a map to 64 dimensions, exactly. It tells the rate as a share of that of the
plain matrix product of queries and rows, made by the same threads in the same run, and
the peak of the memory beyond the data. ``--write`` keeps the table. ``--rows`` and
``--queries`` take fewer.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from _data import data_file
from _results import keep

from isoproj.numerics.threads import n_threads, one_blas_thread, threaded_map
from isoproj.pairs.nearness import METRICS
from isoproj.proof.recall import compare_neighbors

# Queries and rows of a block of the plain product, as in an exact search.
BLOCK = (512, 8192)
K = 64


def peak() -> float:
    """Return the peak of this process's memory so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def plain_product(queries: np.ndarray, rows: np.ndarray) -> float:
    """Return the seconds of the product of all queries and rows, block by block."""

    def block(start: int) -> None:
        some = queries[start : start + BLOCK[0]]
        for first in range(0, len(rows), BLOCK[1]):
            some @ rows[first : first + BLOCK[1]].T

    start = time.perf_counter()
    with one_blas_thread():
        for _ in threaded_map(block, range(0, len(queries), BLOCK[0]), n_threads()):
            pass
    return time.perf_counter() - start


def mnist(n_rows: int, n_queries: int) -> list[str]:
    """Search under every metric, and return the lines of the table."""
    with np.load(data_file("mnist.npz")) as file:
        rows = file["train_images"][:n_rows].astype(np.float32)
        queries = file["test_images"][:n_queries].astype(np.float32)
    centred = rows[:4000] - rows[:4000].mean(axis=0)
    components = np.linalg.svd(centred, full_matrices=False)[2][:K].astype(np.float64)
    lines = [
        f"{len(queries):,} queries among {len(rows):,} rows of {rows.shape[1]} features"
        f", float32; principal axes to {K} dimensions; {n_threads()} threads. The "
        "plain product is that of queries and rows before the map, measured before and "
        "after the search.",
        "",
        "| metric | recall at 1 | at 10 | search | of the product rate | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    plain_product(queries, rows[: BLOCK[1]])
    before = peak()
    for metric in METRICS:
        product = plain_product(queries, rows)
        start = time.perf_counter()
        found = compare_neighbors(
            rows, components, (1, 10), metric=metric, queries=queries
        )
        seconds = time.perf_counter() - start
        product = 0.5 * (product + plain_product(queries, rows))
        lines.append(
            f"| {metric} | {found.recall[1]:.4f} | {found.recall[10]:.4f} | "
            f"{seconds:.1f} s | {product / seconds:.0%} | "
            f"{peak() - before:.0f} MB beyond the data |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print the table, and keep it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["mnist"])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--note", help="a line about the machine, kept with the table")
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args()
    lines = mnist(options.rows, options.queries)
    if options.note:
        lines += ["", options.note]
    if options.write:
        keep("recall", options.part, lines)


if __name__ == "__main__":
    main()

"""Figures of the foundation: agreement, speed and memory against the literal paper.

Run: python benchmarks/foundation.py [agreement] [speed] [audit]
BLAS runs on one thread in `agreement` and `speed`, for both sides.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np
from _data import mnist_digit, mnist_images
from literal import algorithm_1, directions_of

from isoproj import audit
from isoproj.numerics.threads import n_threads, one_blas_thread, threaded_map
from isoproj.pairs.moments import pose
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.dual_ascent import dual_ascent


def implicit(points: np.ndarray, k: int):
    prepared, pairs = prepare_pairs(points, rotate=True)
    return dual_ascent(pose(prepared, pairs, k))


def agreement() -> None:
    """Compare every step from the literal weights, and whole runs of both."""
    print("largest difference to the literal algorithm over 121 iterates")
    print("same weights: eps and g of the literal iterate, computed on points")
    print("free run: both left alone; where eigenvalues tie at k, rounding decides")
    print(f"{'digit':>5} {'n':>6} {'k':>3} {'same weights':>20} {'free run':>20}")
    for digit in (2, 5):
        for r in (46, 101):
            points = mnist_digit(digit, r)
            prepared, pairs = prepare_pairs(points, rotate=True)
            directions = directions_of(points)
            for k in (5, 10, 20, 40):
                with one_blas_thread():
                    run = algorithm_1(directions, k, keep_iterates=True)
                    problem = pose(prepared, pairs, k)
                    same = [values_of(problem, w) for w in run.iterates]
                free = [
                    (s.distortion, s.lower_bound) for s in dual_ascent(problem).history
                ]
                gaps = [
                    np.abs(np.subtract(x, run.history)).max(axis=0)
                    for x in (same, free)
                ]
                print(
                    f"{digit:5d} {len(directions):6d} {k:3d} "
                    + " ".join(f"{eps:9.1e}, {g:9.1e}" for eps, g in gaps)
                )


def values_of(problem, weights) -> tuple[float, float]:
    lower, basis = problem.dual(weights)
    return 1.0 - problem.retained(basis).min(), lower


def peak(function) -> int:
    tracemalloc.start()
    function()
    top = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return top


def speed(steps: int) -> None:
    points, k = mnist_digit(5, 448), 20

    def theirs(t: int = steps) -> None:
        with one_blas_thread():
            algorithm_1(directions_of(points), k, n_steps=t)

    start = time.perf_counter()
    theirs()
    literal_seconds = (time.perf_counter() - start) * 121 / (steps + 1)
    start = time.perf_counter()
    implicit(points, k)
    seconds = time.perf_counter() - start
    note = "" if steps == 120 else f" (scaled from {steps} steps)"
    print("n = 100128, d = 784, k = 20, 120 steps, one BLAS thread, data to answer")
    print(f"literal  {literal_seconds:8.1f} s{note}")
    print(f"isoproj  {seconds:8.2f} s   {literal_seconds / seconds:.0f} times faster")
    big, small = peak(lambda: theirs(2)), peak(lambda: implicit(points, k))
    print(
        f"peak memory of arrays: literal {big / 1e6:.0f} MB, ours {small / 1e6:.1f} MB"
    )
    print(f"                       {big / small:.0f} times less")


def product_rate(width: int) -> float:
    """Return the machine's float32 matrix-product rate in GFLOP/s, all threads."""
    threads, repeats, m, n = n_threads(), 16, 1024, 2048
    rng = np.random.default_rng(0)
    left = rng.random((threads, m, width), dtype=np.float32)
    right = rng.random((threads, n, width), dtype=np.float32)
    out = np.empty((threads, m, n), dtype=np.float32)

    def multiply(i: int) -> None:
        for _ in range(repeats):
            np.matmul(left[i], right[i].T, out=out[i])

    with one_blas_thread():
        list(threaded_map(multiply, range(threads), threads))
        start = time.perf_counter()
        list(threaded_map(multiply, range(threads), threads))
        seconds = time.perf_counter() - start
    return 2e-9 * threads * repeats * m * n * width / seconds


def audit_rate(n_points: int, k: int = 20) -> None:
    points = mnist_images(n_points)
    n, d = points.shape
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((d, k)))[0].T
    pairs = n * (n - 1) / 2
    print(f"audit of all {pairs:,.0f} pairs, {n} x {d} float32, {n_threads()} threads")
    for _ in range(5):
        before = product_rate(d)
        start = time.perf_counter()
        audit(points, basis)
        seconds = time.perf_counter() - start
        reference = (before + product_rate(d)) / 2
        rate = 2e-9 * pairs * d / seconds
        print(
            f"{seconds:6.2f} s  {pairs / seconds / 1e6:6.0f} M pairs/s  {rate:5.0f} of "
            f"{reference:5.0f} GFLOP/s = {rate / reference:.0%} of the product rate"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["agreement", "speed", "audit"])
    parser.add_argument("--literal-steps", type=int, default=120)
    parser.add_argument("--points", type=int, default=10_000)
    options = parser.parse_args()
    if "agreement" in options.what:
        agreement()
    if "speed" in options.what:
        speed(options.literal_steps)
    if "audit" in options.what:
        audit_rate(options.points)


if __name__ == "__main__":
    main()

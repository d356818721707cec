"""Figures of the minimax solver: the paper's grid, whole classes, embeddings, cost.

Run: python benchmarks/minimax.py [grid] [speed] [class] [embeddings] [cost] [stalls]
`--write` keeps the table of each part under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

import numpy as np
from _data import data_file, mnist_digit
from _results import RESULTS, keep
from literal import algorithm_1, directions_of

from isoproj import NearIsometricProjection, audit
from isoproj.numerics.threads import n_threads, one_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.fantope import solve_relaxation

SIZES = (46, 101, 142, 317, 448)
DIMENSIONS = (5, 7, 10, 15, 20, 30, 40)


def allowed_gap(r: int, k: int) -> float:
    """Return the optimality gap that each cell is held to."""
    if k in (5, 7) or (r == 46 and k == 40):
        return 0.08
    return 0.04 if k in (10, 15) else 0.015


def fitted(points, k, **options):
    start = time.perf_counter()
    options = {"random_state": 0, "tol": 1e-3, **options}
    model = NearIsometricProjection(k, **options).fit(points)
    return model, time.perf_counter() - start


def grid() -> list[str]:
    lines = [
        "| digit | r | k | paper's algorithm | minimax | lower bound | gap | allowed |"
        " solver gap | seconds | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    misses = 0
    for digit in (2, 4, 5, 7):
        for r in SIZES:
            points = mnist_digit(digit, r)
            for k in DIMENSIONS:
                paper, _ = fitted(points, k, solver="dual_ascent")
                model, seconds = fitted(points, k)
                gap = model.certificate_.optimality_gap
                last = model.history_[-1]
                solver_gap = last.relaxed / last.lower_bound - 1
                good = gap <= allowed_gap(r, k) and solver_gap <= 1e-3
                good &= model.distortion_ < paper.distortion_
                misses += not good
                lines.append(
                    f"| {digit} | {r} | {k} | {paper.distortion_:.4f} | "
                    f"{model.distortion_:.4f} | {model.lower_bound_:.4f} | {gap:.2%} | "
                    f"{allowed_gap(r, k):.1%} | {solver_gap:.1e} | {seconds:.2f} | "
                    f"{'ok' if good else 'MISSED'} |"
                )
                print(lines[-1], flush=True)
    lines += ["", f"{misses} of {len(lines) - 2} cells miss."]
    return lines


def speed(steps: int = 120) -> list[str]:
    points, k = mnist_digit(5, 448), 20
    with one_blas_thread():
        start = time.perf_counter()
        algorithm_1(directions_of(points), k, n_steps=steps)
        literal = (time.perf_counter() - start) * 121 / (steps + 1)
    lines = ["n = 100128, d = 784, k = 20; BLAS on one thread for both", ""]
    note = "" if steps == 120 else f" (scaled from {steps} steps)"
    lines.append(
        f"literal implementation of the paper, 120 steps: {literal:.1f} s{note}"
    )
    for _ in range(3):
        model, seconds = fitted(points, k)
        lines.append(
            f"certified minimax fit: {seconds:.2f} s, {literal / seconds:.0f} times "
            f"faster; distortion {model.distortion_:.4f}, lower bound "
            f"{model.lower_bound_:.4f}, {n_threads()} threads in the scans"
        )
    return lines


def whole_class(tol: float) -> list[str]:
    points = mnist_digit(5, None).astype(np.float32)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((784, 20)))[0].T
    audits = []
    for _ in range(5):
        start = time.perf_counter()
        audit(points, basis)
        audits.append(time.perf_counter() - start)
    unit = float(np.median(audits))
    lines = [f"digit 5, r = {len(points)}, k = 20; one audit {unit:.2f} s", ""]
    for each in (tol, 1e-3):
        model, seconds = fitted(points, 20, tol=each)
        lines.append(
            f"tol {each:g}: distortion {model.distortion_:.4f} over all "
            f"{model.certificate_.n_pairs:,} pairs, lower bound "
            f"{model.lower_bound_:.4f}, {len(model.history_)} rounds, "
            f"{seconds:.1f} s = {seconds / unit:.0f} audits"
        )
    return lines


def embeddings() -> list[str]:
    with np.load(data_file("text_embeddings_384d.npz")) as file:
        points = file["embeddings"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, seconds = fitted(points, 64, tol=1e-1)
    certificate = model.certificate_
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return [
        f"text embeddings, {points.shape[0]} x {points.shape[1]} float32, k = 64",
        "",
        f"distortion {model.distortion_:.4f} over {certificate.n_pairs:,} pairs "
        f"({certificate.n_identical} of identical points left out), lower bound "
        f"{model.lower_bound_:.4f}, gap {certificate.optimality_gap:.1%}",
        f"{seconds:.0f} s, {len(model.history_)} rounds, peak memory {memory:.1f} GB, "
        f"status {model.status_}",
    ]


def cost() -> list[str]:
    images = mnist_digit(5, None)
    others = np.vstack([mnist_digit(digit, None) for digit in (1, 3, 6)])
    pool = np.random.default_rng(0).permutation(np.vstack([images, others]))
    lines = ["| r | k | seconds |", "|---|---|---|"]
    by_size, by_dimension = [], []
    for r in (500, 1000, 2000, 5000, 10_000, 20_000):
        _, seconds = fitted(pool[:r].astype(np.float32), 20, tol=1e-2)
        by_size.append((r, seconds))
        lines.append(f"| {r} | 20 | {seconds:.2f} |")
        print(lines[-1], flush=True)
    for k in (5, 10, 20, 40, 60, 100):
        _, seconds = fitted(pool[:1000].astype(np.float32), k, tol=1e-2)
        by_dimension.append((k, seconds))
        lines.append(f"| 1000 | {k} | {seconds:.2f} |")
        print(lines[-1], flush=True)
    slopes = [
        np.polyfit(*np.log(np.transpose(x)), 1)[0] for x in (by_size, by_dimension)
    ]
    lines += ["", f"seconds grow like r^{slopes[0]:.2f} and like k^{slopes[1]:.2f}"]
    draw_cost(by_size, by_dimension, slopes)
    return lines


def small_data(seed: int):
    """Yield small data sets on which nearly every pair is tight, with some k."""
    rng = np.random.default_rng(seed)
    sparse = rng.uniform(size=(40, 3))
    yield np.where(sparse < 0.6, 0.0, sparse), (1, 2)
    yield rng.integers(0, 4, size=(30, 4)).astype(float), (1, 2, 3)
    yield (rng.uniform(size=(60, 8)) < 0.3).astype(float), (1, 3, 5)
    yield rng.standard_normal((60, 6)), (1, 3)
    yield rng.standard_normal((50, 3)) * [1.0, 1.0, 0.001], (1, 2)


def stalls(n_seeds: int = 60, tol: float = 1e-4) -> list[str]:
    """Count small problems on which the relaxation does not close its gap."""
    steps, open_ones = [], 0
    for seed in range(n_seeds):
        for rows, ks in small_data(seed):
            search = PairSearch(*prepare_pairs(np.unique(rows, axis=0), rotate=True))
            for k in ks:
                found, n_rounds = solve_relaxation(search, k, tol=tol)
                steps.append(n_rounds)
                open_ones += found.relaxed > found.lower * (1.0 + tol) + 1e-9
    return [
        f"{open_ones} of {len(steps)} small problems with nearly every pair tight stay "
        f"above a gap of {tol:g}; {np.mean(steps):.1f} rounds in the mean"
    ]


def draw_cost(by_size, by_dimension, slopes) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for axis, data, slope, name in zip(
        axes, (by_size, by_dimension), slopes, ("points r", "dimensions k"), strict=True
    ):
        x, y = np.transpose(data)
        axis.loglog(x, y, "o-", color="#0072b2")
        axis.set(xlabel=name, ylabel="seconds of a certified fit")
        axis.set_title(f"exponent {slope:.2f}", fontsize=10)
        axis.grid(alpha=0.3, which="both")
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "cost.svg")
    figure.savefig(RESULTS / "cost.png", dpi=150)


def main() -> None:
    parts = {
        "grid": grid,
        "speed": lambda: speed(options.literal_steps),
        "class": lambda: whole_class(0.1),
        "embeddings": embeddings,
        "cost": cost,
        "stalls": stalls,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(parts))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--literal-steps", type=int, default=120)
    options = parser.parse_args()
    for name in options.what:
        lines = parts[name]()
        print("\n".join(lines) if name not in ("grid", "cost") else lines[-1])
        if options.write:
            keep("minimax", name, lines)


if __name__ == "__main__":
    main()

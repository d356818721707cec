"""Figures of the questions about k: targets, the whole curve, new points.

Run: python benchmarks/dimensions.py [targets] [curve] [update]
`--write` keeps the table of each part under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from _data import data_file, mnist_digit
from _results import keep
from sklearn.random_projection import johnson_lindenstrauss_min_dim

from isoproj import NearIsometricProjection, audit, distortion_curve
from isoproj.baselines import PCAProjection, RandomProjection

TARGETS = (0.1, 0.2, 0.3, 0.5)


def smallest(points, make, target: float) -> int:
    """Return the smallest k at which a method is under the target, by bisection."""
    low, high = 0, min(points.shape)
    while high - low > 1:
        middle = (low + high) // 2
        components = make(middle).fit(points).components_
        loss = audit(points, components, spread=False).distortion
        low, high = (low, middle) if loss <= target else (middle, high)
    return high


def targets() -> list[str]:
    lines = [
        "Dimensions for a worst loss; random means an orthogonal random projection as"
        " it is, and the formula is for 1 +- eps with eps = target / (2 - target)."
        " Seconds are of processor time, for the two columns that are ours.",
        "",
        "| data | r | target | found | proved impossible | PCA | random | JL | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    with np.load(data_file("text_embeddings_384d.npz")) as file:
        posts = np.unique(file["embeddings"], axis=0)
    posts = np.random.default_rng(0).permutation(posts)[:150].astype(np.float64)
    for name, points in (("MNIST 5", mnist_digit(5, 142)), ("embeddings", posts)):
        for target in TARGETS:
            start = time.process_time()
            model = NearIsometricProjection(
                max_distortion=target, random_state=0, tol=1e-3
            )
            model.fit(points)
            seconds = time.process_time() - start
            eps = target / (2.0 - target)
            cells = [
                name,
                len(points),
                target,
                model.n_components_,
                model.n_components_lower_bound_ - 1,
                smallest(points, PCAProjection, target),
                smallest(points, lambda k: RandomProjection(k, random_state=0), target),
                int(johnson_lindenstrauss_min_dim(len(points), eps=eps)),
                f"{seconds:.1f}",
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
            print(lines[-1], flush=True)
    return lines


def curve() -> list[str]:
    points = mnist_digit(5, 448)
    start = time.process_time()
    NearIsometricProjection(20, random_state=0, tol=1e-3).fit(points)
    one = time.process_time() - start
    start = time.process_time()
    found = distortion_curve(points, range(1, 61), random_state=0)
    seconds = time.process_time() - start
    return [
        f"MNIST digit 5, r = 448, k = 1 to 60: {seconds:.1f} s of processor time, "
        f"{seconds / one:.1f} times one fit at k = 20 ({one:.1f} s); "
        f"knees {found.knees}",
        "",
        "```",
        str(found),
        "```",
    ]


def update() -> list[str]:
    points = mnist_digit(5, 1000)
    lines = [
        "MNIST digit 5: 10 of 1,000 images new, k = 20; seconds of processor time.",
        "",
        "| seed | | update, s | new fit, s | ratio | distortion | of a new fit | gap "
        "| of a new fit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(points))
        old, new = points[order[:990]], points[order[990:]]
        model = NearIsometricProjection(20, random_state=0, tol=1e-3).fit(old)
        start = time.process_time()
        model.update(new, old)
        seconds = time.process_time() - start
        everything = np.vstack([old, new])
        start = time.process_time()
        again = NearIsometricProjection(20, random_state=0, tol=1e-3).fit(everything)
        full = time.process_time() - start
        cells = [
            seed,
            model.updated_,
            f"{seconds:.2f}",
            f"{full:.2f}",
            f"{full / seconds:.1f}",
            f"{model.distortion_:.4f}",
            f"{again.distortion_:.4f}",
            f"{model.certificate_.optimality_gap:.2%}",
            f"{again.certificate_.optimality_gap:.2%}",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parts = {"targets": targets, "curve": curve, "update": update}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(parts))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.what:
        lines = parts[name]()
        print("\n".join(lines))
        if options.write:
            keep("dimensions", name, lines, "Dimensions")


if __name__ == "__main__":
    main()

"""What projections lose on points they were not fitted on, from few points to many.

MNIST images in their first 64 principal coordinates, so that 50 points a dimension are
quickly fitted. Every method is fitted on r of them, and measured on all pairs of these,
on all pairs of other images, and on all pairs of one of these and one of the others.

Run: python benchmarks/transfer.py [--write]
`--write` keeps the table as benchmarks/results/transfer.md and draws
docs/images/transfer.png.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from _data import mnist_images

from isoproj import GuaranteedPCA, NearIsometricProjection, audit
from isoproj.baselines import PCAProjection, RandomProjection
from isoproj.pairs.rule import PairRule
from isoproj.plot.axes import tidy
from isoproj.plot.style import colour_of
from isoproj.proof.audit import AuditResult
from isoproj.proof.heldout import Split, measure_heldout

ROOT = Path(__file__).parents[1]
D, K, N_HELDOUT = 64, 16, 500
SHARES = (0.5, 1, 2, 5, 10, 25, 50)
METHODS = {
    "PCA": (colour_of("pca"), lambda: PCAProjection(K)),
    "random": (colour_of("random"), lambda: RandomProjection(K, random_state=0)),
    "minimax": (
        colour_of("isoproj"),
        lambda: NearIsometricProjection(K, random_state=0, tol=1e-3),
    ),
    "GuaranteedPCA": (
        colour_of("guaranteed_pca"),
        lambda: GuaranteedPCA(K, random_state=0, tol=1e-3),
    ),
}
SETS = ("fitted", "held out", "held out to fitted")


def images() -> np.ndarray:
    """Return all training images in their first principal coordinates, shuffled."""
    rows = mnist_images().astype(np.float64)
    rows -= rows.mean(axis=0)
    vectors = np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
    return np.random.default_rng(0).permutation(rows @ vectors[:, :D])


def measured(points: np.ndarray, model: Any) -> tuple[AuditResult, ...]:
    """Fit on all rows but the last; return what each set of pairs loses."""
    split = Split(
        np.arange(len(points) - N_HELDOUT),
        np.arange(len(points) - N_HELDOUT, len(points)),
    )
    fitted = points[split.training]
    components = model.fit(fitted).components_
    found = measure_heldout(points, split, components, PairRule(), distortion=np.nan)
    return audit(fitted, components), found.within, found.to_training


def table() -> Iterator[tuple[int, str, tuple[AuditResult, ...], float]]:
    rows = images()
    heldout = rows[-N_HELDOUT:]
    for share in SHARES:
        r = int(share * D)
        points = np.vstack([rows[:r], heldout])
        for name, (_, make) in METHODS.items():
            start = time.process_time()
            results = measured(points, make())
            yield r, name, results, time.process_time() - start


def lines_of(rows: list[tuple[int, str, tuple[AuditResult, ...], float]]) -> list[str]:
    lines = [
        f"MNIST in its first {D} principal coordinates, k = {K}, {N_HELDOUT} images "
        "held out: what the worst pair loses of its squared length / what 99.9 % of "
        "the pairs stay below. Seconds are of processor time, for fit and measuring.",
        "",
        "| r | r / d | method | fitted pairs | held-out pairs | held-out to fitted "
        "| s |",
        "|---|---|---|---|---|---|---|",
    ]
    for r, name, results, seconds in rows:
        cells = [f"{x.distortion:.3f} / {x.quantiles[0.999]:.3f}" for x in results]
        shown = " | ".join(cells)
        lines.append(f"| {r:,} | {r / D:g} | {name} | {shown} | {seconds:.1f} |")
    return lines


def draw(rows: list[tuple[int, str, tuple[AuditResult, ...], float]]) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True, layout="tight")
    for at, (axis, title) in enumerate(zip(axes, SETS, strict=True)):
        for name, (colour, _) in METHODS.items():
            mine = [(r / D, found[at]) for r, label, found, _ in rows if label == name]
            shares = [share for share, _ in mine]
            worst = [result.distortion for _, result in mine]
            most = [result.quantiles[0.999] for _, result in mine]
            axis.plot(shares, worst, "o-", color=colour, label=name)
            axis.plot(shares, most, ":", color=colour)
        axis.set(xscale="log", ylim=(0, 1.02), xlabel="points fitted / dimensions")
        axis.set_title(f"{title} pairs")
        tidy(axis)
    axes[0].set_ylabel("squared length lost")
    axes[0].legend(frameon=False, fontsize="small", loc="lower right")
    figure.savefig(ROOT / "docs" / "images" / "transfer.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for row in table():
        rows.append(row)
        print(lines_of([row])[-1], flush=True)
    if options.write:
        command = "`python benchmarks/transfer.py --write`"
        text = "\n".join(["# Transfer", "", f"Made by {command}.", "", *lines_of(rows)])
        (ROOT / "benchmarks" / "results" / "transfer.md").write_text(text + "\n")
        draw(rows)


if __name__ == "__main__":
    main()

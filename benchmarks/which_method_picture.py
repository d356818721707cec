"""Draw the documentation's picture: variance kept against what the worst pair loses.

Run: python benchmarks/which_method_picture.py
"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from isoproj import GuaranteedPCA, NearIsometricProjection
from isoproj.baselines import PCAProjection, RandomProjection
from isoproj.plot.axes import tidy
from isoproj.plot.style import colour_of

K, N_POINTS = 10, 400
SLACKS = (0.05, 0.1, 0.2)


def variance_kept(points, model) -> float:
    centred = points - points.mean(axis=0)
    return float(((centred @ model.components_.T) ** 2).sum() / (centred**2).sum())


def main() -> None:
    points = load_digits().data[:N_POINTS]
    best = NearIsometricProjection(K, random_state=0, tol=1e-3).fit(points)
    rivals = {
        "isoproj": best,
        "pca": PCAProjection(K).fit(points),
        "random": RandomProjection(K, random_state=0).fit(points),
    }
    spots = {n: (m.distortion_, variance_kept(points, m)) for n, m in rivals.items()}
    capped = []
    for slack in SLACKS:
        model = GuaranteedPCA(K, slack=slack, random_state=0, tol=1e-3).fit(points)
        capped.append((model.distortion_, model.kept_))
        print(f"slack {slack}: loses {capped[-1][0]:.4f}, keeps {capped[-1][1]:.4f}")
    for name, spot in spots.items():
        print(f"{name}: loses {spot[0]:.4f}, keeps {spot[1]:.4f}")
    draw(spots, capped, best.lower_bound_)


def draw(spots, capped, floor) -> None:
    figure, axis = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    axis.axvspan(0.0, floor, color=colour_of("floor"), alpha=0.1, linewidth=0)
    axis.axvline(floor, color=colour_of("floor"), linestyle="--")
    axis.text(
        floor - 0.005,
        0.04,
        "no projection\ngets here",
        ha="right",
        color=colour_of("floor"),
    )
    axis.plot(*zip(*capped, strict=True), "o-", color=colour_of("guaranteed_pca"))
    names = {"isoproj": "NearIsometricProjection", "pca": "PCA", "random": "random"}
    for name, (loss, kept) in spots.items():
        axis.plot(loss, kept, "o", color=colour_of(name), markersize=9)
        axis.annotate(
            names[name],
            (loss, kept),
            xytext=(8, -14),
            textcoords="offset points",
            color=colour_of(name),
        )
    axis.annotate(
        "GuaranteedPCA,\nslack 0.05 to 0.2",
        capped[0],
        xytext=(6, -30),
        textcoords="offset points",
        color=colour_of("guaranteed_pca"),
    )
    axis.set(
        xlabel="share of squared length the worst pair loses (left is better)",
        ylabel="variance kept (up is better)",
        title=f"{N_POINTS} digits, 64 dimensions to {K}",
        xlim=(floor - 0.12, 1.04),
        ylim=(0, 1),
    )
    tidy(axis)
    folder = Path(__file__).parents[1] / "docs" / "images"
    figure.savefig(folder / "which_method.png", dpi=150)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()

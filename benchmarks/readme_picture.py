"""Draw the README's picture: what the worst pair loses, against k.

Run: python benchmarks/readme_picture.py
"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from isoproj import NearIsometricProjection, audit

DIMENSIONS = (4, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40)
# Okabe and Ito's colours stay apart in print and for the colour-blind.
COLOURS = {
    "random": "#999999",
    "PCA": "#e69f00",
    "isoproj": "#0072b2",
    "no projection can get below": "#009e73",
}


def curves() -> dict[str, list[float]]:
    points = load_digits().data
    values: dict[str, list[float]] = {name: [] for name in COLOURS}
    for k in DIMENSIONS:
        basis = np.random.default_rng(0).standard_normal((points.shape[1], k))
        values["random"].append(audit(points, np.linalg.qr(basis)[0].T).distortion)
        values["PCA"].append(audit(points, PCA(k).fit(points)).distortion)
        model = NearIsometricProjection(k, random_state=0, tol=1e-3).fit(points)
        values["isoproj"].append(model.distortion_)
        values["no projection can get below"].append(model.lower_bound_)
        print(k, *(f"{v[-1]:.4f}" for v in values.values()), flush=True)
    return values


def draw(values: dict[str, list[float]]) -> None:
    figure, axis = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    for name, line in values.items():
        floor = name.startswith("no projection")
        style = {"linestyle": "--"} if floor else {"marker": "o", "markersize": 4}
        axis.plot(DIMENSIONS, line, color=COLOURS[name], linewidth=2, **style)
        if not floor:
            axis.annotate(
                name,
                (DIMENSIONS[-1], line[-1]),
                xytext=(6, 0),
                textcoords="offset points",
                color=COLOURS[name],
                va="center",
            )
    axis.text(8, 0.25, "no projection can get\nbelow the dashed line", color="#00664c")
    floor = values["no projection can get below"]
    axis.fill_between(
        DIMENSIONS,
        0,
        floor,
        color=COLOURS["no projection can get below"],
        alpha=0.08,
        linewidth=0,
    )
    axis.set(
        xlabel="dimensions kept (of 64)",
        ylabel="share lost by the worst pair",
        ylim=(0, 1),
        xlim=(DIMENSIONS[0], DIMENSIONS[-1]),
        title="scikit-learn's digits, all 1.6 million pairs",
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
    folder = Path(__file__).parents[1] / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "worst_pair.png", dpi=150)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draw(curves())

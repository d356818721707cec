"""The rank certificates of turboquant-pro beside ours, for the same projections.

Theirs rest on kappa, the ratio of the largest to the smallest share of a distance that
a pair keeps, measured on anchors and by default without the outer 5 % of pairs. A
projection of distortion eps has kappa at most 1 / sqrt(1 - eps) over all pairs; we
minimise that, and prove what no projection gets below.

Run: python benchmarks/rank_certificates.py digits [--write]
Needs: pip install turboquant-pro
"""

from __future__ import annotations

import math
import sys

import numpy as np
from _results import keep
from scipy.stats import kendalltau
from sklearn.datasets import load_digits
from turboquant_pro import __version__
from turboquant_pro.rank_certificate import (
    certificate_from_embeddings,
    certify,
    pairwise_distances,
)

from isoproj import GuaranteedPCA, NearIsometricProjection
from isoproj.baselines import PCAProjection

N_POINTS, KS = 500, (10, 20, 40)


def certificates(X: np.ndarray, images: np.ndarray) -> list[str]:
    """Return kappa and the floor of Kendall's tau: trimmed, on all pairs, measured."""
    padded = np.zeros_like(X)
    padded[:, : images.shape[1]] = images
    anchors = certificate_from_embeddings(X, padded, metric="l2")
    exact, after = (pairwise_distances(rows, "l2") for rows in (X, padded))
    strict = certify(exact, after, lo=0, hi=100)
    return [
        f"{anchors.kappa:.2f}",
        f"{anchors.tau_floor:.2f}",
        f"{strict.kappa:.2f}",
        f"{strict.tau_floor:.2f}",
        f"{kendalltau(exact, after).statistic:.2f}",
    ]


def digits() -> list[str]:
    X = load_digits().data[:N_POINTS]
    lines = [
        f"scikit-learn's digits, {N_POINTS} images; turboquant-pro {__version__}, "
        "200 anchors, distances.",
        "",
        "| k | projection | its kappa, trimmed | its tau floor | "
        "kappa, all pairs | tau floor, all pairs | tau measured | 1/sqrt(1 - eps) | "
        "no projection below that |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for k in KS:
        ours = NearIsometricProjection(k, random_state=0, time_limit=60.0).fit(X)
        capped = GuaranteedPCA(k, random_state=0, time_limit=60.0).fit(X)
        floor = 1.0 / math.sqrt(1.0 - ours.lower_bound_)
        for model in (PCAProjection(k).fit(X), capped, ours):
            kappa = 1.0 / math.sqrt(1.0 - model.distortion_)
            cells = [
                str(k),
                type(model).__name__,
                *certificates(X, model.transform(X)),
                f"{kappa:.2f}",
                f"{floor:.2f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    if sys.argv[1:2] != ["digits"]:
        sys.exit(__doc__)
    lines = digits()
    print("\n".join(lines))
    if "--write" in sys.argv:
        keep("rank_certificates", "digits", lines)


if __name__ == "__main__":
    main()

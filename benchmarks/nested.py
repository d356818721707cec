"""What a nested projection loses beside separate fits and beside PCA's prefixes.

``python benchmarks/nested.py prefixes`` fits one nested projection to each data set,
and a projection of its own for every prefix. It tells the distortion over all pairs of
both, of PCA's prefix, and the bound that the prefix's certificate proves. ``--write``
keeps the table. ``--sets digits text`` names the sets to fit.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from _data import data_file, mnist_images
from _results import keep
from sklearn.datasets import load_digits

from isoproj import NearIsometricProjection, verify
from isoproj.baselines import PCAProjection

HEAD = [
    "| data | shape | k | nested | alone | above it | no projection below | PCA |",
    "|---|---|---|---|---|---|---|---|",
]


def _text() -> np.ndarray:
    return np.load(data_file("text_embeddings_384d.npz"))["embeddings"][:1500]


SETS = {
    "digits": (lambda: load_digits().data, (16, 32, 48)),
    "MNIST": (lambda: mnist_images(1000), (16, 32, 64, 128)),
    "text embeddings": (_text, (16, 32, 64, 128)),
}


def rows_of(name: str, points: np.ndarray, ks: tuple[int, ...]) -> list[str]:
    """Fit one set nested and apart, verify it, and return the rows of the table."""
    model = NearIsometricProjection(ks[-1], nested=ks[:-1], random_state=0).fit(points)
    verify(model, points)
    found = []
    for k, certificate in model.certificates_.items():
        alone = NearIsometricProjection(k, random_state=0).fit(points).distortion_
        pca = PCAProjection(k).fit(points).distortion_
        nested = certificate.distortion
        found.append(
            f"| {name} | {points.shape[0]} x {points.shape[1]} | {k} | {nested:.4f} | "
            f"{alone:.4f} | {nested / alone - 1.0:+.1%} | "
            f"{certificate.lower_bound:.4f} | {pca:.4f} |"
        )
        print(found[-1], flush=True)
    return found


def main() -> None:
    """Print the table, and keep it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["prefixes"])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = list(HEAD)
    for name in options.sets:
        load, ks = SETS[name]
        lines += rows_of(name, load(), ks)
    if options.write:
        keep("nested", options.part, lines, "nested projections")


if __name__ == "__main__":
    main()

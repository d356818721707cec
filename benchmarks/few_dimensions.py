"""How far from the best a fit to few dimensions can be, with and without the hull.

``python benchmarks/few_dimensions.py gaps`` fits ordinary tables at defaults, and tells
the gap that the dual weights alone prove and the gap with the hull bound. ``--write``
keeps the table, row by row. ``--sets iris wine`` names the sets to fit.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from _results import keep
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

from isoproj import NearIsometricProjection, verify
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.bounds import lower_bound

HEAD = [
    "| data | shape | k | found | weights prove | gap | both prove | gap | status |",
    "|---|---|---|---|---|---|---|---|---|",
]


def _scaled(rows):
    return StandardScaler().fit_transform(rows)


def _normal(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def _low_rank():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((800, 10)) @ rng.standard_normal((10, 200))
    return rows + 0.05 * rows.std() * rng.standard_normal(rows.shape)


SETS = {
    "iris": (lambda: datasets.load_iris().data, (1, 2, 3)),
    "swiss roll": (
        lambda: datasets.make_swiss_roll(400, random_state=0)[0],
        (1, 2),
    ),
    "wine": (lambda: datasets.load_wine().data, (2, 3)),
    "wine, standardised": (lambda: _scaled(datasets.load_wine().data), (2, 5)),
    "diabetes": (lambda: datasets.load_diabetes().data, (2, 3, 4, 5)),
    "breast cancer": (lambda: datasets.load_breast_cancer().data, (2, 3, 5)),
    "breast cancer, standardised": (
        lambda: _scaled(datasets.load_breast_cancer().data),
        (2, 5),
    ),
    "Student t": (
        lambda: np.random.default_rng(0).standard_t(2, size=(500, 40)),
        (5,),
    ),
    "one-hot": (
        lambda: np.eye(50)[np.random.default_rng(0).integers(50, size=300)],
        (5,),
    ),
    "random walks": (lambda: _normal(500, 128).cumsum(axis=1), (5,)),
    "rank 10 and noise": (_low_rank, (5,)),
    "digits": (lambda: datasets.load_digits().data, (2, 5)),
    "blobs": (
        lambda: datasets.make_blobs(1000, 30, centers=8, random_state=0)[0],
        (3,),
    ),
    "isotropic normal": (lambda: _normal(500, 30), (5,)),
}


def row(name: str, rows: np.ndarray, k: int) -> str:
    """Fit one set, verify the certificate, and return a row of the table."""
    model = NearIsometricProjection(k, random_state=0).fit(rows)
    certificate = model.certificate_
    verify(certificate, rows)
    points, _ = prepare_pairs(rows, rotate=False)
    fantope = lower_bound(points, certificate.weighted_pairs, certificate.weights, k)
    n, d = rows.shape
    found, both = certificate.distortion, certificate.lower_bound
    return (
        f"| {name} | {n} x {d} | {k} | {found:.4f} | {fantope:.4f} | "
        f"{found / fantope - 1:.1%} | {both:.4f} | {found / both - 1:.1%} | "
        f"{model.status_} |"
    )


def main() -> None:
    """Print the table, and keep it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["gaps"])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    options = parser.parse_args()
    lines = list(HEAD)
    print(*lines, sep="\n")
    for name in options.sets:
        make, ks = SETS[name]
        for k in ks:
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lines.append(row(name, make(), k))
            print(lines[-1], f"{time.perf_counter() - start:.0f} s", flush=True)
            if options.write:
                keep("few_dimensions", options.part, lines)


if __name__ == "__main__":
    main()

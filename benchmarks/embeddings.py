"""Compress text embeddings for vector search: recall@10 and the worst pair, at equal k.

Fits every method on the index (training posts), asks with the test posts, and prints a
Markdown table. Neighbours in all 384 dimensions are the truth.

Run: python benchmarks/embeddings.py [k ...]    (minutes; default 32 64 128)
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from _data import data_file

import isoproj
from isoproj import NearIsometricProjection, audit
from isoproj.baselines import PCAProjection, RandomProjection

NEIGHBOURS = 10
SECONDS = 300.0


def load() -> tuple[np.ndarray, np.ndarray]:
    with np.load(data_file("text_embeddings_384d.npz")) as file:
        rows, is_test = file["embeddings"], file["is_test"].astype(bool)
    return rows[~is_test], rows[is_test]


def neighbours(index: np.ndarray, queries: np.ndarray, count: int) -> np.ndarray:
    """Return the nearest rows of the index to every query, by Euclidean distance."""
    found = np.empty((len(queries), count), dtype=np.intp)
    squares = np.einsum("ij,ij->i", index, index)
    for start in range(0, len(queries), 512):
        block = queries[start : start + 512]
        gaps = squares - 2.0 * (block @ index.T)
        found[start : start + 512] = np.argpartition(gaps, count, axis=1)[:, :count]
    return found


def recall(truth: np.ndarray, found: np.ndarray) -> float:
    shared = [np.intersect1d(a, b).size for a, b in zip(truth, found, strict=True)]
    return float(np.mean(shared)) / truth.shape[1]


def methods(k: int) -> dict[str, object]:
    chosen: dict[str, object] = {
        "isoproj": NearIsometricProjection(
            k, random_state=0, tol=1e-3, time_limit=SECONDS
        ),
        "PCA": PCAProjection(k),
        "random": RandomProjection(k, random_state=0),
    }
    if hasattr(isoproj, "GuaranteedPCA"):
        capped = isoproj.GuaranteedPCA(k, random_state=0, tol=1e-3, time_limit=SECONDS)
        chosen = {"GuaranteedPCA": capped, **chosen}
    return chosen


def main(ks: list[int]) -> None:
    index, queries = load()
    truth = neighbours(index, queries, NEIGHBOURS)
    print(
        f"index {index.shape[0]:,} posts, {queries.shape[0]:,} queries, 384 dimensions"
    )
    print("\n| k | method | worst pair loses | 99.9% lose at most | mean | recall@10 |")
    print("|---|---|---|---|---|---|", flush=True)
    for k in ks:
        floor = None
        for name, method in methods(k).items():
            model = method.fit(index)
            result = audit(index, model)
            found = neighbours(
                model.transform(index), model.transform(queries), NEIGHBOURS
            )
            stopped = getattr(model, "status_", None) == "time_limit"
            name += " (stopped by the limit)" if stopped else ""
            floor = floor or getattr(model, "lower_bound_", None)
            print(
                f"| {k} | {name} | {result.distortion:.4f} | "
                f"{result.quantiles[0.999]:.4f} | {result.mean:.4f} | "
                f"{recall(truth, found):.4f} |",
                flush=True,
            )
        print(f"| {k} | *no projection below* | {floor:.4f} | | | |", flush=True)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main([int(k) for k in sys.argv[1:]] or [32, 64, 128])

"""Compress text embeddings for vector search: recall@10 and the worst pair, at equal k.

python benchmarks/embeddings.py posts [--write] [-k K ...] [--seconds S]

Fits every method on the index (training posts) with its defaults and asks with the test
posts. Neighbours in all 384 dimensions are the truth; recall is exact. ``--seconds``
limits `GuaranteedPCA`, whose defaults take long on data of this size.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from _data import data_file
from _results import keep

from isoproj import GuaranteedPCA, NearIsometricProjection, audit
from isoproj.baselines import PCAProjection, RandomProjection

NEIGHBOURS = 10


def load() -> tuple[np.ndarray, np.ndarray]:
    with np.load(data_file("text_embeddings_384d.npz")) as file:
        rows, is_test = file["embeddings"], file["is_test"].astype(bool)
    return rows[~is_test], rows[is_test]


def methods(k: int, seconds: float) -> dict[str, object]:
    return {
        "isoproj": NearIsometricProjection(k, random_state=0),
        "GuaranteedPCA": GuaranteedPCA(k, random_state=0, time_limit=seconds),
        "PCA": PCAProjection(k),
        "random": RandomProjection(k, random_state=0),
    }


def row(k: int, name: str, model: object, index, queries) -> str:
    """Fit and measure one method."""
    start = time.perf_counter()
    model.fit(index)
    taken = time.perf_counter() - start
    result = audit(index, model, recall=(NEIGHBOURS,), queries=queries)
    cosine = audit(
        index, model, recall=(NEIGHBOURS,), queries=queries, metric="cosine"
    ).recall[NEIGHBOURS]
    name += " (stopped)" if getattr(model, "status_", None) == "time_limit" else ""
    lower = getattr(model, "lower_bound_", None)
    gap = "" if lower is None else f"{result.distortion / lower - 1.0:.1%}"
    return (
        f"| {k} | {name} | {result.distortion:.4f} | {gap} | "
        f"{result.quantiles[0.999]:.4f} | {result.mean:.4f} | "
        f"{result.recall[NEIGHBOURS]:.4f} | {cosine:.4f} | {taken:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["posts"], help="which data")
    parser.add_argument("--write", action="store_true", help="keep the table")
    parser.add_argument("-k", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    index, queries = load()
    lines = [
        f"{index.shape[0]:,} posts are the index, {queries.shape[0]:,} are queries, of "
        f"384 dimensions. Defaults; `GuaranteedPCA` has {options.seconds:.0f} s.",
        "",
        "| k | method | worst pair loses | above its bound | 99.9% lose at most | mean "
        "| recall@10 | by cosine | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for k in options.k:
        for name, model in methods(k, options.seconds).items():
            lines.append(row(k, name, model, index, queries))
            print(lines[-1], flush=True)
    if options.write:
        keep("embeddings", options.part, lines, "text embeddings")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()

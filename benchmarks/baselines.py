"""Every method on MNIST digits 2, 4, 5, 7: the table that is committed beside this.

Run: python benchmarks/baselines.py [--write]

r = 101 images, k = 5 ... 40, five samples of images (the sample's seed is also every
method's random_state). One referee scores all: distortion exactly over all 5,050 pairs.
NILE-Pro, FroMax and NuMax, which stretch, can be asked for by ``--methods``.
``--write`` stores the records and the tables in results/, as baselines.jsonl and .txt.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _data import mnist_digit

from isoproj.comparison.compare import Comparison, compare

RESULTS = Path(__file__).parent / "results"
METHODS = [
    "minimax",
    "dual_ascent",
    "sdp+dr",
    "sdp+rr",
    "sdp+binned",
    "sap",
    "fair_pca",
    "pca",
    "pca_directions",
    "random",
    "adagio",
]


def tell(record: dict) -> None:
    value = record.get("contracted")
    shown = record.get("error") or f"{value:.4f}  {record['seconds']:.2f} s"
    line = f"{record['seed']} k={record['k']:<3d} {record['method']:15s} {shown}\n"
    sys.stderr.write(line)


def cells_won(result: Comparison, method: str = "minimax") -> tuple[int, int]:
    """Return in how many (k, seed) cells a method is first or equal to the first."""
    cells: dict[tuple[int, int], dict[str, float]] = {}
    for record in result.records:
        if "error" not in record:
            cell = cells.setdefault((record["k"], record["seed"]), {})
            cell[record["method"]] = record["contracted"]
    won = sum(cell[method] <= min(cell.values()) + 1e-9 for cell in cells.values())
    return won, len(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--digits", type=int, nargs="+", default=[2, 4, 5, 7])
    parser.add_argument("--ks", type=int, nargs="+", default=[5, 7, 10, 15, 20, 30, 40])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--points", type=int, default=101)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text, lines = [], []
    for digit in options.digits:
        result = compare(
            lambda seed, digit=digit: mnist_digit(digit, options.points, seed),
            options.methods,
            ks=options.ks,
            seeds=options.seeds,
            progress=tell,
        )
        won, cells = cells_won(result)
        text.append(
            f"MNIST digit {digit}, r = {options.points}, {len(options.seeds)} samples; "
            f"minimax is first in {won} of {cells} cells\n\n"
            f"{result.table()}\n\n{result.table('isometry')}\n\n"
            f"{result.table('seconds')}\n"
        )
        print(text[-1], flush=True)
        lines += [record | {"digit": digit} for record in result.records]
    if options.write:
        command = "python benchmarks/baselines.py --write"
        body = f"Made by: {command}\n\n" + "\n".join(text)
        (RESULTS / "baselines.txt").write_text(body, encoding="utf-8")
        Comparison(tuple(lines)).save(RESULTS / "baselines.jsonl")


if __name__ == "__main__":
    main()

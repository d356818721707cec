"""Real data for the benchmarks: MNIST digits as the paper samples them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np


def data_file(name: str) -> Path:
    """Return a file of the data folder, or stop with a line that says what to do."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("ISOPROJ_DATA", default)) / name
    if not path.exists():
        sys.exit(f"{name} must be in the folder that ISOPROJ_DATA names; not at {path}")
    return path


def mnist_digit(digit: int, n_points: int | None, seed: int = 0) -> np.ndarray:
    """Return training images of one digit, sampled as in the project's notes."""
    with np.load(data_file("mnist.npz")) as file:
        rows = np.flatnonzero(file["train_labels"] == digit)
        images = file["train_images"]
    if n_points is not None:
        rows = np.random.default_rng(seed).choice(rows, n_points, replace=False)
    return images[rows].astype(np.float64)


def mnist_images(n_points: int | None = None) -> np.ndarray:
    """Return the first training images of all digits as float32."""
    with np.load(data_file("mnist.npz")) as file:
        return file["train_images"][:n_points].astype(np.float32)

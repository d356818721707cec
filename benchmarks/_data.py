"""Real data for the benchmarks: MNIST digits as the paper samples them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from paper.datasets import data_folder, load, sample


def data_file(name: str) -> Path:
    """Return a file of the data folder, or stop with a line that says what to do."""
    path = data_folder() / name
    if not path.exists():
        sys.exit(f"{name} must be in the folder that ISOPROJ_DATA names; not at {path}")
    return path


def mnist_digit(digit: int, n_points: int | None, seed: int = 0) -> np.ndarray:
    """Return training images of one digit, sampled as in the paper."""
    return sample(load("mnist"), (digit,), n_points, seed)


def mnist_images(n_points: int | None = None) -> np.ndarray:
    """Return the first training images of all digits as float32."""
    return load("mnist").train[:n_points].astype(np.float32)

"""``isoproj demo``: fit, certify and compare on the digits of scikit-learn."""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.decomposition import PCA

from isoproj.cli.console import Console
from isoproj.cli.errors import Interrupted
from isoproj.cli.models import check_dimensions
from isoproj.cli.payloads import told, told_data
from isoproj.estimators.near_isometric import NearIsometricProjection
from isoproj.exceptions import DuplicatePointsWarning
from isoproj.files.read.reading import read_points
from isoproj.numerics.rounding import at_least
from isoproj.numerics.spectral import orthonormal
from isoproj.proof.audit import audit
from isoproj.solvers.api import Status


def demo(options: argparse.Namespace, console: Console) -> None:
    """Fit and certify the digits, and compare with PCA and a random projection."""
    k = options.n_components
    data = read_points("digits")
    n_points, n_features = data.points.shape
    check_dimensions([k], data)
    n_pairs = n_points * (n_points - 1) // 2
    console.note(
        f"scikit-learn's digits: {n_points} images of {n_features} pixels, "
        f"{n_pairs:,} pairs, to {k} dimensions"
    )
    start = time.perf_counter()
    model = NearIsometricProjection(n_components=k, random_state=0)
    with console.progress("searching"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DuplicatePointsWarning)
        model.fit(data.points)
    seconds = time.perf_counter() - start
    random = np.random.default_rng(0).standard_normal((n_features, k))
    results = {
        "PCA": audit(data.points, PCA(k).fit(data.points)),
        "random": audit(data.points, orthonormal(random).T, orientation="rows"),
        "isoproj": audit(data.points, model),
    }
    rows = []
    for name, result in results.items():
        quantiles = [result.quantiles[0.999], result.quantiles[0.5]]
        losses = [result.distortion, *quantiles, result.mean]
        rows.append([name, *(f"{loss:.4f}" for loss in losses)])
    console.say("Share of squared length lost, over all pairs")
    console.table(["method", "worst pair", "99.9 %", "median", "mean"], rows)
    lowest = at_least(model.lower_bound_)
    console.say(f"No projection can push the loss of the worst pair below {lowest}")
    console.say(str(model.certificate_))
    i, j = model.worst_pairs_[0]
    console.say(
        f"Worst pair: images {i} and {j}. Fitted and certified in {seconds:.1f} s."
    )
    console.tell(
        "demo",
        data=told_data(data),
        n_components=k,
        seconds=seconds,
        lower_bound=model.lower_bound_,
        methods={name: told("Losses", result) for name, result in results.items()},
    )
    if model.status_ is Status.INTERRUPTED:
        raise Interrupted

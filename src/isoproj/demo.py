"""The main job from start to end on data that ships with scikit-learn."""

from __future__ import annotations

import time
import warnings

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from isoproj._spectral import Array, orthonormal
from isoproj.auditing import AuditResult, audit
from isoproj.estimators.near_isometric import NearIsometricProjection
from isoproj.exceptions import DuplicatePointsWarning
from isoproj.solvers.base import Step, watching

__all__ = ["run_demo"]

_STEPS = 120


def run_demo(k: int) -> None:
    """Fit scikit-learn's digits to ``k`` dimensions, certify, compare, print.

    Parameters
    ----------
    k : int
        Dimensions to keep, between 1 and 64.
    """
    out, talk = Console(), Console(stderr=True)
    points = load_digits().data
    talk.print(
        f"scikit-learn's digits: {points.shape[0]} images of {points.shape[1]} pixels, "
        f"{points.shape[0] * (points.shape[0] - 1) // 2:,} pairs, to {k} dimensions"
    )
    start = time.perf_counter()
    model = _watched_fit(points, k, talk)
    seconds = time.perf_counter() - start
    basis = orthonormal(np.random.default_rng(0).standard_normal((points.shape[1], k)))
    rows = {
        "PCA": audit(points, PCA(k).fit(points)),
        "random": audit(points, basis.T),
        "isoproj": audit(points, model),
    }
    out.print(_table(rows, model))
    out.print(str(model.certificate_))
    i, j = model.worst_pairs_[0]
    out.print(
        f"Worst pair: images {i} and {j}. Fitted and certified in {seconds:.1f} s."
    )


def _watched_fit(points: Array, k: int, talk: Console) -> NearIsometricProjection:
    columns = (
        TextColumn("fitting"),
        BarColumn(),
        TextColumn("best distortion {task.fields[upper]:.4f}"),
        TextColumn("lower bound {task.fields[lower]:.4f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=talk) as progress:
        task = progress.add_task("fit", total=_STEPS, upper=1.0, lower=0.0)

        def show(step: Step) -> None:
            fields = progress.tasks[0].fields
            progress.update(
                task,
                completed=step.iteration,
                upper=min(fields["upper"], step.distortion),
                lower=max(fields["lower"], step.lower_bound),
            )

        with watching(show), warnings.catch_warnings():
            warnings.simplefilter("ignore", DuplicatePointsWarning)
            return NearIsometricProjection(n_components=k, max_iter=_STEPS).fit(points)


def _table(rows: dict[str, AuditResult], model: NearIsometricProjection) -> Table:
    table = Table(
        title="Share of squared length lost, over all pairs",
        caption=f"No projection can push the worst pair below {model.lower_bound_:.4f}",
    )
    for name in ("method", "worst pair", "99.9 %", "median", "mean"):
        table.add_column(name, justify="left" if name == "method" else "right")
    best = min(result.distortion for result in rows.values())
    for name, result in rows.items():
        bold = "bold" if result.distortion == best else ""
        table.add_row(
            name,
            f"{result.distortion:.4f}",
            f"{result.quantiles[0.999]:.4f}",
            f"{result.quantiles[0.5]:.4f}",
            f"{result.mean:.4f}",
            style=bold,
        )
    return table

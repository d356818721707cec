"""Records with known answers."""

from __future__ import annotations

from paper.records import Finished, Records
from paper.table import Cell, Subject

RUN = {
    "run": "a",
    "isoproj": "0",
    "machine": "m",
    "cores": 1,
    "jobs": 1,
    "system": "s",
    "data": {"mnist": {"source": "mnist.npz", "sha256": "0" * 64}},
}
FACTS = {
    "n_points": 46,
    "n_features": 784,
    "n_pairs": 1035,
    "n_identical": 0,
    "n_dims": 45,
    "claimed_ratio": 1.2,
    "corrected_ratio": 2.0,
}


def grid_scores(own=0.6, **changes):
    """Return scores in which the paper's algorithm is between PCA and minimax."""
    values = {
        "dual_ascent": own,
        "sdp+dr": 0.65,
        "sdp+rr": 0.64,
        "pca": 0.8,
        "random": 0.99,
        "minimax": 0.45,
    }
    values |= {name.replace("_", "+"): v for name, v in changes.items()}
    scores = {
        name: {"distortion": v, "mean": v / 2, "seconds": 1.0, "cpu_seconds": 1.0}
        for name, v in values.items()
    }
    scores["minimax"] |= {"lower_bound": 0.44, "seconds_to_match": 0.5}
    scores["dual_ascent"] |= {"lower_bound": 0.4, "mean_dual": 0.39}
    return scores


def grid_cell(
    scores=None, *, experiment="figure1", r=46, k=10, seed=0, labels=(5,), **facts
):
    data = "news" if experiment.endswith("news") else "mnist"
    cell = Cell(experiment, Subject(data, labels), r, k, seed)
    return Finished(cell, FACTS | facts, scores or grid_scores(), "a", 1.0)


def course_cell(times, *, converged, own=0.6, seed=0, k=10):
    """Return a cell of Figure 3 with (multiple, distortion) of SDP+DR."""
    scores = {"dual_ascent": {"distortion": own, "cpu_seconds": 2.0}}
    for name in ("sdp+dr", "sdp+dr/scs"):
        for place, (multiple, distortion) in enumerate(times):
            last = place == len(times) - 1
            scores[f"{name} x {multiple:g}"] = {
                "distortion": distortion,
                "cpu_seconds": 2.0 * multiple,
                "status": "converged" if converged and last else "time_limit",
            }
    cell = Cell("figure3", Subject("mnist", (5,)), 101, k, seed)
    return Finished(cell, FACTS, scores, "a", 1.0)


def every_kind():
    """Return at least one cell of every experiment."""
    cells = [
        grid_cell(experiment=experiment, r=r, k=k, seed=seed, labels=labels)
        for experiment, r, labels in (
            ("figure1", 46, (5,)),
            ("figure1", 101, (5,)),
            ("figure2", 317, (5,)),
            ("figure2-news", 46, (0,)),
        )
        for k in (5, 20)
        for seed in (0, 1)
    ]
    held = {"held_out": {"distortion": 0.9}}
    with_test = {name: score | held for name, score in grid_scores().items()}
    for r, n in ((101, 101), (1500, 1500)):
        cells.append(grid_cell(with_test, experiment="held-out", r=r, k=20, n_points=n))
    whole = {n: with_test[n] for n in ("pca", "random", "minimax")}
    cells.append(
        grid_cell(whole, experiment="classes", r=0, k=20, n_points=5421, n_pairs=10**7)
    )
    cells += [
        course_cell([(0.5, 0.7), (2.0, 0.6)], converged=True, k=k) for k in (10, 30)
    ]
    five = Subject("mnist", (5,))
    steps = {
        steps: {"average_dual": 0.5, "average_distortion": 0.7, "bound": bound}
        for steps, bound in (("30", 8.0), ("120", 4.0))
    }
    facts = FACTS | {"optimum_low": 0.55, "optimum_high": 0.56}
    cells.append(Finished(Cell("convergence", five, 46, 5, 0), facts, steps, "a", 1.0))
    widths = {
        width: {
            "cpu_seconds": 1.0,
            "ascent_cpu_seconds": 0.5,
            "printed_step_cpu_seconds": s,
        }
        for width, s in (("500", 0.1), ("8000", 9.0))
    }
    news = Cell("dimension", Subject("news", (1,)), 46, 20, 0)
    cells.append(Finished(news, FACTS, widths, "a", 1.0))
    pictures = {
        name: score | {"picture": [[0.0, 1.0], [2.0, 3.0]], "neighbours_kept": 0.9}
        for name, score in grid_scores().items()
        if name != "random"
    }
    pictures["original"] = {"picture": [[0.0, 0.0], [1.0, 1.0]], "neighbours_kept": 1.0}
    pooled = Cell("figure4", Subject("mnist", (2, 4, 5, 7)), 448, 40, 0)
    cells.append(Finished(pooled, FACTS | {"labels": [2, 4]}, pictures, "a", 1.0))
    table = Cell("table1", five, 46, 5, 0)
    cells.append(Finished(table, FACTS | {"step_size": 0.00401}, {}, "a", 1.0))
    return records_of(*cells)


def records_of(*cells):
    records = Records({"a": RUN})
    for cell in cells:
        records.add(cell)
    return records

"""The results page, made from the records: claims, verdicts, numbers, figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paper.claims import Verdict, verdicts
from paper.evidence import LABELS
from paper.figures import FIGURES, series
from paper.records import Finished, Records
from paper.table import (
    WHOLE,
    Experiment,
    Kind,
    in_order,
)

_TITLES = {
    "figure1": "Figure 1: up to 10K pairs",
    "figure2": "Figure 2: up to 100K pairs, and 8,000 dimensions",
    "figure3": "Figure 3: SDP+DR against time",
    "figure4": "Figure 4: t-SNE",
    "theorem1": "Theorem 1",
    "convergence": "Theorem 2",
    "dimension": "Time against dimension",
    "held-out": "Beyond: held-out points",
    "classes": "Beyond: whole classes",
}
_CAPTIONS = {
    "figure1": "Means over the seeds, bars are standard deviations. At 1K pairs: by "
    "how many per cent the paper's algorithm is below each method; below zero it is "
    "worse. Grey: what no projection can reach.",
    "figure2": "As Figure 1. 20 Newsgroups: by how many per cent the paper's "
    "algorithm is below each method.",
    "figure3": "SDP+DR stopped at multiples of the algorithm's time; the dotted line "
    "is what the paper offers it.",
    "figure4": "Every picture starts from the same positions, so that they can be "
    "compared. The marks are the digits.",
    "theorem1": "Left: the least that the algorithm's ratio to the optimum can be, so "
    "that every cross is a violation beyond doubt. Right: the most that it can be.",
    "convergence": "How far the average iterate's dual value is below the optimum.",
    "dimension": "As printed, a step forms a d x d matrix. In the span of the points "
    "nothing but the first change of coordinates depends on d.",
    "held-out": "Solid: the worst pair of the points fitted. Dashed: the worst pair "
    "of the test images of the same digit.",
    "classes": "Every image of a digit, exactly over all pairs.",
}


def render_page(
    records: Records,
    experiments: Sequence[Experiment],
    command: str,
    folder: str | None,
) -> str:
    """Return the results page as Markdown; equal records make equal pages.

    ``experiments`` are those asked for; the page lists their cells that are missing.
    ``command`` is the command that makes the page. ``folder`` is where the figures are,
    as seen from the page, or None without figures.
    """
    cells = in_order(experiments)
    here = records.within(cell.key for cell in cells)
    parts = [
        "# The paper, reproduced",
        "",
        "Made from the records by the command below; edits by hand are overwritten.",
        "",
        f"```\n{command}\n```",
        "",
        *_introduction(here, len(cells)),
        *_verdict_table(verdicts(here)),
        *([] if folder is None else _figures(here, folder)),
        *_tables(here, experiments),
        *_missing(here, experiments),
        *_machines(here),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _introduction(records: Records, total: int) -> list[str]:
    """Return how many cells are finished, and what the words mean."""
    fallback = any(f.cell.subject.data == "digits" for f in records.cells.values())
    note = (
        "**MNIST was not at hand: scikit-learn's 8 x 8 digits stand in for it.** "
        if fallback
        else ""
    )
    return [
        f"{note}{len(records.cells)} of {total} cells are finished. A cell is one "
        "sample of points and one number of dimensions k; all methods are fitted on "
        "it, each with one thread, and one referee measures what every map does to "
        "every pair, exactly. *Distortion*, or the worst pair's loss, is the largest "
        "share of squared length that a pair loses. SDP+DR and SDP+RR solve their "
        'relaxation by the fastest solver we have; "by SCS" is the same by a general '
        "conic solver.",
        "",
    ]


def _verdict_table(found: Iterable[Verdict]) -> list[str]:
    """Return one row per claim: statement, measurement, verdict."""
    lines = [
        "## Claims",
        "",
        "*Cells* says how many cells a verdict rests on.",
        "",
        "| claim | measured | verdict | cells |",
        "|---|---|---|---|",
    ]
    for verdict in found:
        claim = verdict.claim
        lines.append(
            f"| **{claim.name}.** {claim.statement} *Counts as holding:* "
            f"{claim.tolerance}. | {_sentence(verdict.measured)} | "
            f"**{verdict.outcome}** | {verdict.n_cells} |"
        )
    return [*lines, ""]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _figures(records: Records, folder: str) -> list[str]:
    """Return every figure with its caption and the command that makes it."""
    lines = ["## Figures", ""]
    for name, (experiments, _) in FIGURES.items():
        if not records.of(experiments):
            continue
        title = _TITLES[name]
        only = " ".join(dict.fromkeys(e.partition("-news")[0] for e in experiments))
        lines += [
            f"### {title}",
            "",
            f"![{title}]({folder}/{name}.png)",
            "",
            f"{_CAPTIONS[name]} [SVG]({folder}/{name}.svg). "
            f"`python -m paper --only {only}`",
            "",
        ]
    return lines


def _tables(records: Records, experiments: Sequence[Experiment]) -> list[str]:
    """Return the distortions as numbers, a table per subject and size."""
    lines = [
        "## Numbers",
        "",
        "Distortion, mean ± standard deviation over the seeds; their number is in the "
        "heading where it is below that of the table of experiments.",
        "",
    ]
    for experiment in experiments:
        if experiment.kind is not Kind.GRID:
            continue
        cells = records.of([experiment.name])
        keys = sorted({(str(f.cell.subject), f.cell.r) for f in cells})
        if keys:
            lines += [f"<details><summary>{experiment.title}</summary>", ""]
            for subject, r in keys:
                some = [
                    f for f in cells if (str(f.cell.subject), f.cell.r) == (subject, r)
                ]
                lines += _table(some, experiment)
            lines += ["</details>", ""]
    return lines


def _table(cells: list[Finished], experiment: Experiment) -> list[str]:
    """Return the table of one subject and size: methods by k."""
    first = cells[0]
    ks = sorted({f.cell.k for f in cells})
    size = f"r = {first.facts['n_points']:,}, {first.facts['n_pairs']:,} pairs"
    seeds = len({f.cell.seed for f in cells})
    expected = 1 if first.cell.r == WHOLE else len(experiment.seeds)
    few = f" ({seeds} of {expected} seeds)" if seeds < expected else ""
    lines = [
        f"**{first.cell.subject.title}, {size}**{few}",
        "",
        "| | " + " | ".join(f"k = {k}" for k in ks) + " |",
        "|---|" + "---|" * len(ks),
    ]
    for method in dict.fromkeys(name for f in cells for name in f.scores):
        by_k = series(cells, method)
        row = " | ".join(_mean(by_k.get(k, [])) for k in ks)
        lines.append(f"| {LABELS[method]} | {row} |")
        held = {k: _held_out(cells, method, k) for k in ks}
        if any(held.values()):
            row = " | ".join(_mean(held[k]) for k in ks)
            lines.append(f"| {LABELS[method]}, held out | {row} |")
    bounds = series(cells, "minimax", "lower_bound")
    if bounds:
        row = " | ".join(_mean(bounds.get(k, [])) for k in ks)
        lines.append(f"| lower bound | {row} |")
    return [*lines, ""]


def _held_out(cells: list[Finished], method: str, k: int) -> list[float]:
    """Return the distortions of a method on held-out points, one per seed."""
    found = [f.scores[method].get("held_out", {}) for f in cells if f.cell.k == k]
    return [float(score["distortion"]) for score in found if score]


def _mean(values: list[float]) -> str:
    """Return mean and standard deviation as text, empty without values."""
    if not values:
        return ""
    spread = f" ± {np.std(values):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{spread}"


def _missing(records: Records, experiments: Sequence[Experiment]) -> list[str]:
    """Return the cells that are not finished, by experiment, size and seed."""
    lines = []
    for experiment in experiments:
        wanted = experiment.cells()
        for r in experiment.sizes:
            for seed in experiment.seeds:
                some = [c for c in wanted if c.r == r and c.seed == seed]
                lacking = [c for c in some if c.key not in records.cells]
                if lacking:
                    size = "whole classes" if r == WHOLE else f"r = {r}"
                    lines.append(
                        f"- {experiment.name}, {size}, seed {seed}: {len(lacking)} of "
                        f"{len(some)} cells"
                    )
    if not lines:
        return []
    head = ["## Not run yet", "", "The same command goes on where it stopped.", ""]
    return [*head, *lines, ""]


def _machines(records: Records) -> list[str]:
    """Return the machines, versions and data that the numbers come from."""
    used = {f.run for f in records.cells.values()}
    lines = ["## Machine, versions, data", ""]
    seen = set()
    for name, run in sorted(records.runs.items()):
        if name not in used:
            continue
        data = "; ".join(
            f"{data}: {about['source']}, SHA-256 {about['sha256'][:16]}"
            for data, about in sorted(run.get("data", {}).items())
        )
        versions = ", ".join(
            f"{package} {run[package]}"
            for package in ("isoproj", "python", "numpy", "scipy", "sklearn", "scs")
            if run.get(package)
        )
        line = (
            f"- {run.get('processor') or run.get('machine')}, {run.get('cores')} "
            f"cores, {run.get('jobs')} at work; {run.get('system')}; {versions}; {data}"
        )
        if line not in seen:
            lines.append(line)
        seen.add(line)
    slow = max((f.seconds for f in records.cells.values()), default=0.0)
    total = sum(f.seconds for f in records.cells.values())
    lines += [
        "",
        f"All cells together took {total / 3600:.1f} hours of one thread on a machine "
        f"that had other work to do; the longest {slow:.0f} s.",
    ]
    return [*lines, ""]

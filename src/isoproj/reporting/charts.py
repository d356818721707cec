"""The charts of a report, built from its facts."""

from __future__ import annotations

from dataclasses import replace

from isoproj.plot import charts
from isoproj.plot.charts import curve_chart, floor_marks, loss_line
from isoproj.plot.marks import Chart, Dots
from isoproj.reporting.facts import Facts
from isoproj.reporting.wording import METHOD_NAMES


def charts_of(facts: Facts) -> dict[str, Chart]:
    """Return by name every chart that the report has facts for."""
    makers = {"histogram": _histogram, "curve": _curve, "frontier": _frontier}
    found = {name: make(facts) for name, make in makers.items() if facts[name]}
    most = "no projection under the cap keeps more"
    for name, sides, labels in (
        ("history", ("upper", "lower"), ("distortion", "lower bound")),
        ("kept_history", ("lower", "upper"), ("kept", most)),
    ):
        if len(facts[name]) > 1:
            found[name] = _history(facts[name], sides, labels)
    return found | {"bounds": _bounds(facts)}


def _sampled(methods: list[Facts]) -> set[str]:
    """Return the methods whose worst pair is known for a sample only."""
    return {m["name"] for m in methods if m["distortion_is"] == "at least"}


def _bounds(facts: Facts) -> Chart:
    bounds, methods = facts["certificate"], facts["methods"] or []
    losses = {method["name"]: method["distortion"] for method in methods}
    return charts.bounds_chart(
        losses or {"isoproj": bounds["distortion"]},
        bounds["lower_bound"],
        labels=METHOD_NAMES,
        at_least=_sampled(methods),
    )


def _histogram(facts: Facts) -> Chart:
    found, methods = facts["histogram"], facts["methods"]
    roles = ("pca", "isoproj")
    return charts.histogram_chart(
        {role: found["counts"][role] for role in roles},
        found["edges"],
        {m["name"]: m["distortion"] for m in methods if m["name"] in roles},
        labels={"pca": "PCA", "isoproj": "this projection"},
        at_least=_sampled(methods),
    )


def _curve(facts: Facts) -> Chart:
    curve, value = facts["curve"], facts["certificate"]["distortion"]
    lines = [
        loss_line(role, curve["ks"], curve[role], label=METHOD_NAMES[role])
        for role in ("pca", "isoproj")
        if curve[role] is not None
    ]
    hint = f"this model, k = {curve['k']}: the worst pair loses {value:.4f}"
    ks, values, hints = [curve["k"]], [value], [hint]
    for prefix in (facts["nested"] or [])[:-1]:
        ks.append(prefix["k"])
        values.append(prefix["distortion"])
        hints.append(
            f"its first {prefix['k']} dimensions: the worst pair loses {values[-1]:.4f}"
        )
    spot = Dots("isoproj", ks, values, size=9.0, hints=hints)
    if curve["isoproj"] is None:
        spot = replace(spot, label="this projection")
    return curve_chart([*lines, spot], floor_marks(curve["ks"], curve["floor"]))


def _frontier(facts: Facts) -> Chart:
    found, guarantee = facts["frontier"], facts["guarantee"]
    is_on_it = guarantee and guarantee["objective"] == found["objective"]
    return charts.frontier_chart(
        found["cap"],
        found["kept"],
        found["kept_bound"],
        found["lower_bound"],
        objective=found["objective"],
        role="isoproj",
        labels=("kept under the cap", "no projection can keep more"),
        model=(guarantee["cap"], guarantee["kept"]) if is_on_it else None,
    )


def _history(
    history: list[Facts], sides: tuple[str, str], labels: tuple[str, str]
) -> Chart:
    """Return the chart of what was found and what bounds it, by round."""
    hints = [
        f"round {step['iteration']}, {step['seconds']:.1f} s: between "
        f"{step['lower']:.4f} and {step['upper']:.4f}"
        for step in history
    ]
    rounds = [step["iteration"] for step in history]
    found, bound = ([step[side] for step in history] for side in sides)
    return charts.history_chart(rounds, found, bound, labels=labels, hints=hints)

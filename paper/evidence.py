"""What the records say about each claim of the paper: the numbers, and a judgement.

A judge takes finished cells and returns whether a claim holds, the numbers in words,
and how many cells counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from isoproj.numerics.spectral import Array
from paper.records import Finished
from paper.table import ALGORITHM, N_STEPS, WHOLE

Judge = Callable[[list[Finished]], tuple[bool, str, int]]
_Judgement = tuple[bool, str, int]

# The experiments that show distortion against k as the paper does.
GRID = ("figure1", "figure2", "figure2-news")
# "Almost all the times", in numbers.
_ALMOST_ALWAYS = 0.9
# Two distortions closer than this are equal.
_EQUAL = 1e-6
# By data and r: dimensions, pairs and step size as the paper's table prints them.
_PRINTED = {
    ("mnist", 46): (784, 1035, 0.004),
    ("mnist", 101): (784, 5050, 0.0018),
    ("mnist", 142): (784, 10011, 0.00129),
    ("mnist", 317): (784, 50086, 0.00057),
    ("mnist", 448): (784, 100128, 0.0004),
    ("news", 46): (8000, 1034, 0.004),
}
# The table prints its step sizes with one to three digits, some of them cut off.
_STEP_TOLERANCE = 0.025
# What methods are called, in the order in which they are drawn, and in sentences.
LABELS = {
    "random": "random",
    "pca": "PCA",
    "sdp+dr/scs": "SDP+DR by SCS",
    "sdp+dr": "SDP+DR",
    "sdp+rr": "SDP+RR",
    ALGORITHM: "paper's algorithm",
    "minimax": "minimax",
}
_NAMES = LABELS | {ALGORITHM: f"the {LABELS[ALGORITHM]}"}


def value(finished: Finished, method: str, name: str = "distortion") -> float:
    """Return a number of a method's score, NaN where there is none."""
    found: Any = finished.scores.get(method, {}).get(name)
    return math.nan if found is None else float(found)


def _both(cells: Iterable[Finished], one: str, other: str) -> Array:
    """Return two methods' distortions where both have one, shape (m, 2)."""
    rows = [(value(f, one), value(f, other)) for f in cells]
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return table[np.isfinite(table).all(axis=1)]


def lower_than(
    *rivals: str, among: Callable[[Finished], bool] = lambda _: True
) -> Judge:
    """Return a judge of whether the algorithm is lower than all rivals almost always.

    Only cells that ``among`` accepts count.
    """

    def judge(cells: list[Finished]) -> _Judgement:
        counted = [f for f in cells if among(f)]
        shares, parts, count = [], [], 0
        for rival in rivals:
            own, other = _both(counted, ALGORITHM, rival).T
            if own.size:
                shares.append(float((own < other - _EQUAL).mean()))
                parts.append(
                    f"lower than {_NAMES[rival]} in {shares[-1]:.0%} of cells, median "
                    f"improvement {float(np.median(1.0 - own / other)):+.1%}"
                )
                count = max(count, own.size)
        return min(shares, default=0.0) >= _ALMOST_ALWAYS, "; ".join(parts), count

    return judge


def judge_sizes(cells: list[Finished]) -> _Judgement:
    """Compare sizes and step sizes with those printed in the paper's table."""
    known, off, near, worst = 0, 0, [], 0.0
    for finished in cells:
        subject = finished.cell.subject
        printed = _PRINTED.get((subject.data, finished.cell.r))
        if printed is None:
            continue
        known += 1
        d, n, step = printed
        facts = finished.facts
        off += facts["n_features"] != d or abs(facts["n_pairs"] - n) > 1
        if facts["n_pairs"] != n:
            near.append(f"{subject.title} has {facts['n_pairs']:,} pairs, not {n:,}")
        worst = max(worst, abs(facts["step_size"] / step - 1.0))
    text = f"{known - off} of {known} sizes agree"
    text += f" ({'; '.join(near)})" if near else ""
    text += f"; step sizes within {worst:.1%} of those printed"
    return known > 0 and off == 0 and worst <= _STEP_TOLERANCE, text, known


def course(finished: Finished, name: str) -> dict[float, tuple[float, float, bool]]:
    """Return what a method reached, by the time it was given.

    Times are multiples of the algorithm's own. Each entry is the processor time that it
    took, its distortion, and whether it converged.
    """
    own = value(finished, ALGORITHM, "cpu_seconds")
    found = {}
    for key, score in finished.scores.items():
        method, _, multiple = key.partition(" x ")
        if method == name and multiple and score.get("distortion") is not None:
            has_converged = score.get("status") == "converged"
            ratio = value(finished, key, "cpu_seconds") / own
            found[float(multiple)] = (ratio, value(finished, key), has_converged)
    return found


def _multiples(cells: list[Finished], name: str, *, equal: bool) -> tuple[str, float]:
    """Return when SDP+DR is as good as the algorithm, or else when it converges.

    In words and as a number: the median over cells, in multiples of the algorithm's
    processor time.
    """
    times, given = [], []
    for finished in cells:
        stops = sorted(course(finished, name).values())
        aim = value(finished, ALGORITHM) + _EQUAL
        if stops:
            reached = [t for t, y, over in stops if (y <= aim if equal else over)]
            times.append(min(reached, default=math.inf))
            given.append(stops[-1][0])
    if not times:
        return "an unknown time (not run)", math.nan
    median, never = float(np.median(times)), sum(map(math.isinf, times))
    if math.isinf(median):
        text = f"more than {float(np.median(given)):.0f} times its time"
    else:
        text = f"{median:.2g} times its time"
    late = f" ({never} of {len(times)} not within the time given)" if never else ""
    return text + late, median


def slower_by(factor: float, event: str, *, equal: bool) -> Judge:
    """Return a judge of whether SDP+DR needs more than ``factor`` times the time.

    The time is until SDP+DR is as good as the algorithm (``equal``) or converges;
    ``event`` says so in words.
    """

    def judge(cells: list[Finished]) -> _Judgement:
        ours, median = _multiples(cells, "sdp+dr", equal=equal)
        scs, _ = _multiples(cells, "sdp+dr/scs", equal=equal)
        text = event.format(ours=ours, scs=scs)
        return median > factor, text, len(cells)

    return judge


def judge_dimension(cells: list[Finished]) -> _Judgement:
    """Compare the time of a step at the smallest and the largest dimension."""
    growth: dict[str, list[float]] = {"printed": [], "fit": [], "ascent": []}
    fields = {
        "printed": "printed_step_cpu_seconds",
        "fit": "cpu_seconds",
        "ascent": "ascent_cpu_seconds",
    }
    widths: list[int] = []
    for finished in cells:
        widths = sorted(int(width) for width in finished.scores)
        for what, name in fields.items():
            first, last = (
                value(finished, str(w), name) for w in (widths[0], widths[-1])
            )
            growth[what].append(last / first)
    if not widths:
        return False, "", 0
    by = {what: float(np.median(ratios)) for what, ratios in growth.items()}
    text = (
        f"from d = {widths[0]:,} to {widths[-1]:,} a step as printed, with the d x d "
        f"matrix, takes {by['printed']:.0f} times as long; in the span of the points "
        f"({cells[0].facts['n_dims']} dimensions, whatever d) the ascent takes "
        f"{by['ascent']:.1f} times and "
        f"a whole certified fit {by['fit']:.1f} times as long"
    )
    return by["printed"] <= 2.0, text, len(cells)


def ratios(cells: list[Finished]) -> list[tuple[float, float, float, float]]:
    """Return the algorithm's ratio to ``p*``, at least and at most, and both factors.

    One row per cell: two ratios, then Theorem 1's factor as claimed and as corrected.
    ``p*`` lies between the best lower bound and minimax's distortion, so the ratio of
    the algorithm to each of them brackets the ratio to ``p*``.
    """
    rows = []
    for f in cells:
        eps, best = value(f, ALGORITHM), value(f, "minimax")
        lower = max(
            (
                value(f, name, "lower_bound")
                for name in ("minimax", "sdp+dr", ALGORITHM)
            ),
            key=lambda bound: -1.0 if math.isnan(bound) else bound,
        )
        claimed, corrected = (
            f.facts.get("claimed_ratio"),
            f.facts.get("corrected_ratio"),
        )
        if claimed and corrected and best > 0.0 and lower > 0.0 and not math.isnan(eps):
            rows.append((eps / best, eps / lower, float(claimed), float(corrected)))
    return rows


def judge_theorem(cells: list[Finished]) -> _Judgement:
    """Compare the least possible ratio to the optimum with the factor claimed."""
    rows = ratios(cells)
    broken = [
        (least / claimed, least, claimed)
        for least, _, claimed, _ in rows
        if least > claimed
    ]
    if not broken:
        return bool(rows), "not violated in any cell", len(rows)
    _, ratio, claimed = max(broken)
    text = (
        f"violated for certain in {len(broken)} of {len(rows)} cells "
        f"({len(broken) / len(rows):.0%}); worst: the algorithm is at least "
        f"{ratio:.2f} "
        f"times above the optimum where the theorem allows {claimed:.2f}"
    )
    return False, text, len(rows)


def judge_corrected(cells: list[Finished]) -> _Judgement:
    """Compare the largest possible ratio to the optimum with the corrected factor."""
    rows = ratios(cells)
    good = [most <= corrected for _, most, _, corrected in rows]
    room = [corrected / most for _, most, _, corrected in rows]
    text = (
        f"holds in {sum(good)} of {len(rows)} cells; in the median the factor is "
        f"{float(np.median(room)) if room else math.nan:.2f} times the measured ratio"
    )
    return bool(good) and all(good), text, len(rows)


def judge_average(cells: list[Finished]) -> _Judgement:
    """Compare the average iterate's dual value with Theorem 2's bound."""
    held, gaps, bounds = [], [], []
    for finished in cells:
        for steps, score in finished.scores.items():
            gap = finished.facts["optimum_high"] - score["average_dual"]
            held.append(gap <= score["bound"])
            if int(steps) == N_STEPS:
                gaps.append(gap)
                bounds.append(score["bound"])
    if not gaps:
        return False, "", 0
    text = (
        f"holds in {sum(held)} of {len(held)} runs"
        f"{', but says nothing' if min(bounds) >= 1.0 else ''}: after {N_STEPS} "
        f"steps it allows {min(bounds):.1f} to {max(bounds):.1f} on a function between "
        f"0 and 1, where the average iterate is {min(gaps):.4f} to {max(gaps):.4f} "
        "below the optimum"
    )
    return all(held), text, len(cells)


def judge_pictures(cells: list[Finished]) -> _Judgement:
    """Compare how many nearest neighbours each method keeps."""
    names = (ALGORITHM, "sdp+dr", "sdp+rr", "pca", "minimax")
    kept = {name: [value(f, name, "neighbours_kept") for f in cells] for name in names}
    if not cells:
        return False, "", 0
    mean = {name: float(np.mean(values)) for name, values in kept.items()}
    text = "share of the 10 nearest neighbours kept: " + ", ".join(
        f"{_NAMES[name]} {mean[name]:.1%}" for name in names
    )
    rivals = max(mean["sdp+dr"], mean["sdp+rr"])
    # A difference that an eye could see: one neighbour in a hundred.
    return mean[ALGORITHM] > rivals + 0.01, text, len(cells)


def judge_minimax(cells: list[Finished]) -> _Judgement:
    """Compare minimax with every other method and with its lower bound."""
    first, gains, gaps, matches = [], [], [], []
    for f in cells:
        best = value(f, "minimax")
        rivals = [value(f, name) for name in f.scores if name != "minimax"]
        if math.isnan(best):
            continue
        first.append(best <= np.nanmin(rivals) + _EQUAL)
        gains.append(1.0 - best / value(f, ALGORITHM))
        gaps.append(best / value(f, "minimax", "lower_bound") - 1.0)
        matched = value(f, "minimax", "seconds_to_match")
        if not math.isnan(matched):
            matches.append(matched / value(f, ALGORITHM, "seconds"))
    if not first:
        return False, "", 0
    text = (
        f"lowest of all methods in {sum(first)} of {len(first)} cells; "
        f"{float(np.nanmedian(gains)):.1%} below the paper's algorithm in the median "
        f"(up to {float(np.nanmax(gains)):.1%}), {float(np.median(gaps)):.1%} "
        "above the "
        f"proven lower bound in the median (at most {max(gaps):.1%}); as good as the "
        f"algorithm after {float(np.median(matches)) if matches else math.nan:.2f} of "
        "its time"
    )
    return all(first), text, len(first)


def judge_classes(cells: list[Finished]) -> _Judgement:
    """Compare minimax with PCA on all images of a digit."""
    whole = [f for f in cells if f.cell.r == WHOLE]
    if not whole:
        return False, "", 0
    better = [value(f, "minimax") < value(f, "pca") for f in whole]
    gaps = [value(f, "minimax") / value(f, "minimax", "lower_bound") - 1 for f in whole]
    pairs = [f.facts["n_pairs"] for f in whole]
    gains = [1.0 - value(f, "minimax") / value(f, "pca") for f in whole]
    text = (
        f"{min(pairs):,} to {max(pairs):,} pairs: minimax below PCA in "
        f"{sum(better)} of "
        f"{len(whole)} cells, by {float(np.median(gains)):.1%} in the median; "
        f"{min(gaps):.1%} to {max(gaps):.1%} above the lower bound"
    )
    return all(better), text, len(whole)


def judge_held_out(cells: list[Finished]) -> _Judgement:
    """Measure what pairs lose that were not fitted."""
    rows = []
    for f in cells:
        d = f.facts["n_features"]
        above = f.facts["n_points"] > d
        seen = {
            name: (
                value(f, name),
                float(f.scores[name]["held_out"]["distortion"]),
            )
            for name in ("minimax", "pca")
            if "held_out" in f.scores.get(name, {})
        }
        if len(seen) == 2:
            rows.append((above, seen))
    if not rows:
        return False, "", 0
    parts = []
    for above, label in ((False, "with r below d"), (True, "with r above d")):
        some = [seen for is_above, seen in rows if is_above == above]
        if some:
            train, test = np.mean([s["minimax"] for s in some], axis=0)
            pca_train, pca_test = np.mean([s["pca"] for s in some], axis=0)
            parts.append(
                f"{label}: minimax {train:.3f} on the points fitted, {test:.3f} held "
                f"out; PCA {pca_train:.3f} and {pca_test:.3f}"
            )
    worse = [s["minimax"][1] > s["minimax"][0] for _, s in rows]
    text = "; ".join(parts) + (
        f". Held-out pairs lose more than the guarantee in {sum(worse)} of {len(rows)} "
        "cells: it is for the points fitted"
    )
    return True, text, len(rows)

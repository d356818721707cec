"""The sentences of a report, so that every document says the same."""

from __future__ import annotations

import shlex

from isoproj.numerics.rounding import at_least, at_most, excess, trimmed
from isoproj.reporting.facts import Facts

_LIMITS = (
    "The guarantee is for the points the model was fitted on. On other points it need "
    "not hold: measure. It comes close where points are many more than dimensions. PCA "
    "often loses less on the average pair: the price of the worst one. The lower bound "
    "is proven, but the gap to it need not close: the problem is not convex."
)
METHOD_NAMES = {"isoproj": "isoproj", "pca": "PCA", "random": "random"}
_KEPT = {"variance": "variance", "distortion": "squared length on average"}


def percent(share: float) -> str:
    """Return a share as per cent, without trailing zeros.

    Examples
    --------
    >>> from isoproj.reporting.wording import percent
    >>> percent(0.25), percent(0.0001), percent(0.6389)
    ('25%', '0.01%', '63.89%')
    """
    return trimmed(f"{100.0 * share:.2f}") + "%"


def amount(method: Facts) -> str:
    """Return the loss of a method's worst pair, marked if it is that of a sample.

    Examples
    --------
    >>> from isoproj.reporting.wording import amount
    >>> amount({"distortion": 0.95, "distortion_is": "at least"})
    '≥ 0.9500'
    """
    sign = "≥ " if method["distortion_is"] == "at least" else ""
    return f"{sign}{method['distortion']:.4f}"


def sentences(facts: Facts) -> dict[str, str]:
    """Return the prose of a report by section; sections without facts are absent."""
    told = {
        "certificate": _certificate(facts),
        "worst_pairs": _worst_pairs(facts),
        "verify": _verify(facts),
        "limits": _LIMITS,
    }
    sections = {
        "histogram": _histogram,
        "curve": _curve,
        "frontier": _frontier,
        "heldout": _heldout,
        "nested": _nested,
        "maps": _maps,
        "history": _history,
        "kept_history": _kept,
    }
    return told | {name: say(facts) for name, say in sections.items() if facts[name]}


def commands(facts: Facts) -> dict[str, str]:
    """Return how to verify the model, as ``"shell"`` and ``"python"`` code."""
    model = facts["model"]["name"] or "model.isoproj"
    data = facts["data"]["name"] or "data.npy"
    return {
        "shell": f"isoproj verify {shlex.quote(model)} {shlex.quote(data)}",
        "python": "from isoproj import Certificate, verify\n\n"
        f"verify(Certificate.load({model!r}), X)  # raises on the first that fails",
    }


def _certificate(facts: Facts) -> str:
    bounds, data = facts["certificate"], facts["data"]
    what = "all" if data["pairs"] == "all" else "the"
    text = (
        f"Over {what} {data['n_pairs']:,} {data['things']}, the worst loses "
        f"{bounds['distortion']:.4f} of its squared length. "
        f"{_proof(bounds, data['things'])} that no "
        f"projection to {bounds['n_components']} dimensions loses less than "
        f"{at_least(bounds['lower_bound'])}."
    )
    if facts["guarantee"]:
        text += _cap(facts)
    elif bounds["optimality_gap"] is not None:
        text += f" So the loss is {excess(bounds['optimality_gap'])}."
    if facts["methods"]:
        text += " PCA and one random projection of the same size stand beside it."
    return text


def _proof(bounds: Facts, things: str) -> str:
    """Return what proves the lower bound, as subject and verb."""
    if bounds["proof"] == "hull":
        return (
            f"{bounds['n_proving']:,} of these {things}, which point in all directions "
            f"of a subspace of {bounds['n_components'] + 1} dimensions, prove"
        )
    return f"A weighted average over {bounds['n_proving']:,} of these {things} proves"


def _cap(facts: Facts) -> str:
    guarantee = facts["guarantee"]
    text = (
        f" The cap was {guarantee['cap']:.4f}; under it this projection keeps "
        f"{at_least(guarantee['kept'])} of the {_KEPT[guarantee['objective']]}, and "
        f"none can keep more than {at_most(guarantee['kept_bound'])}."
    )
    if facts["methods"] and guarantee["objective"] == "variance":
        text += f" PCA, under no cap, keeps {facts['methods'][1]['variance']:.4f}."
    return text


def _sampled(sampling: Facts) -> str:
    measured = f"{sampling['n_pairs']:,} {sampling['things']}"
    if sampling["is_whole"]:
        return f"Every one of {measured} is counted."
    if sampling["n_rows"] == sampling["n_all"]:
        drawn = "drawn at random from those that count"
    else:
        drawn = f"of {sampling['n_rows']:,} rows drawn at random from "
        drawn += f"{sampling['n_all']:,}"
    return (
        f"Sampled: {measured} {drawn}. Figures marked ≥ are the "
        "worst of this sample, hence at most the true ones."
    )


def _histogram(facts: Facts) -> str:
    ours, pca = facts["methods"][:2]
    return (
        f"{_sampled(facts['histogram']['sampling'])} The mean loss is "
        f"{ours['mean']:.4f} here and {pca['mean']:.4f} under PCA, the worst "
        f"{amount(ours)} and {amount(pca)} (dotted lines). The vertical axis is "
        "logarithmic, because bad pairs are few."
    )


def _curve(facts: Facts) -> str:
    if facts["curve"]["isoproj"] is not None:
        return "What the worst pair loses, and the bound proven at each dimension."
    return (
        "The dashed line is the lower bound that this certificate proves at each "
        "number of dimensions; a fit to that number may prove more. No orthogonal "
        "projection reaches the shaded region."
    )


def _nested(facts: Facts) -> str:
    ks = [str(prefix["k"]) for prefix in facts["nested"][:-1]]
    return (
        f"The first {', '.join(ks)} dimensions are projections of their own: store as "
        "many as you need. Each has its own certificate, and its own bound on what any "
        "projection to as many dimensions could do."
    )


def _maps(facts: Facts) -> str:
    found = facts["maps"]
    rows = f"{found['n_rows']:,} rows"
    text = f"Measured alike on all pairs of {rows}."
    if not found["is_whole"]:
        text = (
            f"Sampled: measured alike on all pairs of {rows} drawn at random from "
            f"{found['n_all']:,}, so that the worst pair of all may lose more."
        )
    if found["rows"][0]["recall"]:
        text += (
            " Recall is the share of a row's nearest rows that are still among its "
            f"nearest after the map ({found['metric'].replace('_', ' ')}); exact on "
            "these rows."
        )
        if not found["is_whole"]:
            text += (
                " It is not the recall of a search through all rows, where more rows "
                "compete for the same places."
            )
    return text


def _frontier(facts: Facts) -> str:
    found = facts["frontier"]
    least, most = found["kept"][0], found["kept"][-1]
    return (
        f"From the least loss found ({found['cap'][0]:.4f} for the worst pair, "
        f"{least:.4f} of the {found['objective']} kept) to PCA "
        f"({found['cap'][-1]:.4f}, {most:.4f}). Above the dashed line: more than any "
        "projection under the same cap can keep."
    )


def _worst_pairs(facts: Facts) -> str:
    text = "The pairs that this projection hurts most."
    if facts["pca_worst_pairs"]:
        text += " Beside them: the pairs that PCA hurts most, and what becomes of them."
    return text


def _heldout(facts: Facts) -> str:
    heldout = facts["heldout"]
    return (
        f"{heldout['n_points']:,} points that were not fitted. "
        f"{_sampled(heldout['sampling'])} The certificate does not cover them: it is "
        "for the points it was fitted on."
    )


def _history(facts: Facts) -> str:
    last = facts["history"][-1]
    text = (
        f"Best distortion and best lower bound so far, {last['iteration']} rounds in "
        f"{last['seconds']:.1f} s. The least possible distortion lies between the two."
    )
    if facts["guarantee"]:
        text += " This search found the cap; the next one keeps the most under it."
    return text


def _kept(facts: Facts) -> str:
    last = facts["kept_history"][-1]
    return (
        f"What is kept under the cap and the most that can be, {last['iteration']} "
        f"rounds in {last['seconds']:.1f} s."
    )


def _verify(facts: Facts) -> str:
    claims = facts["claims"]
    if claims is None:
        return "Nothing was recomputed: no data were given."
    if claims["all_pairs"]:
        return (
            "Every claim was recomputed from the data while this report was made, by "
            "code that knows no solver."
        )
    return (
        "The lower bound was recomputed from the data while this report was made; the "
        "walk over all pairs, which proves the distortion, was left out for speed. The "
        "command below does it."
    )

"""A report as dict, JSON, Markdown or HTML."""

from __future__ import annotations

import functools
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from isoproj.numerics.arrays import Rows, check_points, require
from isoproj.numerics.container import write_atomically
from isoproj.numerics.extras import needed
from isoproj.numerics.rounding import at_least, at_most, gap_in_words, paired
from isoproj.numerics.spectral import Fitted, Foreign
from isoproj.pairs.nearness import Metric
from isoproj.plot import svg
from isoproj.plot.images import image_shape_of
from isoproj.plot.marks import Chart
from isoproj.plot.style import css_palette
from isoproj.proof.certificate import certificate_of
from isoproj.reporting import facts as sections
from isoproj.reporting import wording
from isoproj.reporting.charts import charts_of
from isoproj.reporting.facts import Facts
from isoproj.reporting.measuring import Scene, maps_beside, new_points

SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json"}
# Widths of the two drawings of every chart: beside text, and on a phone.
_WIDE, _NARROW = 720, 348


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format that the ending of a path names; else raise ValueError."""
    found = SUFFIXES.get(Path(path).suffix.lower(), "")
    what = "end in .html, .md or .json"
    require(bool(found), "a report", str(path), what, "Name it report.html.")
    return found


class Report:
    """What a model does to its data, ready to be shown.

    Made by ``isoproj.report`` and by the ``report`` method of fitted estimators.

    Parameters
    ----------
    facts : dict
        Everything the report says.

    See Also
    --------
    isoproj.report : Make a report.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def __str__(self) -> str:
        return str(self._facts["sentence"])

    def __repr__(self) -> str:
        return f"<Report: {self}>"

    def to_dict(self) -> Facts:
        """Return everything the report says, as JSON can hold it."""
        facts: Facts = json.loads(self.json())
        return facts

    def json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self._facts, allow_nan=False, ensure_ascii=False)

    def markdown(self) -> str:
        """Return the report as Markdown, without pictures."""
        return _rendered("report.md.jinja", self._facts)

    def html(self) -> str:
        """Return the report as one HTML page that asks the network for nothing."""
        return _rendered("page.html.jinja", self._facts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report, whole or not at all.

        Parameters
        ----------
        path : path-like
            Where to; the ending, ``.html``, ``.md`` or ``.json``, decides the format.

        Raises
        ------
        ValueError
            If the path has another ending.
        OSError
            If the file cannot be written.
        """
        write_atomically(path, getattr(self, format_of(path))().encode())

    def _repr_html_(self) -> str:
        # Without data there is little to tell: a card, as notebooks show a model.
        is_card = self._facts["claims"] is None
        return _rendered("fragment.html.jinja", self._facts, is_card=is_card)


def report(
    model: Fitted,
    X: ArrayLike | Rows | None = None,
    *,
    heldout: ArrayLike | Rows | None = None,
    labels: Sequence[str] | None = None,
    image_shape: tuple[int, int] | None = None,
    curve: Foreign = None,
    frontier: Foreign = None,
    maps: Mapping[str, Any] | None = None,
    recall: int | Sequence[int] | None = None,
    metric: Metric = "euclidean",
    max_pairs: int = 20_000_000,
    model_name: str | None = None,
    data_name: str | None = None,
    heldout_name: str | None = None,
) -> Report:
    """Report what a fitted model does to the points it was fitted on.

    Parameters
    ----------
    model : fitted estimator or Certificate
        The model to report on.
    X : array-like or sparse matrix of shape (n_points, n_features) or None
        The points it was fitted on. Without them the report tells only what the model
        states.
    heldout : array-like or sparse matrix of shape (m, n_features) or None
        Points that the model was not fitted on, to be measured too. If they were drawn
        like the points fitted, the report says what holds for new points.
    labels : sequence of str or None
        A name or text for every point, shown with the worst pairs.
    image_shape : tuple of int or None
        Height and width where points are images; square ones are recognised.
    curve : object or None
        Result of ``distortion_curve``, or any object with arrays ``ks``,
        ``distortion`` and ``lower_bound``.
    frontier : Frontier or None
        Result of ``guarantee_frontier`` for the same points and dimensions.
    maps : mapping of str to linear map or None
        Maps to measure beside the model, by the names to show; whatever ``audit``
        takes.
    recall : int, sequence of int or None
        Numbers of nearest rows whose recall is measured for all maps.
    metric : {"euclidean", "cosine", "inner_product"}
        How near is measured for ``recall``.
    max_pairs : int
        Largest number of pairs to measure methods on. If there are more, a random
        sample of rows is measured, and the report says so.
    model_name, data_name, heldout_name : str or None
        Names of the files, as the report shows them.

    Returns
    -------
    Report
        With ``to_dict``, ``json``, ``markdown``, ``html`` and ``save``.

    Raises
    ------
    ClaimError
        If the model's certificate does not hold for ``X``.
    ValueError
        If an option does not fit the data.

    See Also
    --------
    isoproj.verify : Recompute every claim of a certificate.
    isoproj.audit : Measure a map on all pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import NearIsometricProjection, report
    >>> X = np.random.default_rng(0).normal(size=(30, 6))
    >>> model = NearIsometricProjection(2, random_state=0).fit(X)
    >>> print(report(model, X))  # doctest: +ELLIPSIS
    Every one of 435 distances keeps at least ...
    """
    certificate = certificate_of(model)
    facts = sections.stated(model, certificate)
    facts["model"]["name"] = sections.file_name(model_name)
    facts["data"]["name"] = sections.file_name(data_name)
    if curve is not None:
        facts["curve"] = sections.given_curve(curve, certificate.n_components)
    if frontier is not None:
        facts["frontier"] = sections.frontier(frontier, certificate)
    if X is None:
        return Report(facts)
    rows, more = check_points(X), None
    sections.check_labels(labels, int(rows.shape[0]))
    shape = image_shape_of(rows, image_shape)
    if heldout is not None:
        more = sections.checked_heldout(heldout, certificate.n_features)
    facts["claims"] = sections.checked_claims(model, rows, max_pairs)
    scene = Scene(certificate, rows, max_pairs=max_pairs)
    facts |= sections.measured(scene)
    if curve is None:
        facts["curve"] = sections.proven_curve(scene)
    worst = {"worst_pairs": certificate.worst_pairs}
    if scene.sample.is_whole:
        worst["pca_worst_pairs"] = scene.audits["pca"].worst_pairs
    for name, pairs in worst.items():
        facts[name] = sections.told_pairs(
            scene, pairs[: sections.N_SHOWN], rows, labels, shape
        )
    if more is not None:
        facts["heldout"] = sections.heldout(scene, more, heldout_name, max_pairs)
    facts["maps"] = maps_beside(scene, maps, recall, metric)
    facts["new_points"] = new_points(model, scene, rows, more)
    return Report(facts)


def _rendered(name: str, facts: Facts, *, is_card: bool = False) -> str:
    """Return a template filled with the facts and, in HTML, with the charts."""
    markup = needed("markupsafe", extra="report", purpose="A report").Markup
    drawn = charts_of(facts) if ".html" in name else {}
    template = _environment().get_template(name)
    shown = {
        "facts": facts,
        "is_card": is_card,
        "title": facts["data"]["name"] or facts["model"]["name"] or "a fitted model",
        "sentence": markup(_strong_numbers(html.escape(facts["sentence"]))),
        "say": wording.sentences(facts),
        "commands": wording.commands(facts),
        # Charts are built as trees of elements, so that their texts are escaped.
        "charts": {
            name: {
                "wide": markup(svg.draw(chart, _WIDE)),
                "narrow": markup(svg.draw(chart, _NARROW)),
                "legend": _legend(chart),
            }
            for name, chart in drawn.items()
        },
        "palette": css_palette(),
        "names": wording.METHOD_NAMES,
    }
    return str(template.render(**shown))


def _legend(chart: Chart) -> list[tuple[str, str]]:
    """Return role and label of the marks that have a label, the proven bound last."""
    entries = [(mark.role, mark.label) for mark in chart.marks if mark.label]
    return sorted(entries, key=lambda entry: entry[0] == "floor")


@functools.cache
def _environment() -> Foreign:
    """Return the templates; what is HTML escapes every text put into it."""
    jinja2 = needed("jinja2", extra="report", purpose="A report as HTML or Markdown")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=lambda name: name is not None and ".html" in name,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        percent=wording.percent, amount=wording.amount, gap=gap_in_words
    )
    environment.filters.update(plain=_plain_markdown, fenced=_fenced)
    environment.filters.update(at_least=at_least, at_most=at_most, paired=paired)
    return environment


def _strong_numbers(safe: str) -> str:
    """Return escaped text with its numbers in ``strong`` elements."""
    return re.sub(r"(\d[\d,.]*%?)(?=[\s;.]|$)", r"<strong>\1</strong>", safe)


def _fenced(code: str, language: str = "") -> str:
    """Return a block of code of Markdown, in a fence that the code cannot close."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def _plain_markdown(text: object) -> str:
    """Return text that Markdown shows as it is, also inside tables."""
    flat = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]()#+!|<>~$&-])", r"\\\1", flat)

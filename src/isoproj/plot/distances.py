"""Plots of all distances: how losses spread, before and after, neighbours found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics.arrays import Rows, check_points
from isoproj.numerics.maps import linear_map
from isoproj.numerics.spectral import Fitted, Indices
from isoproj.pairs.losses import exact_losses
from isoproj.pairs.points import Points
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.selection import all_pairs, sample_pairs
from isoproj.plot.axes import Display, axes_or_new, drawn
from isoproj.plot.charts import distances_chart, histogram_chart
from isoproj.plot.marks import DOTTED, Axis, Chart, Dots, Line, Mark, Rule
from isoproj.proof.audit import AuditResult, audit
from isoproj.search.plan import SearchPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class DistortionHistogramDisplay(Display):
    """How the share lost spreads over all pairs, for one map or several.

    Parameters
    ----------
    audits : mapping of str to AuditResult
        Audits by the names for the legend.
    n_bins : int
        Number of bins.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn last.
    """

    def __init__(self, audits: Mapping[str, AuditResult], *, n_bins: int = 100) -> None:
        self.audits = dict(audits)
        self.n_bins = n_bins

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        X: ArrayLike | Rows,
        *,
        pairs: str | ArrayLike = "all",
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Measure a fitted map on all pairs, and draw.

        Parameters
        ----------
        estimator : estimator or array-like of shape (k, n_features)
            Anything that ``audit`` takes.
        X : array-like or sparse matrix of shape (n_points, n_features)
            The points.
        pairs : {"all", "directions"} or array-like of shape (m, 2)
            Which pairs count.
        name : str or None
            Name in the legend; None means the name of the class.
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        DistortionHistogramDisplay
            Drawn.
        """
        axes = axes_or_new(ax)
        label = name or type(estimator).__name__
        return cls({label: audit(X, estimator, pairs=pairs)}).plot(axes)

    def _chart(self) -> Chart:
        low = min(0.0, *(float(a.histogram[1][0]) for a in self.audits.values()))
        counts = {
            name: result.coarse_histogram(self.n_bins, low=low)[0]
            for name, result in self.audits.items()
        }
        worst = {name: result.distortion for name, result in self.audits.items()}
        return histogram_chart(counts, np.linspace(low, 1.0, self.n_bins + 1), worst)


def distortion_histogram(
    audits: AuditResult | Mapping[str, AuditResult],
    *,
    n_bins: int = 100,
    ax: Axes | None = None,
) -> Axes:
    """Draw how the share lost spreads over all pairs.

    Parameters
    ----------
    audits : AuditResult or mapping of str to AuditResult
        One audit, or several by the names for the legend.
    n_bins : int
        Number of bins.
    ax : matplotlib Axes or None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib Axes
        The drawing; the vertical axis is logarithmic, because the worst pairs are few.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.

    See Also
    --------
    isoproj.audit : Measure a map on all pairs.
    shepard : Draw projected against original distances.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import audit, plot
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> ax = plot.distortion_histogram({"first two": audit(X, np.eye(2, 6))})
    >>> ax.get_yscale()
    'log'
    """
    named = {"isoproj": audits} if isinstance(audits, AuditResult) else audits
    return DistortionHistogramDisplay(named, n_bins=n_bins).plot(ax).ax_


class ShepardDisplay(Display):
    """Projected against original distances.

    Parameters
    ----------
    original, projected : array-like of shape (n,)
        Distances of the same pairs.
    n_pairs : int
        Number of all pairs; if it exceeds ``n``, the title says "sampled".
    distortion : float or None
        Loss of the worst of all pairs, if known; drawn as a line that no pair is below.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn last.
    """

    def __init__(
        self,
        original: ArrayLike,
        projected: ArrayLike,
        *,
        n_pairs: int,
        distortion: float | None = None,
    ) -> None:
        self.original = np.asarray(original, dtype=np.float64)
        self.projected = np.asarray(projected, dtype=np.float64)
        self.n_pairs = n_pairs
        self.distortion = distortion

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        X: ArrayLike | Rows,
        *,
        n_sampled: int = 20_000,
        random_state: int = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Measure distances before and after a map, and draw.

        Parameters
        ----------
        estimator : estimator or array-like of shape (k, n_features)
            Anything that ``audit`` takes. If it has ``distortion_``, that must be the
            distortion over all pairs of ``X``.
        X : array-like or sparse matrix of shape (n_points, n_features)
            The points.
        n_sampled : int
            Largest number of pairs to draw; of more pairs, a random sample is drawn.
        random_state : int
            Seed of the sample.
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        ShepardDisplay
            Drawn.
        """
        axes = axes_or_new(ax)
        rows = check_points(X)
        linear = linear_map(estimator, rows.shape[1], orientation="rows")
        points, pairs = prepare_pairs(rows, "all", rotate=False)
        chosen = _sampled_pairs(points, n_sampled, random_state)
        original = points.distances(chosen)
        kept = np.maximum(0.0, 1.0 - exact_losses(points, chosen, linear))
        display = cls(
            original,
            original * np.sqrt(kept),
            n_pairs=pairs.n_pairs,
            distortion=getattr(estimator, "distortion_", None),
        )
        return display.plot(axes)

    def _chart(self) -> Chart:
        return distances_chart(
            self.original, self.projected, self.n_pairs, self.distortion
        )


def shepard(
    X: ArrayLike | Rows,
    components: Fitted,
    *,
    n_sampled: int = 20_000,
    random_state: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw projected against original distances: a Shepard diagram.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_points, n_features)
        The points.
    components : array-like of shape (k, n_features) or fitted estimator
        The map.
    n_sampled : int
        Largest number of pairs to draw; of more pairs, a random sample is drawn, and
        the title says so.
    random_state : int
        Seed of the sample.
    ax : matplotlib Axes or None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib Axes
        The drawing.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.

    See Also
    --------
    distortion_histogram : Draw how the share lost spreads over all pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import plot
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> plot.shepard(X, np.eye(2, 6)).get_title()
    '190 pairs'
    """
    display = ShepardDisplay.from_estimator(
        components, X, n_sampled=n_sampled, random_state=random_state, ax=ax
    )
    return display.ax_


def _sampled_pairs(points: Points, n_sampled: int, random_state: int) -> Indices:
    """Return all pairs of distinct points, or ``n_sampled`` random pairs."""
    n = points.n_points
    if n * (n - 1) // 2 > n_sampled:
        return sample_pairs(points, n_sampled, random_state)
    pairs = all_pairs(n)
    return pairs[points.are_distinct(pairs)]


def search_plan(plan: SearchPlan, *, ax: Axes | None = None) -> Axes:
    """Draw the share of the true neighbours found against candidates fetched.

    Dots mark the planned numbers, ``every_row`` and ``new_query``.

    Parameters
    ----------
    plan : SearchPlan
        Result of ``isoproj.search_plan``.
    ax : matplotlib Axes or None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib Axes
        The drawing.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.

    See Also
    --------
    isoproj.search_plan : Count the candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import plot, search_plan
    >>> X = np.random.default_rng(0).normal(size=(60, 8))
    >>> plot.search_plan(search_plan(X, np.eye(6, 8), n_neighbors=5)).get_xlabel()
    'candidates fetched'
    """
    shown: list[Mark] = []
    query = f"a new query, with probability {plan.confidence}"
    for who, ranks, number, whom in (
        ("stored rows", plan.row_ranks, plan.every_row, "every stored row"),
        ("queries", plan.query_ranks, plan.new_query, query),
    ):
        if ranks is None or number is None:
            continue
        ordered = np.sort(ranks, axis=None)
        at = np.unique(np.append(ordered, number))
        # The share rises at ranks alone: with the numbers before them it is exact.
        at = np.union1d(at, np.maximum(at - 1, 1))
        shares = np.searchsorted(ordered, at, side="right") / ordered.size
        name = f"{number:,} suffice for {whom}"
        shown += [
            Line(who, at, shares, label=who),
            Rule(who, x=number, dash=DOTTED),
            Dots(who, [number], shares[at == number], label=name, size=8.0),
        ]
    chart = Chart(
        x=Axis("candidates fetched", log=True),
        y=Axis("share of the neighbours found", low=0.0, percent=True),
        marks=shown,
        about="Share of the neighbours found against candidates fetched",
    )
    return drawn(chart, ax)

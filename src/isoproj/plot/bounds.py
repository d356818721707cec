"""Plots of the distortion beside its lower bound: by dimensions, caps and rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from isoproj.numerics.arrays import Rows
from isoproj.numerics.spectral import Fitted, Foreign
from isoproj.plot.axes import Display, as_long_as, axes_or_new, drawn
from isoproj.plot.charts import (
    curve_chart,
    floor_marks,
    frontier_chart,
    history_chart,
    loss_line,
)
from isoproj.plot.marks import Chart
from isoproj.proof.audit import audit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class DistortionCurveDisplay(Display):
    """Distortion against the number of dimensions, above the proven floor.

    Parameters
    ----------
    ks : array-like of shape (n,)
        Numbers of dimensions.
    distortion : array-like of shape (n,)
        Loss of the worst pair at each k.
    lower_bound : array-like of shape (n,) or None
        Proven lower bound of that loss at each k.
    estimator_name : str
        Name in the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn last.
    line_ : matplotlib Line2D
        The curve of the distortion.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import NearIsometricProjection
    >>> from isoproj.plot import DistortionCurveDisplay
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> display = DistortionCurveDisplay.from_estimator(
    ...     NearIsometricProjection(random_state=0), X, ks=[1, 2, 3]
    ... )
    """

    line_: Any

    def __init__(
        self,
        ks: ArrayLike,
        distortion: ArrayLike,
        lower_bound: ArrayLike | None = None,
        *,
        estimator_name: str = "isoproj",
    ) -> None:
        self.ks = np.asarray(ks)
        self.distortion = as_long_as(self.ks, "distortion", distortion)
        self.lower_bound = lower_bound
        if lower_bound is not None:
            self.lower_bound = as_long_as(self.ks, "lower_bound", lower_bound)
        self.estimator_name = estimator_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        X: ArrayLike | Rows,
        *,
        ks: Sequence[int],
        ax: Axes | None = None,
        name: str | None = None,
    ) -> Self:
        """Fit a copy of an estimator for every number of dimensions, and draw.

        Parameters
        ----------
        estimator : estimator
            A linear estimator with a parameter ``n_components`` and, once fitted,
            ``components_``.
        X : array-like or sparse matrix of shape (n_points, n_features)
            The points.
        ks : sequence of int
            Numbers of dimensions.
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.
        name : str or None
            Name in the legend; None means the name of the class.

        Returns
        -------
        DistortionCurveDisplay
            Drawn.
        """
        axes = axes_or_new(ax)
        pairs = getattr(estimator, "pairs", "all")
        losses, bounds = [], []
        for k in ks:
            model = clone(estimator).set_params(n_components=int(k)).fit(X)
            losses.append(audit(X, model, pairs=pairs, n_worst=1).distortion)
            bounds.append(float(getattr(model, "lower_bound_", math.nan)))
        certified = bool(np.isfinite(bounds).all())
        display = cls(
            ks,
            losses,
            bounds if certified else None,
            estimator_name=name or type(estimator).__name__,
        )
        return display.plot(axes)

    def plot(self, ax: Axes | None = None, *, name: str | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.
        name : str or None
            Name in the legend instead of ``estimator_name``.

        Returns
        -------
        DistortionCurveDisplay
            Itself.
        """
        self.line_ = self._draw(self._chart(name), axes_or_new(ax))[0]
        return self

    def _chart(self, name: str | None = None) -> Chart:
        label, floor = name or self.estimator_name, self.lower_bound
        marks = [] if floor is None else floor_marks(self.ks, floor)
        line = loss_line(label, self.ks, self.distortion, label=label)
        return curve_chart([line], marks)


def distortion_curve(
    curve: Foreign,
    distortion: ArrayLike | None = None,
    lower_bound: ArrayLike | None = None,
    *,
    others: Mapping[str, ArrayLike] | None = None,
    name: str = "isoproj",
    ax: Axes | None = None,
) -> Axes:
    """Draw distortion against the number of dimensions, above the proven floor.

    Parameters
    ----------
    curve : object with ``ks``, ``distortion`` and ``lower_bound``, or array-like
        A curve, or its numbers of dimensions.
    distortion, lower_bound : array-like of shape (n,) or None
        The rest of the curve, if ``curve`` is an array.
    others : mapping of str to array-like of shape (n,)
        Distortions of other methods at the same numbers of dimensions.
    name : str
        Name of the curve in the legend.
    ax : matplotlib Axes or None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib Axes
        The drawing.

    Raises
    ------
    ValueError
        If the arrays differ in length.
    MissingExtraError
        If matplotlib is not installed.

    See Also
    --------
    isoproj.distortion_curve : Compute the curve.

    Examples
    --------
    >>> from isoproj import plot
    >>> ax = plot.distortion_curve(
    ...     [5, 10, 20], [0.9, 0.7, 0.5], [0.8, 0.68, 0.49], others={"pca": [1, 1, 0.9]}
    ... )
    >>> ax.get_xlabel()
    'dimensions kept, k'
    """
    if distortion is None:
        curve, distortion, lower_bound = curve.ks, curve.distortion, curve.lower_bound
    display = DistortionCurveDisplay(
        curve, distortion, lower_bound, estimator_name=name
    )
    axes = axes_or_new(ax)
    for other, losses in (others or {}).items():
        DistortionCurveDisplay(display.ks, losses, estimator_name=other).plot(axes)
    return display.plot(axes).ax_


class ConvergenceDisplay(Display):
    """Both bounds of a solve, round by round.

    Parameters
    ----------
    iterations : array-like of shape (n,)
        Numbers of the rounds.
    distortion, lower_bound : array-like of shape (n,)
        The best bounds after each round.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn last.
    lines_ : tuple of matplotlib Line2D
        Distortion, lower bound.
    """

    lines_: tuple[Any, Any]

    def __init__(
        self, iterations: ArrayLike, distortion: ArrayLike, lower_bound: ArrayLike
    ) -> None:
        self.iterations = np.asarray(iterations)
        self.distortion = as_long_as(self.iterations, "distortion", distortion)
        self.lower_bound = as_long_as(self.iterations, "lower_bound", lower_bound)

    @classmethod
    def from_estimator(cls, estimator: Fitted, *, ax: Axes | None = None) -> Self:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``history_``.
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        ConvergenceDisplay
            Drawn.

        Raises
        ------
        ValueError
            If there is no history to draw.
        """
        history = getattr(estimator, "history_", ())
        if not history:
            msg = (
                f"convergence must have a history; this {type(estimator).__name__} has "
                "none. Pass an estimator whose fit took more than one step."
            )
            raise ValueError(msg)
        display = cls(
            [step.iteration for step in history],
            np.minimum.accumulate([step.distortion for step in history]),
            np.maximum.accumulate([step.lower_bound for step in history]),
        )
        return display.plot(ax)

    def _chart(self) -> Chart:
        return history_chart(self.iterations, self.distortion, self.lower_bound)

    def _draw(self, chart: Chart, axes: Axes) -> list[Any]:
        artists = super()._draw(chart, axes)
        self.lines_ = (artists[0], artists[1])
        return artists


def frontier(found: Foreign, *, ax: Axes | None = None) -> Axes:
    """Draw what is kept against what the worst pair loses, below the proven bound.

    Parameters
    ----------
    found : Frontier
        Result of ``isoproj.guarantee_frontier``.
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
    isoproj.guarantee_frontier : Compute the frontier.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from isoproj import guarantee_frontier, plot
    >>> X = load_wine().data[:40]
    >>> ax = plot.frontier(guarantee_frontier(X, 2, 3, random_state=0))
    >>> ax.get_xlabel()
    'the worst pair loses'
    """
    floor, objective = found.lower_bound, found.objective
    lines = found.max_distortion, found.kept, found.kept_bound
    return drawn(frontier_chart(*lines, floor, objective=objective), ax)


def convergence(model: Fitted, *, ax: Axes | None = None) -> Axes:
    """Draw distortion and lower bound of a solve, round by round.

    Parameters
    ----------
    model : estimator
        Fitted, with ``history_``; one that was saved and loaded has it too.
    ax : matplotlib Axes or None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib Axes
        The drawing: best bounds so far, round by round.

    Raises
    ------
    ValueError
        If there is no history to draw.
    MissingExtraError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import NearIsometricProjection, plot
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = NearIsometricProjection(2, random_state=0).fit(X)
    >>> plot.convergence(model).get_xlabel()
    'round'
    """
    return ConvergenceDisplay.from_estimator(model, ax=ax).ax_

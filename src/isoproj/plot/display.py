"""What all displays share: numbers at hand, drawn by ``plot``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics.spectral import Array
from isoproj.plot.axes import axes_or_new, draw
from isoproj.plot.marks import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Display(ABC):
    """Numbers that can be drawn, after scikit-learn's convention for displays.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last drawing.
    figure_ : matplotlib Figure
        Figure of these axes.
    """

    ax_: Axes
    figure_: Figure

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the numbers.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        Display
            The display itself.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        """
        self._draw(self._chart(), axes_or_new(ax))
        return self

    @abstractmethod
    def _chart(self) -> Chart:
        """Return the chart of the numbers."""

    def _draw(self, chart: Chart, axes: Axes) -> list[Any]:
        """Draw a chart, remember where, and return one artist per mark."""
        artists = draw(chart, axes)
        self.ax_, self.figure_ = axes, axes.figure  # type: ignore[assignment]
        return artists


def as_long_as(first: Array, name: str, values: ArrayLike) -> Array:
    """Return values as an array if there is one for each entry of ``first``."""
    found = np.asarray(values, dtype=np.float64)
    if found.shape != first.shape or found.ndim != 1:
        msg = (
            f"{name} must have one value for each of {first.size}; got shape "
            f"{found.shape}. Pass arrays of one length."
        )
        raise ValueError(msg)
    return found

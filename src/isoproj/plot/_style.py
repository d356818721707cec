"""One colour and one name per method, wherever methods are drawn."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics.container import write_atomically
from isoproj.numerics.extras import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "FLOOR",
    "axes_or_new",
    "colour_of",
    "draw_floor",
    "save_axes",
    "tidy",
]

# Okabe and Ito's colours stay apart in print and for the colour-blind.
COLOURS = {
    "isoproj": "#0072b2",
    "guaranteed_pca": "#009e73",
    "pca": "#d55e00",
    "random": "#8c8c8c",
    "dual_ascent": "#e69f00",
    "sdp+dr": "#cc79a7",
    "sdp+dr/scs": "#7a3b5e",
    "sdp+rr": "#56b4e9",
    "sap": "#000000",
    "fair_pca": "#b8a800",
}
# What no projection can do: not a method, so not a method's colour.
FLOOR = "#4d4d4d"
_SAME = {
    "minimax": "isoproj",
    "nearisometricprojection": "isoproj",
    "guaranteedpca": "guaranteed_pca",
    "pcaprojection": "pca",
    "randomprojection": "random",
}


def colour_of(name: str) -> str | None:
    """Return the colour of a method, None for one that has none of its own.

    Parameters
    ----------
    name : str
        Of a method as in ``compare``, or of a class.

    Returns
    -------
    str or None
        As ``"#0072b2"``.

    Examples
    --------
    >>> from isoproj.plot._style import colour_of
    >>> colour_of("NearIsometricProjection") == colour_of("minimax")
    True
    >>> colour_of("magic") is None
    True
    """
    plain = name.lower().replace(" ", "_")
    return COLOURS.get(_SAME.get(plain, plain))


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes given, or those of a new figure.

    Parameters
    ----------
    ax : matplotlib Axes or None
        Where to draw.

    Returns
    -------
    matplotlib Axes
        Where to draw.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    pyplot = needed("matplotlib.pyplot", extra="plot", purpose="Drawing")
    axes: Axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    return axes


def draw_floor(ax: Axes, ks: ArrayLike, bounds: ArrayLike) -> None:
    """Shade what no projection can do.

    Parameters
    ----------
    ax : matplotlib Axes
        Where to draw.
    ks : array-like of shape (n,)
        Numbers of dimensions.
    bounds : array-like of shape (n,)
        Proven lower bound at each.
    """
    heights = np.asarray(bounds, dtype=np.float64)
    ax.fill_between(ks, 0.0, heights, color=FLOOR, alpha=0.08, linewidth=0)
    ax.plot(ks, heights, "--", color=FLOOR, label="no projection can get below")


def tidy(ax: Axes) -> None:
    """Leave out the lines of a drawing that say nothing."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)


def save_axes(ax: Axes, path: str) -> None:
    """Write the figure of some axes, whole or not at all.

    Parameters
    ----------
    ax : matplotlib Axes
        Whose figure.
    path : str
        Where to; the extension says in which format.
    """
    buffer = BytesIO()
    kind = Path(path).suffix.lstrip(".") or "png"
    figure: Any = ax.figure
    figure.savefig(buffer, format=kind, dpi=150, bbox_inches="tight")
    write_atomically(path, buffer.getvalue())

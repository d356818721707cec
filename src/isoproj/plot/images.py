"""Draw the worst pairs as images, or as bars with names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isoproj.numerics.arrays import Rows, as_dense, check_points, is_sparse
from isoproj.numerics.spectral import Foreign
from isoproj.plot.axes import axes_or_new, drawn
from isoproj.plot.charts import losses_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Pixels between two images.
_GAP = 2


def image_shape_of(
    rows: Rows, image_shape: tuple[int, int] | None = None
) -> tuple[int, int] | None:
    """Return height and width if rows are images, None if they are not.

    Without ``image_shape`` rows are images if they are dense, never negative, and of a
    square number of features, 36 or more.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.plot.images import image_shape_of
    >>> image_shape_of(np.ones((2, 64)))
    (8, 8)
    >>> image_shape_of(np.ones((2, 63))) is None
    True
    """
    n_features = int(rows.shape[1])
    if image_shape is not None:
        height, width = image_shape
        if min(height, width) < 1 or height * width != n_features:
            msg = (
                f"image_shape must multiply to the {n_features} features; got "
                f"{height} x {width}. Pass height and width of one image."
            )
            raise ValueError(msg)
        return int(height), int(width)
    side = math.isqrt(n_features)
    # A square of fewer features than this is too small for a picture.
    square = side * side == n_features >= 36
    if not square or is_sparse(rows) or float(np.min(rows[:512])) < 0.0:
        return None
    return side, side


def worst_pairs(
    X: ArrayLike | Rows,
    pairs: Foreign,
    distortions: ArrayLike | None = None,
    *,
    n_shown: int = 8,
    image_shape: tuple[int, int] | None = None,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Show the pairs that lose most, as images or by name.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_points, n_features)
        The points.
    pairs : array-like of shape (m, 2), AuditResult or fitted estimator
        Row numbers, worst pair first, or an object that has them.
    distortions : array-like of shape (m,) or None
        Losses of these pairs, needed if ``pairs`` is an array.
    n_shown : int
        Largest number of pairs to show.
    image_shape : tuple of int or None
        Height and width of an image; None recognises square images.
    labels : sequence of str or None
        A name for every point; None means its row number.
    ax : matplotlib Axes or None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib Axes
        One pair a row: as images side by side, or as bars with names.

    Raises
    ------
    ValueError
        If ``image_shape`` does not fit.
    MissingExtraError
        If matplotlib is not installed.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from isoproj import audit, plot
    >>> X = load_digits().data[:60]
    >>> ax = plot.worst_pairs(X, audit(X, X[:3]), n_shown=4)
    >>> len(ax.images)
    1
    """
    rows = check_points(X)
    shape = image_shape_of(rows, image_shape)
    indices, losses = (found[:n_shown] for found in _known(pairs, distortions))
    named = [
        " and ".join(str(i if labels is None else labels[i]) for i in pair)
        for pair in indices.tolist()
    ]
    if shape is None:
        return drawn(losses_chart(named, losses), ax)
    axes = axes_or_new(ax)
    _draw_images(axes, montage(rows, indices, shape), named, losses, shape)
    return axes


def montage(
    rows: Rows, pairs: NDArray[Any], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the images of pairs in one array: two in a row, NaN between them."""
    height, width = shape
    images = as_dense(rows[pairs.ravel()]).reshape(len(pairs), 2, height, width)
    gaps = ((0, 0), (0, 0), (0, _GAP), (0, _GAP))
    framed = np.pad(images.astype(np.float64), gaps, constant_values=math.nan)
    canvas = framed.swapaxes(1, 2).reshape(len(pairs) * (height + _GAP), -1)
    return canvas[:-_GAP, :-_GAP]


def _known(
    pairs: Foreign, distortions: ArrayLike | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the pairs and their losses from a model, an audit or arrays."""
    known: Foreign = getattr(pairs, "certificate_", pairs)
    if hasattr(known, "worst_pairs"):
        return known.worst_pairs, known.worst_distortions
    indices = np.asarray(getattr(known, "worst_pairs_", known))
    if distortions is None:
        return indices, np.full(len(indices), math.nan)
    return indices, np.asarray(distortions)


def _draw_images(
    axes: Axes,
    canvas: NDArray[np.float64],
    named: list[str],
    losses: NDArray[Any],
    shape: tuple[int, int],
) -> None:
    """Draw pairs of images below each other, with their texts at the right."""
    axes.imshow(canvas, cmap="gray_r")
    middles = [at * (shape[0] + _GAP) + shape[0] / 2 for at in range(len(named))]
    texts = [
        name if math.isnan(loss) else f"{name}: loses {loss:.1%}"
        for name, loss in zip(named, losses.tolist(), strict=True)
    ]
    axes.set_yticks(middles, texts)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)

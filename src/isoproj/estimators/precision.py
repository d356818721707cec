"""Tell when the precision of the projected points does not keep the certificate."""

from __future__ import annotations

import math
import warnings

import numpy as np

from isoproj.estimators.base import images_of
from isoproj.estimators.geometry import Geometry
from isoproj.numerics.arrays import Rows, as_dense
from isoproj.numerics.spectral import Array, Indices
from isoproj.proof.certificate import Certificate

__all__ = ["warn_of_rounding"]

# Rows whose pairs are measured, and entries of the differences of these pairs: of all,
# and of those in memory at once.
_MOST = 200
_ENTRIES = 4e6
_HELD = 1e5
# A loss that rounding raises by less than this, or by less than this share of what is
# kept, is not worth a warning.
_LEAST = 1e-4
_SHARE = 0.01


def warn_of_rounding(
    certificate: Certificate, geometry: Geometry, stacklevel: int
) -> None:
    """Warn if pairs of projected points, rounded as they are returned, lose more.

    The certificate is about the matrix. Far from the origin the projected points are
    rounded by more than the distances allow.
    """
    rows = geometry.rows
    used = _rows_at_risk(certificate, int(rows.shape[0]))
    at = np.column_stack(np.triu_indices(used.size, 1))
    at = at[geometry.pairs.holds(used[at], geometry.points.n_points)]
    if not at.size:
        return
    images = images_of(rows[used], certificate.components)
    lengths = _lengths(as_dense(rows[used]), at)
    kept = np.full(lengths.size, np.inf)
    np.divide(_lengths(images, at), lengths, out=kept, where=lengths > 0.0)
    losses = 1.0 - kept**2
    losses[np.isnan(losses)] = -np.inf
    worst = int(np.argmax(losses))
    excess = float(losses[worst]) - certificate.distortion
    if excess > max(_LEAST, _SHARE * (1.0 - certificate.distortion)):
        i, j = used[at[worst]]
        msg = (
            f"In {images.dtype} the projections of rows {i} and {j} lose "
            f"{losses[worst]:.4f} of their squared distance; "
            f"{certificate.distortion:.4f} is certified, for exact arithmetic. The "
            "rows are too far from the origin for their distances. Subtract the mean "
            "from X first"
            + (", or pass float64." if images.dtype.itemsize < 8 else ".")
        )
        warnings.warn(msg, UserWarning, stacklevel=stacklevel + 1)


def _rows_at_risk(certificate: Certificate, n_rows: int) -> Indices:
    """Return rows of the pairs that lose most, and of those that prove the bound."""
    pairs = np.vstack([certificate.worst_pairs, certificate.weighted_pairs])
    named = pairs[(pairs < n_rows).all(axis=1)].ravel()
    first = np.sort(np.unique(named, return_index=True)[1])
    room = 1 + math.isqrt(int(2 * _ENTRIES / certificate.n_features))
    return np.sort(named[first[: min(_MOST, max(2, room))]])


def _lengths(points: Rows, pairs: Indices) -> Array:
    """Return the distances of pairs of rows, in float64, without overflow."""
    lengths = np.empty(pairs.shape[0])
    step = max(1, int(_HELD) // points.shape[1])
    for start in range(0, pairs.shape[0], step):
        chunk = pairs[start : start + step]
        gaps = np.asarray(points[chunk[:, 0]], dtype=np.float64)
        gaps -= points[chunk[:, 1]]
        sizes = np.abs(gaps).max(axis=1)
        gaps /= np.where(sizes > 0.0, sizes, 1.0)[:, None]
        lengths[start : start + step] = sizes * np.linalg.norm(gaps, axis=1)
    return lengths

"""What a sample of pairs says about all of them, with exact binomial confidence."""

from __future__ import annotations

import hashlib

import numpy as np
import scipy.special

from isoproj.numerics.spectral import Array
from isoproj.pairs.points import Points
from isoproj.pairs.rule import sample_pairs
from isoproj.pairs.top_pairs import exact_losses

__all__ = ["CONFIDENCE", "largest_share", "share_above"]

CONFIDENCE = 0.95
_FRESH = 100_000


def largest_share(n_seen: int, n_drawn: int) -> float:
    """Return the share that is not exceeded, with 95 % confidence (Clopper-Pearson).

    Parameters
    ----------
    n_seen : int
        How many of the draws had a property.
    n_drawn : int
        Independent draws.

    Returns
    -------
    float
        The largest probability under which ``n_seen`` or fewer are seen at least one
        time in twenty.

    Examples
    --------
    >>> from isoproj.proof.confidence import largest_share
    >>> round(largest_share(0, 100), 4)
    0.0295
    """
    if n_seen >= n_drawn:
        return 1.0
    return float(scipy.special.betaincinv(n_seen + 1, n_drawn - n_seen, CONFIDENCE))


def share_above(
    points: Points, components: Array, distortion: float, fingerprint: str
) -> float:
    """Return the share of all pairs that may lose more, from a fresh sample.

    Parameters
    ----------
    points : Points
        The geometry.
    components : ndarray of shape (k, n_features)
        Linear map.
    distortion : float
        A loss, found without this sample.
    fingerprint : str
        Of the data. Together with the map it decides the sample, so that nobody can
        choose one, and that anyone can draw it again.

    Returns
    -------
    float
        With 95 % confidence no larger share of all pairs loses more.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.points import Points
    >>> from isoproj.proof.confidence import share_above
    >>> points = Points.prepare(np.eye(4), rotate=False)
    >>> share_above(points, np.eye(4), 0.1, "") < 1e-4
    True
    """
    digest = hashlib.sha256(fingerprint.encode())
    digest.update(np.ascontiguousarray(components, dtype="<f8").tobytes())
    seed = int.from_bytes(digest.digest()[:8], "little")
    pairs = sample_pairs(points, _FRESH, seed)
    losses = exact_losses(points, pairs, components)
    return largest_share(int((losses > distortion).sum()), _FRESH)

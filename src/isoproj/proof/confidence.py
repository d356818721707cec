"""Bounds on the share of all pairs that lose more, from a random sample of pairs."""

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
# Pairs in the sample that judges a fit.
_N_DRAWN = 100_000


def largest_share(n_seen: int, n_drawn: int) -> float:
    """Return the upper 95 % confidence limit of a share (Clopper and Pearson).

    ``n_seen`` of ``n_drawn`` independent draws had the property.
    """
    if n_seen >= n_drawn:
        return 1.0
    return float(scipy.special.betaincinv(n_seen + 1, n_drawn - n_seen, CONFIDENCE))


def share_above(
    points: Points,
    components: Array,
    distortion: float,
    fingerprint: str,
    n_drawn: int = _N_DRAWN,
) -> float:
    """Return a share: with 95 % confidence no more of all pairs lose more.

    The fingerprint of the data and the map are the seed of the sample. So nobody can
    choose the sample, and anyone can draw it again.
    """
    digest = hashlib.sha256(fingerprint.encode())
    digest.update(np.ascontiguousarray(components, dtype="<f8").tobytes())
    seed = int.from_bytes(digest.digest()[:8], "little")
    pairs = sample_pairs(points, n_drawn, seed)
    losses = exact_losses(points, pairs, components)
    return largest_share(int((losses > distortion).sum()), n_drawn)

"""What a random sample says of all pairs, and held-out points of new points."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import scipy.special

from isoproj.numerics.arrays import is_number, require
from isoproj.numerics.spectral import Array
from isoproj.pairs.losses import exact_losses
from isoproj.pairs.points import Points
from isoproj.pairs.selection import sample_pairs

CONFIDENCE = 0.95


def largest_share(n_seen: int, n_drawn: int, confidence: float = CONFIDENCE) -> float:
    """Return the upper confidence limit of a share (Clopper and Pearson).

    ``n_seen`` of ``n_drawn`` independent draws had the property.
    """
    if n_seen >= n_drawn:
        return 1.0
    return float(scipy.special.betaincinv(n_seen + 1, n_drawn - n_seen, confidence))


def conformal_rank(n_points: int, confidence: float) -> int:
    """Return which of the ascending scores of some points a new one exceeds rarely.

    A new point that is exchangeable with the others exceeds the score of this rank with
    probability at most ``1 - confidence``. A ValueError says if there are too few.
    """
    # The decimal number that the caller wrote, so that 20 * 0.95 is 19.
    level = _level(confidence)
    rank = math.ceil((n_points + 1) * level)
    if rank > n_points:
        msg = (
            f"a guarantee at confidence {confidence:g} needs at least "
            f"{fewest_points(confidence)} held-out points; got {n_points}. Hold out "
            "more, or ask for less confidence."
        )
        raise ValueError(msg)
    return rank


def fewest_points(confidence: float) -> int:
    """Return the number of held-out points that a confidence needs."""
    level = _level(confidence)
    return math.ceil(level / (1 - level))


def _level(confidence: float) -> Fraction:
    """Return a confidence as a fraction; raise ValueError unless it is a share."""
    fits = is_number(confidence) and 0.0 < confidence < 1.0
    require(fits, "confidence", confidence, "be a number between 0 and 1", "Use 0.95.")
    return Fraction(str(float(confidence)))


def seed_of(fingerprint: str, components: Array) -> int:
    """Return the seed that the fingerprint of the data and the map decide.

    So anyone can draw the sample of a certificate again. Who makes many maps can choose
    among their samples: ``verify`` draws one of its own as well.
    """
    digest = hashlib.sha256(fingerprint.encode())
    digest.update(np.ascontiguousarray(components, dtype="<f8").tobytes())
    return int.from_bytes(digest.digest()[:8], "little")


def drawn_losses(
    points: Points, components: Array, seed: int, n_drawn: int = 100_000
) -> Array:
    """Return the losses of pairs that are drawn from all pairs of distinct points."""
    return exact_losses(points, sample_pairs(points, n_drawn, seed), components)


def share_of(losses: Array, distortion: float) -> float:
    """Return a share: with 95 % confidence no more than it lose more."""
    return largest_share(int((losses > distortion).sum()), losses.size)


def chance_of_more(n_seen: int, n_drawn: int, share: float) -> float:
    """Return the chance to see ``n_seen`` or more in draws, if this share has it."""
    return float(scipy.special.bdtrc(n_seen - 1, n_drawn, share)) if n_seen else 1.0

"""Numbers in words, rounded to the side on which a statement stays true."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

# A rounding error of the number itself moves no digit.
_SLACK = 1e-9


def at_least(value: float, digits: int = 4) -> str:
    """Return a decimal number that the value is at least.

    Examples
    --------
    >>> from isoproj.numerics.rounding import at_least, at_most, trimmed
    >>> at_least(0.97278), at_most(0.97271), trimmed(at_most(0.25))
    ('0.9727', '0.9728', '0.25')
    """
    return _text(math.floor, value + _SLACK, digits)


def at_most(value: float, digits: int = 4) -> str:
    """Return a decimal number that the value is at most."""
    return _text(math.ceil, value - _SLACK, digits)


def trimmed(text: str) -> str:
    """Return a decimal number without trailing zeros."""
    return text.rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    Examples
    --------
    >>> from isoproj.numerics.rounding import counted
    >>> counted(1, "point"), counted(2000, "point")
    ('1 point', '2,000 points')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def directionless(things: str) -> str:
    """Return what things without a direction are called, which do not count.

    Examples
    --------
    >>> from isoproj.numerics.rounding import directionless
    >>> directionless("pairs"), directionless("pairs and rows")
    ('identical', 'identical or zero')
    """
    words = {"pairs": "identical", "rows": "zero", "and": "or"}
    return " ".join(words[word] for word in things.split())


def paired(pair: Sequence[int], origin: int | None = None) -> str:
    """Return the two rows of a pair; the second may be the origin.

    Examples
    --------
    >>> from isoproj.numerics.rounding import paired
    >>> paired((3, 40)), paired((3, 40), origin=40)
    ('3 and 40', '3 and the origin')
    """
    i, j = pair
    return f"{i} and {'the origin' if j == origin else j}"


def gap_in_words(gap: float) -> str:
    """Return a gap as per cent, or as a ratio where it is 100 % or more.

    Examples
    --------
    >>> from isoproj.numerics.rounding import gap_in_words
    >>> gap_in_words(0.05281), gap_in_words(4.181)
    ('5.29%', '5.2 times')
    """
    if gap < 1.0:
        return trimmed(at_most(100.0 * gap, 2)) + "%"
    return f"{at_most(1.0 + gap, 1)} times"


def excess(gap: float) -> str:
    """Return in words how far a loss can be above the least possible one.

    Examples
    --------
    >>> from isoproj.numerics.rounding import excess
    >>> excess(0.05281), excess(4.181)
    ('at most 5.29% above the best possible', 'at most 5.2 times the best possible')
    """
    return f"at most {gap_in_words(gap)}{' above' * (gap < 1.0)} the best possible"


def _text(whole: Callable[[float], int], value: float, digits: int) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{max(0, whole(value * 10**digits)) / 10**digits:.{digits}f}"

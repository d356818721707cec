"""Which arguments of users are numbers; True and False are not."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

__all__ = ["is_number", "is_whole"]


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number of Python or numpy."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer of Python or numpy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

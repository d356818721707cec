"""Every error and warning that isoproj raises by name."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ClaimError",
    "DuplicatePointsWarning",
    "FormatError",
    "InfeasibleError",
    "IsoprojError",
    "MissingExtraError",
    "NoPairsError",
    "ScratchError",
]


class IsoprojError(Exception):
    """Base of the errors that are ours alone."""


class ClaimError(IsoprojError):
    """A certificate claims something that recomputation does not confirm."""


class FormatError(IsoprojError, ValueError):
    """A file is not what its name or its header says it is."""


class InfeasibleError(IsoprojError, ValueError):
    """No projection under the cap exists, or none was found.

    Parameters
    ----------
    message : str
        Which of the two, with the numbers.
    certificate : Certificate
        The best projection found and the proof of what any must lose.
    """

    def __init__(self, message: str, certificate: Any) -> None:  # noqa: ANN401
        super().__init__(message)
        self.certificate = certificate


class MissingExtraError(IsoprojError, ImportError):
    """A library is not installed; the message names the extra that brings it."""


class NoPairsError(IsoprojError, ValueError):
    """No pair that counts has a direction."""


class ScratchError(IsoprojError, OSError):
    """Arrays beyond the memory budget need a scratch file, and it cannot be made."""


class DuplicatePointsWarning(UserWarning):
    """Pairs of identical points or rows of zeros have no direction and do not count."""

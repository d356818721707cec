"""Every error and warning that isoproj raises by name."""

from __future__ import annotations

__all__ = ["ClaimError", "DuplicatePointsWarning", "FormatError", "IsoprojError"]


class IsoprojError(Exception):
    """Base of the errors that are ours alone."""


class ClaimError(IsoprojError):
    """A certificate claims something that recomputation does not confirm."""


class FormatError(IsoprojError, ValueError):
    """A file is not what its name or its header says it is."""


class DuplicatePointsWarning(UserWarning):
    """Identical points were given; their pairs have no direction and do not count."""

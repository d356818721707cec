"""What every reader of HDF5 checks first."""

from __future__ import annotations

from typing import Any


def refuse_elsewhere(data: Any) -> None:  # noqa: ANN401 - h5py has no types
    """Raise ValueError if the numbers of a data set lie in another file."""
    # A small file from a stranger could otherwise return any file of this machine.
    if getattr(data, "is_virtual", False) or getattr(data, "external", None):
        msg = f"{data.name} lies in another file, which isoproj never follows"
        raise ValueError(msg)

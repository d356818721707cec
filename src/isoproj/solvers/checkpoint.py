"""What a long solve keeps on disk, so that one that is killed can go on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isoproj.exceptions import FormatError
from isoproj.numerics.container import Header, Tensors, read_container, write_container

__all__ = ["Checkpoint"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that holds the state of one solve after its last round.

    Parameters
    ----------
    path : path-like
        Where; written whole or not at all.
    identity : dict
        What the solve is of: data, dimension, tolerance. A file of another solve is
        refused.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from isoproj.solvers.checkpoint import Checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(pathlib.Path(folder) / "run", {"k": 2})
    ...     first = checkpoint.load()
    ...     checkpoint.save({"round": 1}, {})
    ...     again = checkpoint.load()
    >>> first is None, again[0]["round"]
    (True, 1)
    """

    path: str | os.PathLike[str]
    identity: Mapping[str, Any]

    def load(self) -> tuple[Header, Tensors] | None:
        """Return the state after the last round, or None if there is none yet.

        Raises
        ------
        FormatError
            If the file is broken, or of another solve.
        """
        if not Path(self.path).exists():
            return None
        header, tensors = read_container(self.path)
        theirs = header.get("checkpoint_of")
        if theirs != dict(self.identity):
            theirs = theirs if isinstance(theirs, dict) else {}
            differing = [n for n, v in self.identity.items() if theirs.get(n) != v]
            msg = (
                f"checkpoint {self.path} must be of this fit; it differs in "
                f"{', '.join(differing) or 'kind'}. Delete it, or name another file."
            )
            raise FormatError(msg)
        return header["state"], tensors

    def save(self, state: Header, tensors: Tensors) -> None:
        """Write the state after a round."""
        header = {"checkpoint_of": dict(self.identity), "state": dict(state)}
        write_container(self.path, header, tensors)

"""From an exception to one line that says what to do, and an exit status."""

from __future__ import annotations

import errno
import os

__all__ = ["ClaimFailed", "Interrupted", "Trouble", "line_of"]

_REMEDIES = {
    errno.ENOENT: "does not exist. Check the name.",
    errno.EACCES: "must be open to you; permission is denied. Change its permissions.",
    errno.EPERM: "must be open to you; permission is denied. Change its permissions.",
    errno.EISDIR: "must be a file; it is a directory. Name a file in it.",
    errno.ENOTDIR: "is not in a folder: a part of its path is a file. Check the name.",
    errno.ENOSPC: "could not be written: the disk is full. Free space and try again.",
    errno.EDQUOT: "could not be written: your quota is used up. Free space first.",
    errno.EFBIG: "could not be written: files may not be that large here.",
    errno.EROFS: "could not be written: the disk is read-only. Name another folder.",
    errno.ENAMETOOLONG: "has too long a name. Choose a shorter one.",
}


class Trouble(Exception):  # noqa: N818 - what a person is in, not an error of ours
    """What was asked for cannot be done; the message says what to do instead."""


class ClaimFailed(Exception):  # noqa: N818 - an answer, not an error
    """A claim does not hold: the verb has said so, only the exit status is left."""


class Interrupted(Exception):  # noqa: N818 - an answer, not an error
    """The user stopped a verb, which has saved and said what it had."""


def line_of(error: BaseException) -> str:
    """Return an exception as one line for a person.

    Parameters
    ----------
    error : BaseException
        Whatever was raised.

    Returns
    -------
    str
        Without a line break and without a class name where the text suffices.

    Examples
    --------
    >>> from isoproj.cli.errors import line_of
    >>> line_of(FileNotFoundError(2, "No such file", "a.npy"))
    'a.npy does not exist. Check the name.'
    >>> line_of(MemoryError())
    'this needs more memory than there is. Take fewer rows or columns.'
    """
    if isinstance(error, MemoryError):
        return "this needs more memory than there is. Take fewer rows or columns."
    if isinstance(error, OSError) and error.errno is not None:
        where = os.fsdecode(error.filename) if error.filename else "the output"
        if error.errno in _REMEDIES:
            return _one_line(f"{where} {_REMEDIES[error.errno]}")
        return _one_line(f"{where}: {error.strerror}.")
    return _one_line(str(error) or type(error).__name__)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    # A file name may hold anything; a terminal should not obey it.
    return "".join(c if c.isprintable() else "?" for c in line)

"""Exceptions of the command line, and their messages in one line."""

from __future__ import annotations

import errno
import os

# What to say after the name of a file, for each error of the operating system.
_REMEDIES = {
    errno.ENOENT: "does not exist. Check the name.",
    errno.EACCES: "must be accessible; permission is denied. Change its permissions.",
    errno.EPERM: "must be accessible; permission is denied. Change its permissions.",
    errno.EISDIR: "must be a file; it is a directory. Name a file in it.",
    errno.ENOTDIR: "must be in a folder; a part of its path is a file. Check the name.",
    errno.ENOSPC: "could not be written: the disk is full. Free space and try again.",
    errno.EDQUOT: "could not be written: your quota is used up. Free space first.",
    errno.EFBIG: "could not be written: it is too large for this disk. Name another.",
    errno.EROFS: "could not be written: the disk is read-only. Name another folder.",
    errno.ENAMETOOLONG: "has too long a name. Choose a shorter one.",
}


class UsageError(Exception):
    """The command cannot be carried out; the message says what to do instead."""


class ClaimFailed(Exception):  # noqa: N818 - an answer, not an error
    """A claim does not hold; the verb has printed this already."""


class Interrupted(Exception):  # noqa: N818 - an answer, not an error
    """The user stopped a verb; the verb has saved and printed its result so far."""


def line_of(error: BaseException) -> str:
    """Return the message of an exception in one line."""
    if isinstance(error, MemoryError):
        return "this needs more memory than there is. Use fewer rows or columns."
    if isinstance(error, OSError) and error.errno is not None:
        where = os.fsdecode(error.filename) if error.filename else "the output"
        if error.errno in _REMEDIES:
            return one_line(f"{where} {_REMEDIES[error.errno]}")
        return one_line(f"{where}: {error.strerror}.")
    return one_line(str(error) or type(error).__name__)


def one_line(text: str) -> str:
    """Return a text in one line of printable characters."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return a text with a question mark for every character that does not print."""
    # Names of files and columns may contain control sequences of a terminal.
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)

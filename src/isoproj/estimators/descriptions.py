"""Parameters and attributes that several classes share are described once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)
# An entry of a numpydoc section: a line with names, and the indented text below it.
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : .*\n(?: +.*\n?)+", re.MULTILINE)
_REFERENCE = re.compile(r"^(\w+(?:, \w+)*)\n +As for .*\n?", re.MULTILINE)


def described_by(source: type) -> Callable[[_Class], _Class]:
    """Return a decorator that completes a docstring with entries of ``source``.

    Where the docstring of the decorated class lists names without a type, followed by
    "As for ...", the entries of these names in the docstring of ``source`` take their
    place. Readers of ``help`` and of the site see a whole docstring.
    """
    entries = {
        name: found[0].rstrip()
        for found in _ENTRY.finditer(inspect.cleandoc(source.__doc__ or ""))
        for name in found[1].split(", ")
    }

    def described(reference: re.Match[str]) -> str:
        blocks = [entries[name] for name in reference[1].split(", ")]
        return "\n".join(dict.fromkeys(blocks)) + "\n"

    def complete(cls: _Class) -> _Class:
        # Without docstrings (python -OO) there is nothing to complete.
        if cls.__doc__ is not None and entries:
            cls.__doc__ = _REFERENCE.sub(described, inspect.cleandoc(cls.__doc__))
        return cls

    return complete

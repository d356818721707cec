"""Model files with any contents and a fresh digest, as a stranger could write them."""

from __future__ import annotations

import copy
import json

import safetensors.numpy

from isoproj.numerics import container

# Texts that do harm where a shell, psql, a browser or a terminal reads them.
HARMFUL = (
    "\n\\! id>x\n--",
    "$isoproj$; DROP TABLE items; --",
    "'; DROP TABLE items; --",
    "<script>alert(1)</script>",
    "```\nrm -rf ~\n```",
    "\x1b]0;title\x07\x1b[2J",
    "\x9b31m",
    "\u202etxt.exe",
    "a\x00b",
    "",
)


def write_forged(path, header, tensors, text=None):
    """Write a model file whose digest fits; ``text`` replaces its JSON."""
    stored = {name: container._portable(tensor) for name, tensor in tensors.items()}
    whole = {"format": "isoproj", "format_version": 1, **header}
    whole["digest"] = container._digest(whole, stored)
    text = json.dumps(whole, sort_keys=True) if text is None else text(whole)
    path.write_bytes(safetensors.numpy.save(stored, metadata={"isoproj": text}))
    return path


def forge(source, target, change):
    """Copy a model file, changed by ``change(header, tensors)``."""
    header, tensors = container.read_container(source)
    header = copy.deepcopy(header)
    tensors = {name: tensor.copy() for name, tensor in tensors.items()}
    change(header, tensors)
    return write_forged(target, header, tensors)


def strings_of(value, path=()):
    """Yield the path of every string of a JSON value, keys included as ``...``."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from strings_of(item, (*path, name))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from strings_of(item, (*path, at))


def replaced(value, path, text):
    """Put a text at a path of a JSON value."""
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = text

"""How a certificate is stored: entries of a JSON header, and named arrays.

What is stored of a dataclass is its fields; their annotations say how.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.numerics.container import Tensors
from isoproj.numerics.spectral import Foreign
from isoproj.pairs.rule import LABELLED, PairKind
from isoproj.proof.objective import Objective

# What an entry of the header may be, by the annotation of its field.
_ENTRIES: dict[str, Any] = {
    "bool": bool,
    "float": float,
    "float | None": float | None,
    "int": int,
    "str": str,
    "Objective": Objective,
    "PairKind": PairKind,
}
# The types that an array may have, by the annotation of its field.
_ARRAYS = {
    "Array": ("f8",),
    "Indices": ("i8",),
    "Indices | None": ("i8",),
    "Map": ("f8", "f4"),
}
# What the first rows of a nested projection state for themselves; the rest is that of
# all rows.
OF_PREFIX = {
    *("distortion", "lower_bound", "sampled_share", "weighted_pairs", "weights"),
    *("worst_pairs", "worst_distortions", "guarantee", "exclusion", "hull"),
}


def pack(
    item: Foreign, only: set[str] | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the stored entries and arrays of an object, and of its parts."""
    entries: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if only is not None and field.name not in only:
            continue
        if is_dataclass(value):
            entries[field.name], further = pack(value)
            arrays |= further
        elif field.type in _ENTRIES:
            entries[field.name] = value
        elif field.type in _ARRAYS and value is not None:
            arrays[field.name] = value
    return entries, arrays


def unpack(
    kind: Foreign,
    name: str,
    entries: object,
    arrays: Tensors,
    only: set[str] | None = None,
) -> dict[str, Any]:
    """Return the attributes that ``pack`` stored; raise FormatError if one is bad.

    Parts of the object are unpacked by themselves. Entries that older files lack are
    those whose fields have a default.
    """
    stated: Mapping[str, Any] = entries if isinstance(entries, Mapping) else {}
    fault = "" if stated is entries else f"a table of entries for its {name}"
    found: dict[str, Any] = {}
    for field in fields(kind):
        if only is not None and field.name not in only:
            continue
        if field.type in _ENTRIES:
            default = None if field.default is MISSING else field.default
            value = stated.get(field.name, default)
            fault = fault or _entry_fault(field.name, value, _ENTRIES[field.type])
        elif field.type in _ARRAYS:
            value = arrays.get(field.name)
            fault = fault or _array_fault(field.name, value, str(field.type))
        else:
            continue
        found[field.name] = value
    if not fault and "pair_kind" in found:
        fault = naming_fault(PairKind(found["pair_kind"]), set(arrays))
    if fault:
        msg = f"a certificate must have {fault}. Write one with save()."
        raise FormatError(msg)
    choices = {"pair_kind": PairKind, "objective": Objective}
    return found | {n: choices[n](found[n]) for n in choices.keys() & found}


def _entry_fault(name: str, value: object, kind: Foreign) -> str:
    """Return what is wrong with an entry, or an empty string."""
    if isinstance(kind, enum.EnumMeta):
        is_known = isinstance(value, str) and value in set(kind)
        return "" if is_known else f"a known {name!r}"
    # In Python a bool is an int, too.
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        return f"the entry {name!r}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"a finite number as {name!r}"
    if name == "fingerprint" and not re.fullmatch(r"[0-9a-f]{64}", str(value)):
        return f"64 hexadecimal digits as {name!r}"
    return ""


def _array_fault(name: str, array: NDArray[Any] | None, annotation: str) -> str:
    """Return what is wrong with an array, or an empty string."""
    kinds, is_of_pairs = _ARRAYS[annotation], name.endswith("_pairs")
    n_axes = 2 if is_of_pairs or name in ("components", "hull_axes") else 1
    if array is None:
        return "" if annotation.endswith("None") else f"the array {name!r}"
    if array.dtype.str[1:] not in kinds or array.ndim != n_axes:
        return f"{name!r} of type {kinds[0]} with {n_axes} axes"
    if is_of_pairs and array.shape[1] != 2:
        return f"two columns in {name!r}"
    return ""


def prefix_ranks(entries: object, n_components: int) -> list[int]:
    """Return the numbers of rows of stored prefixes, which ascend; else FormatError."""
    found: list[int] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        k = entry.get("n_components") if isinstance(entry, Mapping) else None
        if type(k) is not int or not max(found, default=0) < k < n_components:
            msg = (
                "a certificate must have ascending prefixes of fewer rows than its "
                f"{n_components}; got {k!r}. Write one with save()."
            )
            raise FormatError(msg)
        found.append(k)
    return found


def naming_fault(kind: PairKind, present: set[str]) -> str:
    """Return which array that names the pairs is missing or superfluous, or ""."""
    if ("listed_pairs" in present) != kind.is_listed:
        return "'listed_pairs' exactly when pairs are listed"
    if ("labels" in present) != (kind in LABELLED):
        return "'labels' exactly when labels name the pairs"
    return ""

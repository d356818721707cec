"""How a certificate is stored: entries of a JSON header, and named arrays."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.numerics.container import Tensors
from isoproj.pairs.rule import LABELLED, PairKind
from isoproj.proof.objective import Objective

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_INDICES = ("i8",)
_FLOATS = ("f8",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The attributes of a class that are stored, with their types.

    ``arrays`` gives the allowed dtypes and the number of axes. ``choices`` are entries
    with a closed set of values. ``defaults`` are entries that older files lack, and
    ``optional`` are arrays that may be absent.
    """

    name: str
    entries: Mapping[str, tuple[type, ...]]
    arrays: Mapping[str, tuple[tuple[str, ...], int]]
    choices: Mapping[str, type[enum.StrEnum]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()


CERTIFICATE = Layout(
    name="certificate",
    entries={
        "distortion": (float,),
        "lower_bound": (float,),
        "n_pairs": (int,),
        "n_identical": (int,),
        "n_points": (int,),
        "n_features": (int,),
        "fingerprint": (str,),
        "spectral_ratio": (float, type(None)),
        "sampled_share": (float, type(None)),
        "n_close": (int,),
        "min_distance": (float,),
        "include_norms": (bool,),
    },
    defaults={"n_close": 0, "min_distance": 0.0, "include_norms": False},
    choices={"pair_kind": PairKind},
    arrays={
        "components": (("f8", "f4"), 2),
        "weighted_pairs": (_INDICES, 2),
        "weights": (_FLOATS, 1),
        "worst_pairs": (_INDICES, 2),
        "worst_distortions": (_FLOATS, 1),
        "listed_pairs": (_INDICES, 2),
        "labels": (_INDICES, 1),
    },
    optional=frozenset({"listed_pairs", "labels"}),
)
GUARANTEE = Layout(
    name="guarantee",
    entries={"cap": (float,), "kept": (float,), "kept_bound": (float,)},
    choices={"objective": Objective},
    arrays={"capped_pairs": (_INDICES, 2), "multipliers": (_FLOATS, 1)},
)
EXCLUSION = Layout(
    name="exclusion",
    entries={"cap": (float,), "n_components": (int,)},
    arrays={"excluding_pairs": (_INDICES, 2), "excluding_weights": (_FLOATS, 1)},
)
HULL = Layout(
    name="hull",
    entries={"bound": (float,)},
    arrays={"hull_axes": (_FLOATS, 2), "hull_pairs": (_INDICES, 2)},
)
# The claims about the first rows of a nested projection; the rest is that of all rows.
PREFIX = Layout(
    name="prefix",
    entries={
        "n_components": (int,),
        "distortion": (float,),
        "lower_bound": (float,),
        "sampled_share": (float, type(None)),
    },
    arrays={
        "weighted_pairs": (_INDICES, 2),
        "weights": (_FLOATS, 1),
        "worst_pairs": (_INDICES, 2),
        "worst_distortions": (_FLOATS, 1),
    },
)


def pack(
    item: object, layout: Layout
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the stored entries and arrays of an object."""
    entries = {name: getattr(item, name) for name in layout.entries}
    entries |= {name: getattr(item, name).value for name in layout.choices}
    arrays = {name: getattr(item, name) for name in layout.arrays}
    return entries, {name: a for name, a in arrays.items() if a is not None}


def unpack(layout: Layout, entries: object, arrays: Tensors) -> dict[str, Any]:
    """Return the attributes that ``pack`` stored; raise FormatError if one is bad."""
    stated = dict(layout.defaults)
    fault = f"a table of entries for its {layout.name}"
    if isinstance(entries, Mapping):
        stated |= entries
        fault = _entry_fault(layout, stated) or _array_fault(layout, arrays)
    if not fault and "pair_kind" in layout.choices:
        fault = naming_fault(PairKind(stated["pair_kind"]), set(arrays))
    if fault:
        msg = f"a certificate must have {fault}. Write one with save()."
        raise FormatError(msg)
    return {
        **{name: stated.get(name) for name in layout.entries},
        **{name: kind(stated[name]) for name, kind in layout.choices.items()},
        **{name: arrays.get(name) for name in layout.arrays},
    }


def _entry_fault(layout: Layout, entries: Mapping[str, Any]) -> str:
    """Return which entry is missing or of another type, or an empty string."""
    for name, kinds in layout.entries.items():
        value = entries.get(name)
        # In Python a bool is an int, too.
        if not isinstance(value, kinds) or isinstance(value, bool) != (bool in kinds):
            return f"the entry {name!r}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"a finite number as {name!r}"
        if name == "fingerprint" and not _FINGERPRINT.fullmatch(str(value)):
            return f"64 hexadecimal digits as {name!r}"
    for name, kind in layout.choices.items():
        value = entries.get(name)
        if not isinstance(value, str) or value not in set(kind):
            return f"a known {name!r}"
    return ""


def _array_fault(layout: Layout, arrays: Tensors) -> str:
    """Return which array is missing or of another type, or an empty string."""
    for name, (kinds, ndim) in layout.arrays.items():
        array = arrays.get(name)
        if array is None:
            if name not in layout.optional:
                return f"the array {name!r}"
        elif array.dtype.str[1:] not in kinds or array.ndim != ndim:
            return f"{name!r} of type {kinds[0]} with {ndim} axes"
        elif name.endswith("_pairs") and array.shape[1] != 2:
            return f"two columns in {name!r}"
    return ""


def prefix_arrays(k: int, arrays: Tensors) -> dict[str, NDArray[Any]]:
    """Return the arrays of a prefix under the names that they have in the file."""
    return {f"first_{k}_{name}": array for name, array in arrays.items()}


def unpack_prefixes(
    entries: object, arrays: Tensors, n_components: int
) -> list[tuple[Mapping[str, Any], dict[str, Any], dict[str, NDArray[Any]]]]:
    """Return for every prefix its entries, its attributes and its arrays.

    Raises FormatError unless the prefixes ascend and have fewer than ``n_components``
    rows.
    """
    found, last = [], 0
    listed = entries if isinstance(entries, list) else [entries]
    for entry in listed:
        prefix: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {}
        k = prefix.get("n_components")
        if type(k) is not int or not last < k < n_components:
            msg = (
                "a certificate must have ascending prefixes of fewer rows than its "
                f"{n_components}; got {k!r}. Write one with save()."
            )
            raise FormatError(msg)
        start = f"first_{k}_"
        own = {
            name.removeprefix(start): array
            for name, array in arrays.items()
            if name.startswith(start)
        }
        found.append((prefix, unpack(PREFIX, prefix, own), own))
        last = k
    return found


def naming_fault(kind: PairKind, present: set[str]) -> str:
    """Return which array that names the pairs is missing or superfluous, or ""."""
    if ("listed_pairs" in present) != kind.is_listed:
        return "'listed_pairs' exactly when pairs are listed"
    if ("labels" in present) != (kind in LABELLED):
        return "'labels' exactly when labels name the pairs"
    return ""

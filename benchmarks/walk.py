"""Count what one fit runs through: modules and functions of isoproj, and how deep.

python benchmarks/walk.py
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from pathlib import Path

import numpy as np

import isoproj

PACKAGE = Path(isoproj.__file__).parent


def walk(k, n_points, n_features):
    """Return the functions called by a default fit, by module, and the deepest call."""
    rows = np.random.default_rng(0).normal(size=(n_points, n_features))
    model = isoproj.NearIsometricProjection(k, random_state=0)
    model.fit(rows)  # Imports are over.
    called, depth, deepest = defaultdict(set), 0, 0

    def note(frame, event, _):
        nonlocal depth, deepest
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not path.is_relative_to(PACKAGE):
            return
        depth += 1 if event == "call" else -1
        deepest = max(deepest, depth)
        module = str(path.relative_to(PACKAGE).with_suffix(""))
        called[module].add(frame.f_code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        _ = model.fit(rows).certificate_
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return called, deepest


if __name__ == "__main__":
    for case in ((10, 60, 20), (2, 60, 6)):
        called, deepest = walk(*case)
        functions = sum(len(names) for names in called.values())
        print(
            f"k={case[0]}: {len(called)} modules, {functions} functions, {deepest} deep"
        )
        for module in sorted(called):
            print(f"  {module}: {len(called[module])}")

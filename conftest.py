"""What tests and examples share: drawings are cleared away, and fits are quick."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session", autouse=True)
def _short_hull_search() -> Iterator[None]:
    """Let fits look at few subspaces for a better lower bound.

    In few dimensions that search takes longer than the rest of a small fit. Any bound
    that it finds is certified alike, so only tests that state how good it is need the
    whole search: they use the fixture ``whole_hull_search``.
    """
    from isoproj.solvers import hull

    few = hull.HullSettings(work=3e7, n_random=4, n_local=1, n_shaken=1)
    short = functools.partial(hull.hull_search, settings=few)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hull, "hull_search", short)
        yield


@pytest.fixture(scope="module")
def whole_hull_search() -> Iterator[None]:
    """Let the fits of a module search for lower bounds as users' fits do."""
    from isoproj.solvers import hull

    with pytest.MonkeyPatch.context() as patch:
        if isinstance(hull.hull_search, functools.partial):
            patch.setattr(hull, "hull_search", hull.hull_search.func)
        yield

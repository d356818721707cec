"""What tests and examples share: drawings are cleared away, and fits are quick."""

from __future__ import annotations

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


def _short(patch: pytest.MonkeyPatch) -> None:
    """Let fits look at few subspaces and start from one random basis."""
    from isoproj.solvers.settings import DescentSettings, HullSettings, Settings

    defaults = Settings.__init__.__kwdefaults__
    few = HullSettings(work=3e7, n_random=4, n_local=1, n_shaken=1)
    patch.setitem(defaults, "hull", few)
    patch.setitem(defaults, "descent", DescentSettings(n_restarts=1))


_SEARCHES = pytest.MonkeyPatch()


@pytest.fixture(scope="session", autouse=True)
def _short_searches() -> Iterator[None]:
    """Keep the searches of fits short.

    In few dimensions, subspaces for a better lower bound and random starts for a better
    basis take longer than the rest of a small fit. Whatever they find is certified
    alike, so only tests that state how good it is need the whole search: they use the
    fixture ``whole_search``.
    """
    _short(_SEARCHES)
    yield
    _SEARCHES.undo()


@pytest.fixture(scope="module")
def whole_search() -> Iterator[None]:
    """Let the fits of a module search as users' fits do."""
    _SEARCHES.undo()
    yield
    _short(_SEARCHES)

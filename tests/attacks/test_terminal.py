"""Names from files do not control the terminal."""

from __future__ import annotations

import numpy as np
import pytest

ESCAPE = "\x1b[2J\x1b]0;title\x07"


@pytest.mark.parametrize("verb", ["info", "verify"])
def test_escapes_in_names_do_not_reach_the_terminal(models, tmp_path, run, verb):
    rows = np.load(models / "points.npy")
    table = tmp_path / f"a{ESCAPE.replace('/', '')}.csv"
    names = [ESCAPE, *(f"x{i}" for i in range(1, 6))]
    np.savetxt(table, rows, delimiter=",", header=",".join(names), comments="")
    given = [table] if verb == "info" else [models / "near.isoproj", table]
    _, out, err = run(verb, *given)
    assert out + err
    assert "\x1b" not in out + err
    assert "\x07" not in out + err

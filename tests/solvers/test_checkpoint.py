from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from geometry import cloud
from numpy.testing import assert_array_equal

from isoproj import NearIsometricProjection
from isoproj.exceptions import FormatError
from isoproj.numerics.progress import Step, watching
from isoproj.solvers.hull import PHASE

# The process that is killed searches for hulls as users' fits do.
pytestmark = pytest.mark.usefixtures("whole_search")

# Killed by itself, without a chance to tidy up, once it has told a given round.
KILLED = """
import os, signal, sys
import numpy as np
from isoproj import NearIsometricProjection
from isoproj.numerics.progress import Step, watching

rows, path, last = np.load(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def die(step):
    if step.iteration == last:
        os.kill(os.getpid(), signal.SIGKILL)

with watching(die, Step):
    NearIsometricProjection(3, random_state=0, tol=1e-3, checkpoint=path).fit(rows)
"""


def rows_of():
    return cloud(5, 40, 6) * 0.85 ** np.arange(6)


def model(path, **options):
    options = {"random_state": 0, "tol": 1e-3, "checkpoint": path, **options}
    return NearIsometricProjection(3, **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return model(tmp_path_factory.mktemp("run") / "run.isoproj").fit(rows_of())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The checkpoint of a fit that stopped after three rounds."""
    path = tmp_path_factory.mktemp("stopped") / "run.isoproj"
    with pytest.warns(UserWarning, match="max_iter"):
        model(path, max_iter=3).fit(rows_of())
    return path


def killed_run(folder, last):
    np.save(folder / "rows.npy", rows_of())
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    command += [str(folder / "rows.npy"), str(folder / "run.isoproj"), str(last)]
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize("last", [3, -1])
def test_a_killed_fit_goes_on_to_the_same_result(tmp_path, undisturbed, last):
    rounds = len(undisturbed.history_)
    assert rounds >= 3
    assert killed_run(tmp_path, last % rounds) == -9
    seen = []
    with watching(seen.append, Step):
        again = model(tmp_path / "run.isoproj").fit(rows_of())
    # Killed while it told a round: that one is lost, and no other. A hull that was
    # finished when the fit died is looked for again.
    assert len([s for s in seen if s.phase != PHASE]) <= rounds - last % rounds
    assert again.n_iter_ == undisturbed.n_iter_
    assert_array_equal(again.components_, undisturbed.components_)
    assert again.distortion_ == undisturbed.distortion_
    assert again.lower_bound_ == undisturbed.lower_bound_
    assert_array_equal(again.certificate_.weights, undisturbed.certificate_.weights)


def test_a_finished_fit_is_taken_up_at_its_end(tmp_path, undisturbed):
    path = shutil.copy(undisturbed.checkpoint, tmp_path)
    seen = []
    with watching(seen.append, Step):
        again = model(path).fit(rows_of())
    # The hull is not part of a checkpoint: it is looked for again.
    assert all(step.phase == PHASE for step in seen)
    assert_array_equal(again.components_, undisturbed.components_)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"tol": 0.5}, "tol"), ({"random_state": 1}, "random_state")],
)
def test_the_checkpoint_of_another_fit_is_refused(tmp_path, stopped, change, named):
    path = shutil.copy(stopped, tmp_path)
    with pytest.raises(FormatError, match=f"differs in {named}"):
        model(path, **change).fit(rows_of())
    with pytest.raises(FormatError, match="differs in data"):
        model(path).fit(rows_of() + cloud(0, 40, 6))


def test_a_broken_checkpoint_is_refused(tmp_path):
    path = tmp_path / "run.isoproj"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(FormatError):
        model(path).fit(rows_of())

"""A fit that is killed goes on to the same result; a strange state is refused."""

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
    NearIsometricProjection(
        2, random_state=0, tol=1e-3, n_restarts=1, checkpoint=path
    ).fit(rows)
"""
ROWS = cloud(5, 40, 6) * 0.85 ** np.arange(6)


def model(path, **options):
    usual = {"random_state": 0, "tol": 1e-3, "n_restarts": 1, "checkpoint": path}
    return NearIsometricProjection(2, **{**usual, **options})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return model(tmp_path_factory.mktemp("run") / "run.isoproj").fit(ROWS)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The checkpoint of a fit that stopped after three rounds."""
    path = tmp_path_factory.mktemp("stopped") / "run.isoproj"
    with pytest.warns(UserWarning, match="max_iter"):
        model(path, max_iter=3).fit(ROWS)
    return path


def assert_same(again, undisturbed):
    assert again.status_ == undisturbed.status_
    assert again.n_iter_ == undisturbed.n_iter_
    assert_array_equal(again.components_, undisturbed.components_)
    assert again.distortion_ == undisturbed.distortion_
    assert again.lower_bound_ == undisturbed.lower_bound_
    ours, theirs = again.certificate_, undisturbed.certificate_
    assert_array_equal(ours.weighted_pairs, theirs.weighted_pairs)
    assert_array_equal(ours.weights, theirs.weights)
    assert ours.proof == theirs.proof


def resumed(path):
    """Return a fit that goes on, and the rounds that it tells."""
    seen = []
    with watching(seen.append, Step):
        return model(path).fit(ROWS), seen


class Killed(BaseException):
    """Nothing in the package stops this on its way."""


def test_a_fit_that_dies_at_any_round_goes_on_to_the_same_result(tmp_path, undisturbed):
    rounds = len(undisturbed.history_)
    phases = [step.phase for step in undisturbed.history_]
    # The first of every phase, some in between, and the last.
    first = {phases.index(phase) for phase in phases}
    for last in sorted({*first, *range(2, rounds, rounds // 5), rounds - 1}):
        path = tmp_path / f"{last}.isoproj"

        def die(step, last=last):
            if step.iteration == last:
                raise Killed

        with watching(die, Step), pytest.raises(Killed):
            model(path).fit(ROWS)
        again, seen = resumed(path)
        # The round that was being told is lost, and no other.
        assert len(seen) <= rounds - last + 1
        assert_same(again, undisturbed)


def test_a_process_that_is_killed_leaves_a_state_to_go_on_from(tmp_path, undisturbed):
    np.save(tmp_path / "rows.npy", ROWS)
    last = len(undisturbed.history_) // 2
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    paths = [str(tmp_path / name) for name in ("rows.npy", "run.isoproj")]
    command = [*command, *paths, str(last)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    assert_same(resumed(tmp_path / "run.isoproj")[0], undisturbed)


def test_a_checkpoint_changes_no_result(undisturbed):
    assert_same(model(None).fit(ROWS), undisturbed)


def test_a_fit_that_max_iter_stopped_goes_on(tmp_path, stopped, undisturbed):
    path = shutil.copy(stopped, tmp_path / "run.isoproj")
    again, seen = resumed(path)
    assert len(seen) < len(undisturbed.history_)
    assert_same(again, undisturbed)


def test_a_finished_fit_is_taken_up_at_its_end(tmp_path, undisturbed):
    path = shutil.copy(undisturbed.checkpoint, tmp_path)
    again, seen = resumed(path)
    assert len(seen) <= 1
    assert_array_equal(again.components_, undisturbed.components_)
    assert again.lower_bound_ == undisturbed.lower_bound_


@pytest.mark.parametrize(
    ("change", "named"),
    [({"tol": 0.5}, "tol"), ({"random_state": 1}, "random_state")],
)
def test_the_checkpoint_of_another_fit_is_refused(tmp_path, stopped, change, named):
    path = shutil.copy(stopped, tmp_path)
    with pytest.raises(FormatError, match=f"differs in {named}"):
        model(path, **change).fit(ROWS)
    with pytest.raises(FormatError, match="differs in data"):
        model(path).fit(ROWS + cloud(0, 40, 6))


def test_a_broken_checkpoint_is_refused(tmp_path):
    path = tmp_path / "run.isoproj"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(FormatError):
        model(path).fit(ROWS)

"""The number of BLAS threads is the same after fits as before, in any thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from isoproj.numerics import threads
from isoproj.numerics.threads import one_blas_thread


class Library:
    """A BLAS whose number of threads only the main thread sets, once it has."""

    def __init__(self, count, *, deaf=False):
        self.count, self.deaf, self.is_owned = count, deaf, False

    def get_num_threads(self):
        return self.count

    def set_num_threads(self, count):
        is_main = threading.current_thread() is threading.main_thread()
        self.is_owned |= is_main
        if is_main or not (self.deaf and self.is_owned):
            self.count = count


@pytest.fixture(params=[False, True], ids=["hears all", "hears the main thread"])
def libraries(request, monkeypatch):
    found = [Library(4, deaf=request.param), Library(3, deaf=request.param)]
    monkeypatch.setattr(threads, "_libraries", lambda: found)
    monkeypatch.setattr(threads, "_LIMIT", threads._Limit())
    return found


def counts(libraries):
    return [library.count for library in libraries]


def in_thread(work):
    """Start work in a thread that is inside the limit, and return how to end it."""
    entered, free = threading.Event(), threading.Event()

    def run():
        with one_blas_thread():
            work()
            entered.set()
            free.wait(10)

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(10)

    def end():
        free.set()
        thread.join(10)

    return end


def nothing():
    pass


def test_one_thread_inside_and_the_old_number_after(libraries):
    with one_blas_thread():
        assert counts(libraries) == [1, 1]
        with one_blas_thread():
            pass
        assert counts(libraries) == [1, 1]
    assert counts(libraries) == [4, 3]


@pytest.mark.parametrize("first", [0, 1])
def test_threads_that_overlap_leave_the_old_number(libraries, first):
    ends = [in_thread(nothing), in_thread(nothing)]
    assert counts(libraries) == [1, 1]
    ends.pop(first)()
    assert counts(libraries) == [1, 1]
    ends.pop()()
    assert counts(libraries) == [4, 3]


def test_a_thread_that_outlasts_the_main_one_leaves_the_old_number(libraries):
    with one_blas_thread():
        end = in_thread(nothing)
    end()
    assert counts(libraries) == [4, 3]
    with one_blas_thread():
        assert counts(libraries) == [1, 1]
    assert counts(libraries) == [4, 3]


def test_a_main_thread_that_comes_and_goes_in_between_leaves_the_old_number(libraries):
    end = in_thread(nothing)
    with one_blas_thread():
        assert counts(libraries) == [1, 1]
    end()
    assert counts(libraries) == [4, 3]


def test_an_error_inside_leaves_the_old_number(libraries):
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert counts(libraries) == [4, 3]


def test_what_the_user_sets_between_fits_is_kept(libraries):
    with one_blas_thread():
        pass
    for library in libraries:
        library.set_num_threads(2)
    with one_blas_thread():
        pass
    assert counts(libraries) == [2, 2]


FITS = """
import threading, warnings
import numpy as np, threadpoolctl
from isoproj import NearIsometricProjection

warnings.simplefilter("ignore")
rows = np.random.default_rng(0).normal(size=(60, 8))

def counts():
    return [i["num_threads"] for i in threadpoolctl.threadpool_info()]

def fit(seconds):
    NearIsometricProjection(2, random_state=0, time_limit=seconds).fit(rows)

before = counts()
for main_fits in (False, True):
    jobs = [threading.Thread(target=fit, args=(s,)) for s in (0.1, 0.3, 0.2)]
    for job in jobs:
        job.start()
    if main_fits:
        fit(0.1)
    for job in jobs:
        job.join()
    assert counts() == before, (main_fits, before, counts())
"""


def test_fits_in_several_threads_leave_the_number_of_blas_threads():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, "-c", FITS]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from isoproj.exceptions import MissingExtraError
from isoproj.numerics.arrays import (
    check_map,
    check_pair_list,
    check_points,
    checked_rows,
    compacted,
    distinct,
)
from isoproj.numerics.extras import needed
from isoproj.numerics.threads import n_threads, threaded_list, threaded_map


@pytest.mark.parametrize("make", [np.array, scipy.sparse.csr_array])
@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_the_first_entry_that_is_not_finite_is_named(make, value, name):
    rows = make([[1.0, 2.0], [3.0, value]])
    fault = rf"a\.csv must be finite; row 1, column 1 contains {name}"
    with pytest.raises(ValueError, match=fault):
        checked_rows(rows, "a.csv")


def test_integers_become_floats_and_floats_stay_as_they_are():
    assert check_points([[1, 2], [3, 4]]).dtype == np.float64
    single = np.eye(2, dtype=np.float32)
    assert check_points(single).dtype == np.float32


DAY = np.datetime64("2026-01-01")


@pytest.mark.parametrize("value", [DAY, DAY - DAY, DAY.item()])
@pytest.mark.parametrize("of", ["frame", "array", "objects", "lists"])
def test_dates_are_refused_with_what_to_do(value, of):
    pandas = pytest.importorskip("pandas")
    entries = [[1.0, value], [2.0, value], [4.0, value]]
    data = {
        "frame": lambda: pandas.DataFrame(entries, columns=["a", "b"]),
        "array": lambda: np.array([[value] * 2] * 3),
        "objects": lambda: np.array(entries, dtype=object),
        "lists": lambda: entries,
    }[of]()
    with pytest.raises(ValueError, match=r"it holds dates or times\. Leave it out"):
        check_points(data)


@pytest.mark.parametrize(
    "data", [[[1j, 0], [0, 1]], np.ma.masked_less([[1.0, 2.0], [3.0, 4.0]], 2.0)]
)
def test_complex_and_masked_data_are_refused(data):
    with pytest.raises(ValueError, match="X must"):
        check_points(data)


@pytest.mark.parametrize(
    ("components", "fault"),
    [
        ([[1.0, 0.0, 0.0]], "one column per feature, 2"),
        ([[1.0, np.inf]], "must be finite"),
        ([[1e101, 0.0]], "do not overflow"),
    ],
)
def test_a_map_that_does_not_fit_is_refused(components, fault):
    with pytest.raises(ValueError, match=fault):
        check_map(components, n_features=2)


def test_a_map_is_returned_in_float64():
    assert check_map([[1, 0]], n_features=2).dtype == np.float64


def test_pairs_are_sorted_and_listed_once():
    pairs = check_pair_list([[2, 0], [1, 2], [0, 2]], n_points=3)
    assert_array_equal(pairs, [[0, 2], [1, 2]])


@pytest.mark.parametrize(
    ("pairs", "fault"),
    [
        ([], "at least one pair"),
        ([[0, 1], [2]], "different lengths"),
        ([[0.5, 1.0]], "integer array"),
        ([[0, 3]], "row numbers from 0 to 2"),
    ],
)
def test_a_list_that_holds_no_pairs_is_refused(pairs, fault):
    with pytest.raises(ValueError, match=fault):
        check_pair_list(pairs, n_points=3)


@pytest.mark.parametrize("count", [0, 1, 50])
def test_distinct_and_compacted_numbers_are_those_of_unique(count):
    numbers = np.random.default_rng(count).integers(30, size=(count, 2))
    expected, places = np.unique(numbers, return_inverse=True)
    assert_array_equal(distinct(numbers), expected)
    found, own = compacted(numbers, 30)
    assert_array_equal(found, expected)
    assert_array_equal(own, places.reshape(numbers.shape))


def test_a_missing_library_names_the_extra_that_installs_it():
    with pytest.raises(MissingExtraError, match=r"Tea needs no_such_thing.*\[io\]"):
        needed("no_such_thing.leaves", extra="io", purpose="Tea")


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_keep_the_order_of_the_items(threads):
    assert list(threaded_map(abs, range(-40, 0), threads)) == list(range(40, 0, -1))


@pytest.mark.parametrize("n_items", [0, 1, 2])
def test_a_single_item_starts_no_thread(n_items):
    def here(item):
        return threading.current_thread() is threading.main_thread()

    assert list(threaded_map(here, range(n_items), 3)) == [n_items < 2] * n_items


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_lists_keep_the_order_of_the_items_inside_each_other_too(threads):
    def row(i):
        return threaded_list(lambda j: i * j, range(9), threads)

    expected = [[i * j for j in range(9)] for i in range(20)]
    assert threaded_list(row, range(20), threads) == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_any_thread_reaches_the_caller(threads):
    with pytest.raises(ZeroDivisionError):
        threaded_list(lambda i: 1 // (i - 7), range(20), threads)
    assert threaded_list(abs, [-1, -2], threads) == [1, 2]


def test_where_no_thread_can_start_the_caller_works_alone(monkeypatch):
    def no_thread(self):
        fault = "can't start new thread"
        raise RuntimeError(fault)

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert threaded_list(abs, range(-50, 0), 7) == list(range(50, 0, -1))
    assert list(threaded_map(abs, range(-50, 0), 7)) == list(range(50, 0, -1))


def test_the_environment_sets_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("ISOPROJ_NUM_THREADS", "3")
    assert n_threads() == 3
    monkeypatch.setenv("ISOPROJ_NUM_THREADS", "none")
    given = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    assert n_threads() == len(given)

from __future__ import annotations

import signal

import pytest
from geometry import cloud

from isoproj import NearIsometricProjection, verify
from isoproj.estimators.geometry import Geometry
from isoproj.numerics.interrupts import stoppable
from isoproj.numerics.progress import Step, watching


@pytest.fixture(autouse=True)
def heard():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press(_=None):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore:Stopped early")
@pytest.mark.parametrize("nested", [None, (1,)])
def test_a_fit_answers_ctrl_c_and_certifies_the_best_so_far(nested, capsys):
    rows = cloud(0, 60, 8)
    model = NearIsometricProjection(3, nested=nested)
    with watching(press, Step):
        model.fit(rows)
    assert model.status_ == "interrupted"
    said = capsys.readouterr().err
    assert said.count("Stopping; certifying takes about 1 s. Again: leave now.") == 1
    verify(model, rows)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_first_ctrl_c_does_not_end_a_certificate_and_the_second_does(monkeypatch):
    whole = Geometry.certify

    def certify(self, *args, **options):
        press()
        return whole(self, *args, **options)

    monkeypatch.setattr(Geometry, "certify", certify)
    model = NearIsometricProjection(3).fit(cloud(0, 60, 8))
    assert model.distortion_ >= model.lower_bound_

    def twice(self, *args, **options):
        press()
        press()

    monkeypatch.setattr(Geometry, "certify", twice)
    with pytest.raises(KeyboardInterrupt):
        model.fit(cloud(0, 60, 8))


def test_before_the_search_ctrl_c_ends_the_work():
    with pytest.raises(KeyboardInterrupt), stoppable(str):
        press()


def test_a_handler_of_the_users_own_is_left_alone():
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    with stoppable(str) as stop, stop.solving():
        press()
    assert heard == [1]

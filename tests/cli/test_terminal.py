from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

FIT = ("fit", "points.npy", "-k", "2", "--solver", "dual_ascent")


def in_terminal(*arguments, width=100, **environment):
    """Run the program with both outputs on a terminal; return all it drew."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "isoproj", *map(str, arguments)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**clean, "TERM": "xterm-256color", **environment},
        close_fds=True,
    ) as process:
        os.close(follower)
        drawn = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other side has closed
                break
            if not part:
                break
            drawn += part
        assert process.wait(60) == 0, drawn
    os.close(leader)
    return drawn


def screen_of(drawn, width):
    pyte = pytest.importorskip("pyte")
    screen = pyte.Screen(width, 24)
    pyte.ByteStream(screen).feed(drawn)
    return [line.rstrip() for line in screen.display]


def test_a_terminal_shows_one_line_with_step_bounds_and_seconds(folder):
    drawn = in_terminal(*FIT, "--max-iter", 300)
    lines = screen_of(drawn, 100)
    (shown,) = [line for line in lines if line.startswith("step")]
    bounds = r"worst pair loses 0\.\d+, lower bound 0\.\d+, .*, \d+\.\d s$"
    assert re.search(rf"step \d+ of 300: {bounds}", shown), shown
    assert any(line.startswith("Every one of 780 distances") for line in lines)


def test_a_narrow_terminal_without_colour_is_respected(folder):
    drawn = in_terminal(*FIT, "--max-iter", 50, width=40, NO_COLOR="1")
    assert b"\x1b" not in drawn
    assert len([x for x in screen_of(drawn, 40) if x.startswith("step ")]) == 1


def test_without_a_terminal_there_are_no_control_codes(folder, command):
    done = command(*FIT, "--max-iter", 10)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout + done.stderr


def test_verbose_tells_every_step_and_quiet_none(folder, run):
    _, _, err = run(*FIT, "--max-iter", 5, "-v")
    assert [x[:6] for x in err.splitlines() if x.startswith("step")] == [
        f"step {i}" for i in range(6)
    ]
    assert run(*FIT, "--max-iter", 5, "-q")[2] == ""
    assert run(*FIT, "--max-iter", 5)[1] != ""


def test_slow_steps_without_a_terminal_are_plain_lines(folder, run, monkeypatch):
    from isoproj.cli import console

    monkeypatch.setattr(console, "_PAUSE", 0.0)
    monkeypatch.setattr(console, "_BRIEF", 0.0)
    _, _, err = run(*FIT, "--max-iter", 5)
    bounds = (
        r"worst pair loses 0\.\d+, lower bound 0\.\d+, (gap \d+\.\d\d%|\d+\.\d times)"
    )
    assert re.search(rf"step 5 of 5: {bounds}, \d+\.\d s", err)
    _, _, err = run("audit", "model.isoproj", "points.npy")
    assert re.search(r"auditing: 780 of 780 pairs, .*pairs/s", err)


def test_walks_of_a_fit_tell_pairs_per_second_and_time_left(folder, run, monkeypatch):
    from isoproj.cli import console

    monkeypatch.setattr(console, "_PAUSE", 0.0)
    monkeypatch.setattr(console, "_BRIEF", 0.0)
    limit = ("--memory-limit", "0", "--tol", "0.5")
    _, _, err = run("fit", "points.npy", "-k", 2, *limit)
    assert re.search(r"searching: 780 of 780 pairs, \S+ \S*pairs/s, 0 s left", err)
    _, _, err = run("verify", "model.isoproj", "points.npy")
    assert re.search(r"verifying: 780 of 780 pairs, .*pairs/s", err)


@pytest.mark.parametrize(("brief", "is_told"), [(0.0, True), (60.0, False)])
def test_a_terminal_tells_of_a_walk_if_it_is_long(brief, is_told, monkeypatch):
    from isoproj.cli import console
    from isoproj.numerics.progress import Walk, tell

    drawn = io.StringIO()
    drawn.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", drawn)
    monkeypatch.setattr(console, "_BRIEF", brief)
    monkeypatch.setattr(console, "_BLINK", 0.0)
    talk = console.Console(json=False, quiet=False, verbose=False)
    with talk.progress("searching"):
        tell(Walk(0, 2_000_000))
        tell(Walk(1_000_000, 2_000_000))
    told = r"searching: 1,000,000 of 2,000,000 pairs, .*pairs/s, \d+ s left"
    assert bool(re.search(told, drawn.getvalue())) == is_told


@pytest.mark.parametrize("is_terminal", [False, True])
def test_before_a_projection_is_known_the_console_says_so(is_terminal, monkeypatch):
    from isoproj.cli import console
    from isoproj.numerics.progress import Step, tell

    drawn = io.StringIO()
    drawn.isatty = lambda: is_terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", drawn)
    monkeypatch.setattr(console, "_PAUSE", 0.0)
    monkeypatch.setattr(console, "_BLINK", 0.0)
    talk = console.Console(json=False, quiet=False, verbose=False)
    unknown = Step(
        iteration=0,
        distortion=float("inf"),
        lower_bound=float("-inf"),
        seconds=0.0,
        phase="starting",
    )
    with talk.progress("searching"):
        tell(unknown)
        tell(unknown)
    if is_terminal:
        assert drawn.getvalue().count("\rstep") == 2
    assert "no projection yet" in drawn.getvalue()
    assert "starting" in drawn.getvalue()
    assert "inf" not in drawn.getvalue()


@pytest.mark.parametrize("verb", [("curve",), ("frontier", "--n-points", 2)])
def test_curves_tell_their_steps_too(verb, folder, run):
    _, _, err = run(*verb, "points.npy", "-k", 2, "-v")
    assert re.search(r"step \d+: .* s$", err, re.MULTILINE)

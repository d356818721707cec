from __future__ import annotations

import os

# scikit-learn skips one of its checks unless this is set before scipy is imported.
os.environ["SCIPY_ARRAY_API"] = "1"

import pytest
from hypothesis import settings

# The same examples every time: a test that fails must fail again tomorrow.
settings.register_profile(
    "isoproj", deadline=None, derandomize=True, database=None, max_examples=40
)
settings.load_profile("isoproj")


@pytest.fixture
def run(capsys):
    """Run the program inside this process: status, standard output and error."""
    from isoproj.cli.program import main

    def call(*arguments):
        status = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call

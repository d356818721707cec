"""The command line: ``isoproj VERB`` and ``python -m isoproj VERB``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from isoproj._version import __version__

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status.

    Parameters
    ----------
    arguments : sequence of str or None
        What follows the program's name; None means ``sys.argv``.

    Returns
    -------
    int
        0 done, 1 a claim failed, 2 bad usage or input.

    Examples
    --------
    >>> from isoproj.__main__ import main
    >>> main(["demo", "--help"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    SystemExit: 0
    """
    parser = argparse.ArgumentParser(
        prog="isoproj",
        description="Orthogonal projections whose worst pair loses least, with proof.",
    )
    parser.add_argument("--version", action="version", version=f"isoproj {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    demo = verbs.add_parser(
        "demo",
        help="fit, certify and compare on a data set that ships with scikit-learn",
        description="Fit scikit-learn's digits and compare with PCA and random.",
        epilog="example: isoproj demo -k 10",
    )
    demo.add_argument(
        "-k", type=int, default=10, help="number of dimensions to keep (default 10)"
    )
    options = parser.parse_args(arguments)
    if not 1 <= options.k <= 64:
        parser.error(f"-k must be between 1 and 64; got {options.k}")
    # Heavy imports wait until a verb needs them: the help must appear at once.
    from isoproj.demo import run_demo

    try:
        run_demo(options.k)
    except KeyboardInterrupt:
        sys.stderr.write("isoproj: stopped\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``python -m isoproj`` is the same program as ``isoproj``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; an interrupt while libraries are loaded is one line too."""
    try:
        # Imported here so that an interrupt of the imports is caught.
        from isoproj.cli.program import main as run

        return run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("isoproj: stopped; nothing was written.\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``python -m isoproj`` is the same program as ``isoproj``."""

from __future__ import annotations

import sys

from isoproj.cli.program import main

if __name__ == "__main__":
    sys.exit(main())

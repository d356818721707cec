"""Import optional libraries, with a clear error when one is not installed."""

from __future__ import annotations

import importlib

from isoproj.exceptions import MissingExtraError
from isoproj.numerics.spectral import Foreign


def needed(module: str, *, extra: str, purpose: str) -> Foreign:
    """Return an imported module; if it is missing, name the extra that installs it.

    ``purpose`` begins the error message: "PURPOSE needs LIBRARY".
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        msg = (
            f"{purpose} needs {library}, which is not installed. "
            f"Run: pip install 'isoproj[{extra}]'"
        )
        raise MissingExtraError(msg) from None

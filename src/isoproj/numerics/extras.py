"""Libraries that only some formats need, asked for when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from isoproj.exceptions import MissingExtraError

__all__ = ["needed"]


def needed(module: str, *, extra: str, purpose: str) -> Any:  # noqa: ANN401 - a module
    """Return a module, or say which extra installs it.

    Parameters
    ----------
    module : str
        Full name, as in ``"pyarrow.parquet"``.
    extra : str
        The extra of isoproj that brings it.
    purpose : str
        What it is needed for, as the beginning of a sentence.

    Returns
    -------
    module
        Imported.

    Raises
    ------
    MissingExtraError
        If it is not installed.

    Examples
    --------
    >>> from isoproj.numerics.extras import needed
    >>> needed("no_such_library", extra="io", purpose="Reading tea leaves")
    Traceback (most recent call last):
        ...
    isoproj.exceptions.MissingExtraError: Reading tea leaves needs \
no_such_library, which is not installed. Run: pip install 'isoproj[io]'
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

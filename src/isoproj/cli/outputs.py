"""Decide which files a verb may write, before its work; lose no finished work."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from isoproj.cli.console import Console
from isoproj.cli.errors import UsageError, line_of
from isoproj.cli.models import check_map_name
from isoproj.files.formats import Format, format_of_name
from isoproj.files.read.sources import split_name
from isoproj.numerics.container import check_writable, ordinary_file

# Options that name something to read, for all verbs.
INPUTS = ("model", "data", "file", "pairs", "labels", "heldout", "queries", "maps")
# Longest name of a file that is saved elsewhere.
_LONGEST = 100


def input_files(options: argparse.Namespace) -> list[str]:
    """Return every file and folder that the options of a verb may read."""
    given: list[Any] = []
    for option in INPUTS:
        value = getattr(options, option, None)
        given += value if isinstance(value, list) else [value]
    names = [name for name in given if isinstance(name, str)]
    # FILE:ARRAY reads FILE; a name that exists as it is reads that file.
    return [*names, *(str(split_name(name)[0]) for name in names)]


def check_outputs(
    options: argparse.Namespace,
    *names: str | None,
    plot: str | None = None,
    held: set[str] | None = None,
) -> None:
    """Raise unless a verb may write its files; None is no file.

    ``plot`` is the file of a picture. Where a folder is written ``held`` names the
    files in it.
    """
    known = vars(options)
    for name in (known.get("model"), known.get("data"), *known.get("maps", ())):
        if name is not None and name != "-":
            check_map_name(name)
    inputs = input_files(options)
    files = [name for name in (*names, plot) if name is not None]
    if "-" in files:
        msg = "an output must be a file; got -, standard output. Name a file."
        raise UsageError(msg)
    for name in files:
        force = getattr(options, "force", True)
        check_output(name, inputs=inputs, force=force, held=held)
    if plot is not None:
        from isoproj.plot.axes import check_figure_name

        check_figure_name(plot)
    if len({Path(name).resolve() for name in files}) < len(files):
        msg = f"outputs must be different files; got {files[0]} twice. Name another."
        raise UsageError(msg)


def check_output(
    path: str | os.PathLike[str],
    *,
    inputs: Sequence[str] = (),
    force: bool = False,
    held: set[str] | None = None,
) -> None:
    """Raise OSError unless a file may be written; call this before the work starts.

    Files of ``inputs`` are never overwritten, other files only with ``force``. With
    ``held`` it is a folder that is empty or holds files of these names alone.
    """
    target = Path(path)
    if not target.parent.is_dir():
        msg = (
            f"{target} cannot be written: there is no folder {target.parent}. "
            "Create it first."
        )
        raise FileNotFoundError(msg)
    is_taken = target.exists()
    if held is None:
        ordinary_file(target)
    elif is_taken and not target.is_dir():
        msg = f"{target} must be a folder; it is a file. Name another with -o."
        raise NotADirectoryError(msg)
    elif is_taken:
        found = {entry.name for entry in target.iterdir()}
        is_taken = bool(found)
        if found - held:
            msg = (
                f"{target} must be empty or an earlier export; it is not. Name another."
            )
            raise FileExistsError(msg)
    refuse_inputs(target, inputs)
    if is_taken and not force:
        msg = f"{target} exists already. Use --force to overwrite, or name another."
        raise FileExistsError(msg)
    check_writable(target)


def refuse_inputs(target: Path, inputs: Sequence[str]) -> None:
    """Raise FileExistsError if a target is one of the inputs, or lies in one."""
    for name in inputs:
        source = Path(name)
        if not source.exists():
            continue
        # A map may be a folder; every file in it is an input.
        around = [target, *target.absolute().parents] if source.is_dir() else [target]
        if any(path.exists() and path.samefile(source) for path in around):
            msg = f"{target} is an input and is never overwritten. Name another file."
            raise FileExistsError(msg)


def check_model_name(name: str | None) -> None:
    """Raise if a model's name promises a format of points: no verb would read it."""
    if name is None:
        return
    promised = format_of_name(name)
    if promised is None or promised is Format.SAFETENSORS:
        return
    better = Path(name).with_suffix(".isoproj").name
    msg = (
        f"a model must not be named like a file of points; {name} is named like "
        f"{promised.title}. Name it {better}."
    )
    raise UsageError(msg)


def saved(console: Console, path: str, write: Callable[[str], object]) -> str:
    """Write a result, elsewhere if ``path`` fails; return where it is.

    A result that is elsewhere makes the verb end with the status of an error.
    """
    try:
        write(path)
    except OSError as error:
        folder = tempfile.mkdtemp(prefix="isoproj-")
        elsewhere = str(Path(folder) / Path(path).name[-_LONGEST:])
        try:
            write(elsewhere)
        except OSError:
            os.rmdir(folder)  # noqa: PTH106 - empty, because writing is atomic
            raise error from None
        console.fail(f"{line_of(error)} The result is saved as {elsewhere}.")
        return elsewhere
    return path


def save_plot(console: Console, path: str | None, draw: Callable[[], Any]) -> None:
    """Draw on new axes and write their figure, if there is a file for it."""
    if path is None:
        return
    from isoproj.plot.axes import save_axes

    axes = draw()
    written = saved(console, path, lambda place: save_axes(axes, place))
    console.note(f"wrote {written}")

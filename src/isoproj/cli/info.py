"""``isoproj info``: show what is in a file."""

from __future__ import annotations

import argparse

from isoproj.cli.console import Console
from isoproj.cli.models import Model, load_model
from isoproj.cli.payloads import told, told_data, told_or_null, told_prefixes
from isoproj.exceptions import FormatError
from isoproj.files.read.reading import contents_of, holds_model, read_points
from isoproj.files.read.sources import Content
from isoproj.numerics.rounding import at_least, at_most, counted
from isoproj.numerics.storage import MEMORY_LIMIT, Storage


def info(options: argparse.Namespace, console: Console) -> None:
    """Show what a data or model file holds."""
    if holds_model(options.file):
        _model_info(load_model(options.file), console)
    else:
        _data_info(options.file, console)


def _model_info(model: Model, console: Console) -> None:
    """Show the claims and the origin of a model."""
    stated = model.certificate
    header = model.header
    parameters = dict(header.get("parameters") or {})
    rows = {
        "holds": header.get("estimator") or "a bare certificate",
        "maps": f"{counted(stated.n_features, 'feature')} to "
        f"{counted(stated.n_components, 'dimension')}",
        "precision": str(stated.components.dtype),
        "worst pair": f"loses at most {at_most(stated.distortion, 6)} (stated; verify "
        "recomputes)",
        "lower bound": at_least(stated.lower_bound, 6),
        "pairs": f"{stated.n_pairs:,} ({stated.pairs.described(stated.pair_kind)})",
        "fitted on": counted(stated.n_points, "point"),
        "fingerprint": stated.fingerprint,
        "parameters": ", ".join(f"{n}={v}" for n, v in parameters.items()) or "none",
        "written by": ", ".join(
            f"{n} {v}" for n, v in dict(header.get("versions") or {}).items()
        ),
    }
    guarantee = stated.guarantee
    if guarantee is not None:
        rows["cap"] = f"{guarantee.cap}"
        rows["kept"] = (
            f"at least {at_least(guarantee.kept, 6)} ({guarantee.objective.value}), at "
            f"most {at_most(guarantee.kept_bound, 6)} under the cap"
        )
    for prefix in stated.prefixes:
        rows[f"first {prefix.n_components}"] = (
            f"loses at most {at_most(prefix.distortion, 6)}, lower bound "
            f"{at_least(prefix.lower_bound, 6)}"
        )
    console.say(f"{model.path}: isoproj model, format {header.get('format_version')}")
    for name, text in rows.items():
        console.say(f"  {name:<12} {text}")
    stated_by_file = told(
        "ModelFile",
        stated,
        estimator=header.get("estimator"),
        format_version=header["format_version"],
        parameters=parameters,
        fitted=header.get("fitted"),
        dtype=str(stated.components.dtype),
        pairs=stated.pair_kind,
        guarantee=told_or_null("Kept", guarantee),
        nested=told_prefixes(stated),
        versions=header.get("versions"),
    )
    console.tell("info model", kind="model", name=model.path, model=stated_by_file)


def _data_info(name: str, console: Console) -> None:
    """Show the points of a data file and its arrays or columns."""
    fault, data = "", None
    try:
        data = read_points(name, storage=Storage(MEMORY_LIMIT))
    except FormatError as error:
        fault = str(error)
        if name == "-":
            raise
    # The list of contents helps when the points cannot be read without a choice.
    format_, contents = ("", []) if name == "-" else contents_of(name)
    unusable = f"{name}: {format_}, not usable as it is: {fault}"
    console.say(unusable if data is None else str(data))
    named = [content for content in contents if content.name]
    if named:
        console.say("holds " + ", ".join(_shown(c) for c in named[:20]))
    if len(named) > 20:
        console.say(f"and {len(named) - 20} more")
    console.tell(
        "info data",
        kind="data",
        name=name,
        format=format_ or (data.format if data else None),
        data=None if data is None else told_data(data),
        fault=fault or None,
        contents=[told("Part", content) for content in contents],
    )


def _shown(content: Content) -> str:
    """Return name, shape and type of an array or column."""
    size = " x ".join(map(str, content.shape))
    return f"{content.name} ({size} {content.dtype})" if size else content.name

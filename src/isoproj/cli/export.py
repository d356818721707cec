"""``isoproj export``: write the projection for another system."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from isoproj.cli.arguments import EXPORTS
from isoproj.cli.console import Console
from isoproj.cli.models import Model, load_model
from isoproj.cli.outputs import check_outputs
from isoproj.files.export.dense import FILES, to_dense, write_folder
from isoproj.files.export.faiss import to_faiss
from isoproj.files.export.matrices import to_npy, to_safetensors
from isoproj.files.export.onnx import to_onnx
from isoproj.files.export.pipeline import to_skops
from isoproj.files.export.sql import to_pgvector, to_postgres
from isoproj.numerics.container import write_atomically
from isoproj.proof.certificate import Certificate

# How to use the file of each system.
_SQL = 'psql -f {name}, then SELECT "{function}"(embedding) FROM ...'
_USE = {
    "faiss": "faiss.read_VectorTransform({name!r}).apply(x)",
    "halfvec": _SQL,
    "npy": "x @ numpy.load({name!r}).T",
    "onnx": "onnxruntime.InferenceSession({name!r}).run(None, {{'X': x}})",
    "pgvector": _SQL,
    "postgres": _SQL,
    "safetensors": "safetensors.numpy.load_file({name!r})['components']",
    "sentence-transformers": (
        "SentenceTransformer(modules=[*model, Dense.load({name!r})])"
    ),
    "skops": "skops.io.load({name!r}).transform(x)",
}
_USE_WITH_MEAN = (
    "t = safetensors.numpy.load_file({name!r}); (x - t['mean']) @ t['components'].T"
)


def export(options: argparse.Namespace, console: Console) -> None:
    """Write the projection of a model in another system's format."""
    output = options.output or str(Path(options.model).with_suffix(EXPORTS[options.to]))
    is_folder = options.to == "sentence-transformers"
    check_outputs(options, output, held=FILES if is_folder else None)
    model = load_model(options.model)
    if is_folder:
        files = to_dense(_as_transformed(model), model.mean)
        n_bytes = sum(map(len, files.values()))
        write_folder(output, files)
    else:
        content = _content(model, options.to, options.name)
        n_bytes = len(content)
        write_atomically(output, content)
    how = _USE[options.to]
    if options.to == "safetensors" and model.mean is not None:
        how = _USE_WITH_MEAN
    use = how.format(name=output, function=options.name)
    if options.to == "npy" and model.mean is not None:
        console.warn(
            f"{output} holds only the matrix; isoproj transform also subtracts a mean, "
            "so its results are shifted. --to safetensors writes both."
        )
    console.say(f"{output}: {options.to}, {n_bytes:,} bytes")
    console.note(f"use it: {use}")
    console.tell(
        "export",
        model.certificate,
        model=options.model,
        to=options.to,
        output=output,
        n_bytes=n_bytes,
        use=use,
    )


def _as_transformed(model: Model) -> Certificate:
    """Return the certificate with the matrix that ``transform`` multiplies by."""
    stated = model.certificate
    scale = getattr(model.estimator, "scale_", 1.0)
    scaled = stated.components * stated.components.dtype.type(scale)
    return replace(stated, components=scaled)


def _content(model: Model, target: str, function: str) -> bytes:
    """Return the file for another system; ``function`` is the name in SQL."""
    stated, mean = _as_transformed(model), model.mean
    if target == "npy":
        return to_npy(stated)
    if target == "skops":
        return to_skops(stated, model.feature_names, mean)
    if target in ("pgvector", "halfvec"):
        half = target == "halfvec"
        return to_pgvector(stated, function, mean, half=half).encode()
    if target == "postgres":
        return to_postgres(stated, function, mean).encode()
    makers = {"faiss": to_faiss, "onnx": to_onnx, "safetensors": to_safetensors}
    return makers[target](stated, mean)

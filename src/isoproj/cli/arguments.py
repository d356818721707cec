"""What the program understands; only the standard library, so that help is instant."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from isoproj._version import __version__

__all__ = ["EXPORTS", "VERBS", "build_parser"]

EXPORTS = {
    "faiss": ".faiss",
    "npy": ".npy",
    "onnx": ".onnx",
    "pgvector": ".sql",
    "postgres": ".sql",
    "safetensors": ".safetensors",
    "skops": ".skops",
}
_DATA = (
    "a file (.npy .npz .csv .tsv .parquet .arrow .feather .h5 .fvecs .bvecs .ivecs "
    ".safetensors; some also .gz), FILE:ARRAY, - for a pipe, or a built-in data set: "
    "breast_cancer, diabetes, digits, iris, wine"
)
_STATUS = (
    "Exit status: 0 done, 1 a claim failed, 2 bad usage or input, 130 stopped by "
    "Ctrl-C."
)


class _Parser(argparse.ArgumentParser):
    """A parser that complains in one line."""

    def error(self, message: str) -> NoReturn:
        known = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        hint = f"See {self.prog} -h."
        if known:
            choices = [word.strip(" '") for word in known[2].split(",")]
            near = difflib.get_close_matches(known[1], choices, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else hint
        line = " ".join(message.split())
        line = "".join(c if c.isprintable() else "?" for c in line)
        sys.stderr.write(f"{self.prog}: {line}. {hint}\n")
        raise SystemExit(2)


class _Print(argparse.Action):
    """Print a text made on demand, and leave."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        make: Callable[[argparse.ArgumentParser, str], str],
        **kwargs: Any,  # noqa: ANN401 - argparse's own
    ) -> None:
        super().__init__(option_strings, dest, **kwargs)
        self.make = make

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Print what was asked for."""
        sys.stdout.write(self.make(parser, str(values)))
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole program.

    Returns
    -------
    argparse.ArgumentParser
        With one subparser for every verb.

    Examples
    --------
    >>> from isoproj.cli.arguments import build_parser
    >>> build_parser().parse_args(["fit", "digits", "-k", "10"]).n_components
    10
    """
    parser = _Parser(
        prog="isoproj",
        description="Orthogonal projections whose worst pair loses least, with proof.",
        epilog="example: isoproj fit digits -k 10 -o digits.isoproj\n"
        "         isoproj verify digits.isoproj digits\n"
        "isoproj VERB -h teaches one verb.\n" + _STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"isoproj {__version__}")
    parser.add_argument(
        "--completion",
        action=_Print,
        make=_completion,
        choices=["bash", "zsh", "fish"],
        help="print a script that lets a shell complete verbs and options",
    )
    parser.add_argument(
        "--schema",
        action=_Print,
        make=_schema,
        choices=list(VERBS),
        help="print the JSON schema of what VERB --json prints",
    )
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="VERB", parser_class=_Parser
    )
    for name, (summary, example, add) in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"example: {example}\n{_STATUS}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add(verb)
        _add_talk(verb)
    return parser


def _add_talk(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--json",
        action="store_true",
        help="print the result as JSON (isoproj --schema VERB documents it)",
    )
    talk = verb.add_mutually_exclusive_group()
    talk.add_argument(
        "-q", "--quiet", action="store_true", help="no progress and no notes"
    )
    talk.add_argument(
        "-v", "--verbose", action="store_true", help="every step, and tracebacks"
    )


def _add_data(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("data", metavar="DATA", help=_DATA)
    verb.add_argument(
        "--array", metavar="NAME", help="which array of a file that holds several"
    )
    verb.add_argument(
        "--columns",
        metavar="LIST",
        help="which columns: names, numbers from 0, ranges; as in a,b or 0,2:5",
    )
    verb.add_argument(
        "--header",
        choices=["auto", "yes", "no"],
        default="auto",
        help="whether the first line of a text names the columns (default auto)",
    )


def _add_memory(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--memory-limit",
        type=_bytes,
        metavar="BYTES",
        help="what arrays as large as the data may take in memory, as in 500M or 8G "
        "(default 2G); what goes beyond lies in scratch files under TMPDIR",
    )


def _bytes(text: str) -> float:
    """Return a number of bytes, said with or without a unit."""
    number = text.strip().upper().removesuffix("B")
    unit = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(number[-1:], 1.0)
    try:
        size = float(number if unit == 1.0 else number[:-1]) * unit
    except ValueError:
        size = -1.0
    if not size >= 0.0:
        msg = f"must be a number of bytes, as in 500M or 8G; got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return size


def _add_model(
    verb: argparse.ArgumentParser, text: str = "a file of isoproj fit"
) -> None:
    verb.add_argument("model", metavar="MODEL", help=text)


def _add_output(
    verb: argparse.ArgumentParser, text: str, *, required: bool = False
) -> None:
    verb.add_argument("-o", "--output", metavar="FILE", required=required, help=text)
    verb.add_argument(
        "--force", action="store_true", help="overwrite FILE if it exists"
    )


def _add_seed(verb: argparse.ArgumentParser, *older_names: str) -> None:
    """Add the seed of random numbers, 0 unless given, so that runs repeat."""
    verb.add_argument(
        "--seed",
        *older_names,
        type=int,
        default=0,
        metavar="SEED",
        help="seed of random starts and samples (default 0); the same seed gives the "
        "same result",
    )


def _add_fit(verb: argparse.ArgumentParser) -> None:
    _add_data(verb)
    verb.add_argument(
        "-k",
        "--n-components",
        type=int,
        metavar="K",
        help="number of dimensions to keep; without it, the fewest that "
        "--max-distortion allows",
    )
    _add_output(verb, "where to save the model, by convention *.isoproj")
    verb.add_argument(
        "--method",
        choices=["near-isometric", "guaranteed-pca"],
        default="near-isometric",
        help="let the worst pair lose least (default), or keep the most variance under "
        "a cap on what any pair loses",
    )
    verb.add_argument(
        "--max-distortion",
        type=float,
        metavar="D",
        help="the cap: what no pair may lose more than, as a share of squared length",
    )
    verb.add_argument(
        "--slack",
        type=float,
        metavar="S",
        help="guaranteed-pca: without --max-distortion the cap is 1 + S times the "
        "least distortion found (default 0.05)",
    )
    verb.add_argument(
        "--objective",
        choices=["variance", "distortion"],
        help="guaranteed-pca: keep the most variance (default), or lose the least on "
        "average",
    )
    verb.add_argument(
        "--solver",
        choices=["minimax", "dual_ascent"],
        help="near-isometric: minimax finds the least loss (default); dual_ascent is "
        "the paper's algorithm",
    )
    _add_pairs(verb)
    verb.add_argument(
        "--heldout",
        type=_part,
        metavar="SHARE",
        help="hold out this share of the points, or this many, and measure what their "
        "pairs lose; the certificate is over the others",
    )
    verb.add_argument(
        "--scale",
        choices=["balanced"],
        help="scale projected points so that squared lengths stray as far up as down",
    )
    verb.add_argument(
        "--tol",
        type=float,
        metavar="GAP",
        help="relative gap of the bound at which the solver is content",
    )
    verb.add_argument("--max-iter", type=int, metavar="N", help="most iterations")
    verb.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="stop then, with the best certified answer so far",
    )
    _add_seed(verb, "--random-state")
    _add_memory(verb)


def _part(text: str) -> float | int:
    """Return a share or a number of rows."""
    return int(text) if text.isdecimal() else float(text)


def _add_pairs(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--pairs",
        metavar="WHICH",
        help="which pairs count: all; directions (every row as one); sample (random "
        "ones, where all are too many); neighbors, or "
        "approximate-neighbors by pynndescent; labels (of different classes) or "
        "within-labels; or a file with two columns of row numbers",
    )
    verb.add_argument(
        "--neighbors",
        type=int,
        metavar="N",
        help="nearest points of each that count with --pairs neighbors (default 10)",
    )
    verb.add_argument(
        "--min-distance",
        type=float,
        metavar="D",
        help="leave out pairs that are closer than this",
    )
    verb.add_argument(
        "--include-norms",
        action="store_true",
        default=None,
        help="count every row as a direction too, so that inner products survive",
    )
    verb.add_argument(
        "--labels",
        metavar="FILE",
        help="a text with the class of every point, one a line, for --pairs labels",
    )


def _add_transform(verb: argparse.ArgumentParser) -> None:
    _add_model(verb)
    _add_data(verb)
    _add_output(
        verb,
        "where to write the projected points, in the format of its extension; - writes "
        ".npy to standard output",
        required=True,
    )
    _add_memory(verb)


def _add_audit(verb: argparse.ArgumentParser) -> None:
    _add_model(verb, "a file of isoproj fit, or any matrix with one component a row")
    _add_data(verb)
    _add_pairs(verb)
    verb.add_argument(
        "--worst", type=int, default=5, metavar="N", help="worst pairs to list"
    )
    verb.add_argument(
        "--max-distortion",
        type=float,
        metavar="D",
        help="exit 1 if the worst pair loses more than this share",
    )
    _add_memory(verb)


def _add_verify(verb: argparse.ArgumentParser) -> None:
    _add_model(verb)
    _add_data(verb)
    _add_memory(verb)


def _add_info(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", metavar="FILE", help="a model, or data as for fit")


def _add_export(verb: argparse.ArgumentParser) -> None:
    _add_model(verb)
    verb.add_argument(
        "--to",
        required=True,
        choices=list(EXPORTS),
        help="for which system; postgres is plain arrays, without pgvector",
    )
    _add_output(verb, "where to (default: the model's name with another extension)")
    verb.add_argument(
        "--name",
        default="isoproj_project",
        help="name of the SQL function (default isoproj_project)",
    )


def _add_compare(verb: argparse.ArgumentParser) -> None:
    _add_data(verb)
    verb.add_argument(
        "-k",
        "--n-components",
        type=int,
        nargs="+",
        required=True,
        metavar="K",
        help="numbers of dimensions to compare at",
    )
    verb.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help="minimax guaranteed dual_ascent sdp+dr sdp+rr sdp+binned sap fair_pca pca "
        "pca_directions random gaussian adagio nile_pro fro_max nu_max (default: "
        "minimax, dual_ascent, sdp+dr, sdp+rr, sap, fair_pca, pca and random)",
    )
    verb.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[0],
        metavar="SEED",
        help="seeds of random starts and draws, one fit for each (default 0)",
    )
    verb.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="for each single fit"
    )
    verb.add_argument(
        "--metric",
        default="contracted",
        choices=["contracted", "distortion", "stretch", "isometry", "mean", "seconds"],
        help="what the table shows (default: loss of the worst pair after scaling the "
        "map so that it stretches nothing)",
    )
    _add_output(verb, "where to keep the records, as JSON lines")
    verb.add_argument(
        "--plot", metavar="FILE", help="draw loss against k (.png, .svg or .pdf)"
    )


def _add_tracing(verb: argparse.ArgumentParser, tol: float) -> None:
    _add_pairs(verb)
    verb.add_argument(
        "--tol",
        type=float,
        default=tol,
        metavar="GAP",
        help=f"relative gap at which a bound is good enough (default {tol:g})",
    )
    _add_seed(verb)
    verb.add_argument(
        "--plot", metavar="FILE", help="draw it there (.png, .svg or .pdf)"
    )
    verb.add_argument(
        "--force", action="store_true", help="overwrite FILE if it exists"
    )


def _add_curve(verb: argparse.ArgumentParser) -> None:
    _add_data(verb)
    which = verb.add_mutually_exclusive_group()
    which.add_argument(
        "-k",
        "--n-components",
        type=int,
        nargs="+",
        metavar="K",
        help="numbers of dimensions (default: 1 to --max-k)",
    )
    which.add_argument(
        "--max-k", type=int, default=40, metavar="K", help="the last one (default 40)"
    )
    verb.add_argument(
        "--targets",
        type=float,
        nargs="+",
        default=[],
        metavar="DISTORTION",
        help="say which k suffices for these, and which is proved too small",
    )
    verb.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="stop with the dimensions done so far",
    )
    _add_tracing(verb, 5e-3)


def _add_frontier(verb: argparse.ArgumentParser) -> None:
    _add_data(verb)
    verb.add_argument(
        "-k",
        "--n-components",
        type=int,
        required=True,
        metavar="K",
        help="number of dimensions",
    )
    verb.add_argument(
        "--n-points", type=int, default=7, metavar="N", help="how many caps (default 7)"
    )
    verb.add_argument(
        "--objective",
        default="variance",
        choices=["variance", "distortion"],
        help="what is to be kept: variance, or squared length on average",
    )
    _add_tracing(verb, 1e-3)


def _add_report(verb: argparse.ArgumentParser) -> None:
    _add_model(verb)
    _add_data(verb)
    _add_output(verb, "where to write the report: .html, .md or .json", required=True)
    verb.add_argument(
        "--heldout", metavar="DATA", help="points that were not fitted, measured too"
    )
    verb.add_argument(
        "--labels",
        metavar="FILE",
        help="a text with one line for every point, shown with the worst pairs",
    )
    verb.add_argument(
        "--image-shape",
        metavar="HxW",
        help="height and width where points are images; square ones are recognised",
    )
    verb.add_argument(
        "--frontier",
        type=int,
        metavar="N",
        help="find what N other caps would keep, and draw it: as long as isoproj "
        "frontier takes",
    )
    verb.add_argument(
        "--max-pairs",
        type=int,
        default=20_000_000,
        metavar="N",
        help="measure on a sample of rows where there are more pairs, and say so "
        "(default 20,000,000)",
    )


def _add_reproduce(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--list", action="store_true", help="list the experiments and leave"
    )
    verb.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="run only these experiments, for example figure1 or table1",
    )
    extent = verb.add_mutually_exclusive_group()
    extent.add_argument(
        "--quick",
        action="store_true",
        help="small samples and two seeds: minutes (the default)",
    )
    extent.add_argument(
        "--full",
        action="store_true",
        help="all samples and five seeds, as in the paper: hours",
    )
    verb.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        default="results",
        help="where records and figures go; the page is FOLDER.md (default results). "
        "Finished cells found there are kept",
    )
    verb.add_argument(
        "--report",
        action="store_true",
        help="run nothing: make page and figures from the records at hand",
    )
    verb.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="cells at work at a time, of one thread each (default: one a core)",
    )
    verb.add_argument(
        "--offline", action="store_true", help="do not download data that is missing"
    )


def _add_demo(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "-k",
        "--n-components",
        type=int,
        default=10,
        metavar="K",
        help="number of dimensions to keep (default 10)",
    )


def _completion(parser: argparse.ArgumentParser, shell: str) -> str:
    from isoproj.cli.completion import script

    return script(parser, shell)


def _schema(_: argparse.ArgumentParser, verb: str) -> str:
    from isoproj.cli.schemas import schema_of

    return json.dumps(schema_of(verb), indent=2) + "\n"


_Adder = Callable[[argparse.ArgumentParser], None]
VERBS: dict[str, tuple[str, str, _Adder]] = {
    "fit": (
        "find the projection whose worst pair loses least, and certify it",
        "isoproj fit embeddings.npy -k 64 -o model.isoproj",
        _add_fit,
    ),
    "transform": (
        "project points with a model",
        "isoproj transform model.isoproj embeddings.npy -o reduced.npy",
        _add_transform,
    ),
    "audit": (
        "measure what a model or any matrix does to all pairs, exactly",
        "isoproj audit model.isoproj embeddings.npy --max-distortion 0.3",
        _add_audit,
    ),
    "verify": (
        "recompute every claim of a model from the data; trust nobody",
        "isoproj verify model.isoproj embeddings.npy",
        _add_verify,
    ),
    "info": (
        "tell what is in a data or model file",
        "isoproj info model.isoproj",
        _add_info,
    ),
    "export": (
        "write the projection for another system",
        "isoproj export model.isoproj --to faiss -o model.faiss",
        _add_export,
    ),
    "compare": (
        "put methods side by side, scored by one referee",
        "isoproj compare digits -k 5 10 20 --methods minimax pca random",
        _add_compare,
    ),
    "curve": (
        "distortion and its proven floor against the number of dimensions",
        "isoproj curve embeddings.npy --max-k 40 --targets 0.2 0.5 --plot curve.png",
        _add_curve,
    ),
    "frontier": (
        "variance kept against what the worst pair loses, from minimax to PCA",
        "isoproj frontier embeddings.npy -k 20 --plot frontier.png",
        _add_frontier,
    ),
    "report": (
        "write a report that people want to look at, from model and data",
        "isoproj report model.isoproj embeddings.npy -o report.html",
        _add_report,
    ),
    "reproduce": (
        "run the paper's experiments again: numbers, figures, verdicts",
        "isoproj reproduce --quick --only figure1 -o results",
        _add_reproduce,
    ),
    "demo": (
        "fit, certify and compare on a data set that ships with scikit-learn",
        "isoproj demo -k 10",
        _add_demo,
    ),
}

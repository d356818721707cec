"""Orthogonal projections whose worst pair of points loses least, with proof.

Names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from isoproj._version import __version__ as __version__

if TYPE_CHECKING:
    from isoproj.comparison.compare import compare as compare
    from isoproj.comparison.dimensions_needed import (
        johnson_lindenstrauss_comparison as johnson_lindenstrauss_comparison,
    )
    from isoproj.engines.dask import DaskEngine as DaskEngine
    from isoproj.estimators.curves import DistortionCurve as DistortionCurve
    from isoproj.estimators.curves import Frontier as Frontier
    from isoproj.estimators.curves import distortion_curve as distortion_curve
    from isoproj.estimators.curves import guarantee_frontier as guarantee_frontier
    from isoproj.estimators.guaranteed_pca import GuaranteedPCA as GuaranteedPCA
    from isoproj.estimators.near_isometric import (
        NearIsometricProjection as NearIsometricProjection,
    )
    from isoproj.files.read.columnar import from_arrow as from_arrow
    from isoproj.proof.audit import AuditResult as AuditResult
    from isoproj.proof.audit import audit as audit
    from isoproj.proof.certificate import Certificate as Certificate
    from isoproj.proof.verify import verify as verify
    from isoproj.reporting.document import Report as Report
    from isoproj.reporting.document import report as report
    from isoproj.search.close import ClosePairs as ClosePairs
    from isoproj.search.close import close_pairs as close_pairs
    from isoproj.search.plan import SearchPlan as SearchPlan
    from isoproj.search.plan import search_plan as search_plan

_HOMES = {
    "AuditResult": "isoproj.proof.audit",
    "Certificate": "isoproj.proof.certificate",
    "DaskEngine": "isoproj.engines.dask",
    "DistortionCurve": "isoproj.estimators.curves",
    "Frontier": "isoproj.estimators.curves",
    "distortion_curve": "isoproj.estimators.curves",
    "from_arrow": "isoproj.files.read.columnar",
    "guarantee_frontier": "isoproj.estimators.curves",
    "GuaranteedPCA": "isoproj.estimators.guaranteed_pca",
    "NearIsometricProjection": "isoproj.estimators.near_isometric",
    "Report": "isoproj.reporting.document",
    "audit": "isoproj.proof.audit",
    "compare": "isoproj.comparison.compare",
    "johnson_lindenstrauss_comparison": "isoproj.comparison.dimensions_needed",
    "ClosePairs": "isoproj.search.close",
    "close_pairs": "isoproj.search.close",
    "SearchPlan": "isoproj.search.plan",
    "report": "isoproj.reporting.document",
    "search_plan": "isoproj.search.plan",
    "verify": "isoproj.proof.verify",
}
__all__ = sorted([*_HOMES, "__version__"])
# Subpackages that are had without an import of their own.
_SUBPACKAGES = ("baselines", "exceptions", "plot")


def __getattr__(name: str) -> object:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"isoproj.{name}")
    if name not in _HOMES:
        msg = f"module 'isoproj' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])

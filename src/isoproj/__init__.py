"""Orthogonal projections whose worst pair of points loses least, with proof.

Names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from isoproj._version import __version__

if TYPE_CHECKING:
    from isoproj.comparison.compare import compare
    from isoproj.comparison.dimensions_needed import johnson_lindenstrauss_comparison
    from isoproj.engines.dask import DaskEngine
    from isoproj.estimators.curves import (
        DistortionCurve,
        Frontier,
        distortion_curve,
        guarantee_frontier,
    )
    from isoproj.estimators.guaranteed_pca import GuaranteedPCA
    from isoproj.estimators.near_isometric import NearIsometricProjection
    from isoproj.files.read.columnar import from_arrow
    from isoproj.proof.audit import AuditResult, audit
    from isoproj.proof.certificate import Certificate
    from isoproj.proof.verify import verify
    from isoproj.reporting.document import Report, report
    from isoproj.search.close import ClosePairs, close_pairs
    from isoproj.search.plan import SearchPlan, search_plan

__all__ = [
    "AuditResult",
    "Certificate",
    "ClosePairs",
    "DaskEngine",
    "DistortionCurve",
    "Frontier",
    "GuaranteedPCA",
    "NearIsometricProjection",
    "Report",
    "SearchPlan",
    "__version__",
    "audit",
    "close_pairs",
    "compare",
    "distortion_curve",
    "from_arrow",
    "guarantee_frontier",
    "johnson_lindenstrauss_comparison",
    "report",
    "search_plan",
    "verify",
]

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

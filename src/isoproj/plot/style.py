"""One colour, marker and dash for every method, wherever it is drawn."""

from __future__ import annotations

from dataclasses import dataclass

# Opacity of shaded areas.
SHADE = 0.12


@dataclass(frozen=True, slots=True)
class Look:
    """How a method is drawn: in print, on a dark page, and without colours."""

    colour: str
    dark: str = ""
    marker: str = "o"
    dash: tuple[float, ...] = ()


# Okabe and Ito's colours stay apart in print and for the colour-blind; marker and dash
# tell methods apart in grey print.
LOOKS = {
    "isoproj": Look("#0072b2", "#56b4e9", "D"),
    "guaranteed_pca": Look("#009e73", "#3fc9a0", "h"),
    "pca": Look("#d55e00", "#f58b4c", "P", (1.0, 1.0)),
    "random": Look("#757575", "#a3a3a3", "x", (1.0, 1.0)),
    "dual_ascent": Look("#e69f00", marker="o"),
    "sdp+dr": Look("#cc79a7", marker="s", dash=(5.0, 1.5)),
    "sdp+dr/scs": Look("#7a3b5e", marker="v", dash=(5.0, 1.2, 1.0, 1.2)),
    "sdp+rr": Look("#56b4e9", marker="^", dash=(2.0, 1.2)),
    "sap": Look("#000000", marker="*"),
    "fair_pca": Look("#b8a800", marker="<"),
}
# Roles that are no methods: proven bounds, the theory, and lines that guide the eye.
_NEUTRAL = {
    "floor": Look("#4d4d4d", "#b9bcc0"),
    "theory": Look("#000000"),
    "guide": Look("#666666"),
}
_SAME = {
    "minimax": "isoproj",
    "near_isometric": "isoproj",
    "nearisometricprojection": "isoproj",
    "guaranteedpca": "guaranteed_pca",
    "pcaprojection": "pca",
    "randomprojection": "random",
    "first": "guide",
}


def look_of(role: str) -> Look | None:
    """Return the look of a method, class or role; None if it has none of its own."""
    plain = role.lower().replace(" ", "_")
    return (LOOKS | _NEUTRAL).get(_SAME.get(plain, plain))


def colour_of(role: str) -> str | None:
    """Return the colour of a method, class or role; None if it has none of its own."""
    look = look_of(role)
    return None if look is None else look.colour


def css_palette() -> dict[str, dict[str, str]]:
    """Return the colours of a page, ``"light"`` and ``"dark"``, by role."""
    shown = {role: look for role, look in (LOOKS | _NEUTRAL).items() if look.dark}
    return {
        "light": {role: look.colour for role, look in shown.items()},
        "dark": {role: look.dark for role, look in shown.items()},
    }

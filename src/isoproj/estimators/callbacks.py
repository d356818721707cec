"""Callbacks of scikit-learn, from its version 1.9 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from isoproj.numerics.progress import Step, watching

if TYPE_CHECKING:

    class CallbackSupport:
        """The mixin of scikit-learn, or nothing."""

    def with_callbacks(method: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return the method with the callbacks torn down after it."""
        return method
else:
    try:
        from sklearn.callback import CallbackSupportMixin as CallbackSupport
        from sklearn.callback import with_callbacks
    except ImportError:

        class CallbackSupport:
            """Stand in for the mixin of newer versions; it adds nothing."""


__all__ = ["CallbackSupport", "calling_back"]


@contextmanager
def calling_back(
    estimator: Any,  # noqa: ANN401
    X: Any,  # noqa: ANN401
    y: Any,  # noqa: ANN401
) -> Iterator[None]:
    """Call an estimator's callbacks at begin and end of a fit and after each step.

    A callback that returns True after a step stops the fit as Ctrl-C does: the best of
    both sides is returned.
    """
    if not hasattr(estimator, "set_callbacks"):
        yield
        return
    given = {"estimator": estimator, "X": X, "y": y}
    try:
        fit = estimator._init_callback_context(max_subtasks=None)
        fit.call_on_fit_task_begin(**given)

        def listen(_: Step) -> None:
            step = fit.subcontext(task_name="step").call_on_fit_task_begin(**given)
            if step.call_on_fit_task_end(**given):
                raise KeyboardInterrupt

        if getattr(estimator, "_skl_callbacks", None):
            with watching(listen, Step):
                yield
        else:
            yield
        fit.call_on_fit_task_end(**given, reconstruction_attributes={})
    finally:
        # Decorating ``fit`` itself would put a frame between it and its caller, whom
        # warnings name.
        with_callbacks(_nothing)(estimator)


def _nothing(_: object) -> None:
    """Do nothing, so that only the callbacks are torn down."""

"""Callbacks of scikit-learn, from its version 1.9 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from isoproj.numerics.progress import Step, watching

if TYPE_CHECKING:
    _Method = TypeVar("_Method", bound=Callable[..., Any])

    class CallbackSupport:
        """The mixin of scikit-learn, or nothing."""

    def with_callbacks(method: _Method) -> _Method:
        """Return the method with its callbacks cleared up after it."""
        return method
else:
    try:
        from sklearn.callback import CallbackSupportMixin as CallbackSupport
        from sklearn.callback import with_callbacks
    except ImportError:

        class CallbackSupport:
            """Stand in for the mixin of newer versions; it adds nothing."""

        def with_callbacks(method):  # noqa: ANN001, ANN201
            """Return the method as it is."""
            return method


__all__ = ["CallbackSupport", "calling_back", "with_callbacks"]


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

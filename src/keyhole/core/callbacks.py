"""Callbacks: what is called while a run trains, and may end a training early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from keyhole.core.errors import SettingsError

if TYPE_CHECKING:
    from keyhole.core.run import Event

__all__ = ["Callback", "CallbackLike", "CallbackList", "Moment"]

Moment = Literal["start", "step", "epoch", "end"]

_HOOKS = ("on_start", "on_step", "on_epoch", "on_end")


class Callback:
    """Base class of callbacks: methods that are called while a run trains. All of them do nothing by default.

    A run has several trainings, one after the other: of the masks (``"learn vln"``), of the reconstructor (``"refit
    dense"``) and of that which is fitted to all samples at the end (``"final dense"``). ``event.stage`` names the
    training. An epoch is what lies between two validations; ``TrainSettings.validation_steps`` is their number.

    An exception in a callback ends the run with that exception. In distributed training callbacks are called in the
    first process alone.

    See Also
    --------
    keyhole.training.CSVLogger, keyhole.training.TensorBoardLogger

    Examples
    --------
    >>> class Patience(Callback):
    ...     def on_epoch(self, event):
    ...         return event.figures.get("validation", 1.0) < 0.1  # True ends the training
    """

    def on_start(self, event: Event) -> None:
        """Begin a training; ``event.step`` is 0, or the step from which it is resumed."""

    def on_step(self, event: Event) -> bool | None:
        """Take note of a step of any stage, also of those that train nothing; True ends a training."""
        return None

    def on_epoch(self, event: Event) -> bool | None:
        """Take note of a validation, also of that before the first step; True ends the training.

        ``event.figures`` has what the history of the plan has: ``loss``, the mean since the last epoch,
        ``validation``, and for masks ``expected_l0``, ``count``, ``concentration`` and ``temperature``.
        """
        return None

    def on_end(self, event: Event) -> None:
        """End a training, also one that was interrupted or has failed; figures are those of its last epoch."""


CallbackLike = Callback | Callable[["Event"], Any]


class CallbackList(Callback):
    """Several callbacks as one, called in their order; it ends a training if any of them does.

    Parameters
    ----------
    callbacks
        Functions, which are called with the `Event` of each step, or objects with some of the methods of `Callback`.

    Raises
    ------
    SettingsError
        It is no sequence, or one of them is neither.

    Examples
    --------
    >>> from keyhole.core.run import Event
    >>> several = CallbackList([lambda event: event.step > 3])
    >>> several.on_step(Event("fit", 3, 9)), several.on_step(Event("fit", 4, 9))
    (False, True)
    """

    def __init__(self, callbacks: Sequence[CallbackLike] = ()) -> None:
        if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
            raise SettingsError(f"callbacks={callbacks!r}: expected a list of callbacks")
        self.callbacks: list[Any] = list(callbacks)
        for position, one in enumerate(self.callbacks):
            if isinstance(one, type) or not (callable(one) or any(hasattr(one, hook) for hook in _HOOKS)):
                raise SettingsError(
                    f"callbacks[{position}]={one!r}: expected a function of an Event, or an object with on_start, "
                    "on_epoch or on_end"
                )

    def __call__(self, event: Event) -> bool:
        """Call them for a step."""
        return self.on_step(event)

    def on_start(self, event: Event) -> None:
        """Call those that have the method."""
        self._call("on_start", event)

    def on_step(self, event: Event) -> bool:
        """Call those that have the method, and functions."""
        return self._call("on_step", event)

    def on_epoch(self, event: Event) -> bool:
        """Call those that have the method."""
        return self._call("on_epoch", event)

    def on_end(self, event: Event) -> None:
        """Call those that have the method."""
        self._call("on_end", event)

    def _call(self, hook: str, event: Event) -> bool:
        """Return whether any of them asks for the end."""
        asked = False
        for one in self.callbacks:
            is_function = not any(hasattr(one, name) for name in _HOOKS)
            called = (one if hook == "on_step" else None) if is_function else getattr(one, hook, None)
            asked |= called is not None and bool(called(event))
        return asked

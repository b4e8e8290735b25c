"""Registries: parts by name, imported when first used, extended by other packages through entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from keyhole.core.errors import SettingsError

__all__ = ["Registry"]

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Parts of one kind by name.

    Each entry is a reference ``"module:Class"``, imported when it is first asked for, so that a registry costs nothing
    to import. Other packages add parts by an entry point in the registry's group; a name that is built in cannot be
    replaced that way.

    Parameters
    ----------
    kind
        What the parts are, for messages: ``"method"``.
    group
        Group of entry points that other packages add parts to: ``"keyhole.selectors"``.
    references
        ``"module:attribute"`` of each built-in part, by name.

    Examples
    --------
    >>> codecs = Registry[Any]("codec", "keyhole.codecs", {"json": "json:loads"})
    >>> codecs["json"]("[1]"), list(codecs)
    ([1], ['json'])
    """

    def __init__(self, kind: str, group: str, references: Mapping[str, str]) -> None:
        self.kind, self.group = kind, group
        self._references = dict(references)

    @cached_property
    def _all(self) -> dict[str, str]:
        """Every reference by name, built-in ones first."""
        found = {point.name: point.value for point in entry_points(group=self.group)}
        return {**self._references, **{name: value for name, value in found.items() if name not in self._references}}

    def __getitem__(self, name: str) -> Entry:
        module, _, attribute = self._all[name].partition(":")
        return cast(Entry, getattr(import_module(module), attribute))

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def check(self, name: str, *others: str) -> None:
        """Raise a SettingsError that lists what there is, unless the name is registered or one of ``others``."""
        if name not in self and name not in others:
            raise SettingsError(f"{self.kind} {name!r} is not known; there are {', '.join([*others, *self])}")

    def make(self, name: str, settings: Mapping[str, Any]) -> Any:
        """Make the part called ``name`` with settings that it takes."""
        self.check(name)
        entry: Any = self[name]
        try:
            return entry(**settings)
        except TypeError as error:
            raise SettingsError(f"{self.kind} {name!r} does not take {', '.join(settings)} ({error})") from error

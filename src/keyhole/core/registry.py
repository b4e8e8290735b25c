"""Registries: classes by name, imported on first use, extensible by other packages through entry points."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from keyhole.core.errors import SettingsError

__all__ = ["Registry"]

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """A mapping from names to classes that are imported on first use.

    Each entry is a reference ``"module:Class"``, so that a registry costs nothing to import. Other packages add entries
    by an entry point in the registry's group; built-in names cannot be replaced that way.

    Parameters
    ----------
    kind : str
        What the entries are, for messages: ``"method"``.
    group : str
        Entry point group of other packages: ``"keyhole.selectors"``.
    references : mapping of str to str
        ``"module:attribute"`` of each built-in entry, by name.

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
        """Raise a SettingsError that lists all names, unless ``name`` is registered or one of ``others``."""
        if name not in self and name not in others:
            raise SettingsError(f"{self.kind} {name!r} is not known; there are {', '.join([*others, *self])}")

    def make(self, name: str, settings: Mapping[str, Any]) -> Any:
        """Construct an entry.

        Parameters
        ----------
        name : str
            Registered name.
        settings : mapping
            Keyword arguments of its constructor.

        Raises
        ------
        SettingsError
            If the name is unknown, a setting is unknown (the message lists those that there are), or a value invalid.
        """
        self.check(name)
        entry: Any = self[name]
        known = list(inspect.signature(entry).parameters.values())
        names = [parameter.name for parameter in known]
        unknown = [setting for setting in settings if setting not in names]
        if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known):
            there_are = f"there are {', '.join(names)}" if names else "it has none"
            raise SettingsError(f"{self.kind} {name!r} has no setting {unknown[0]!r}; {there_are}")
        return entry(**settings)

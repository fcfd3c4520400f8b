"""Collects what options and the environment ask for, and resolves it to settings: each value with its reason."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from twostroke.assembly.settings import engine_settings as engine
from twostroke.assembly.settings import server_settings as server
from twostroke.assembly.settings.option import Field, Group, Option, Setting
from twostroke.assembly.settings.options import BY_NAME
from twostroke.types.errors import ConfigError

log = logging.getLogger(__name__)
T = TypeVar("T")


class Asked(Struct, frozen=True):
    """One value that was asked for. source: the option or variable that asked for it."""

    value: Any
    source: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Resolved:
    """All settings, frozen, in groups. settings: all settings in the order that `twostroke config` prints."""

    settings: tuple[Setting[Any], ...]
    model: engine.ModelSettings = engine.ModelSettings()
    cache: engine.CacheSettings = engine.CacheSettings()
    task: engine.TaskSettings = engine.TaskSettings()
    steps: engine.StepSettings = engine.StepSettings()
    images: engine.ImageSettings = engine.ImageSettings()
    cpu: engine.CpuSettings = engine.CpuSettings()
    ranks: engine.RankSettings = engine.RankSettings()
    device: engine.DeviceSettings = engine.DeviceSettings()
    guesses: engine.SpeculateSettings = engine.SpeculateSettings()
    disk: engine.DiskSettings = engine.DiskSettings()
    memory: engine.MemorySettings = engine.MemorySettings()
    adapters: engine.AdapterSettings = engine.AdapterSettings()
    listen: server.ListenSettings = server.ListenSettings()
    talk: server.TalkSettings = server.TalkSettings()
    names: server.NameSettings = server.NameSettings()
    load: server.LoadSettings = server.LoadSettings()
    requests: server.RequestSettings = server.RequestSettings()
    stored: server.StoredSettings = server.StoredSettings()
    page: server.PageSettings = server.PageSettings()
    tracing: server.TraceSettings = server.TraceSettings()

    @classmethod
    def of(cls, settings: tuple[Setting[Any], ...]) -> Resolved:
        """Puts each setting into its group."""
        settled = {setting.name: setting for setting in settings}
        groups: dict[str, Any] = {
            each.name: type(each.default).of(settled) for each in fields(cls) if isinstance(each.default, Group)
        }
        return cls(settings=settings, **groups)

    def reason_of(self, field: Field[Any]) -> str:
        """Returns the reason for a setting's value."""
        return next(setting.reason for setting in self.settings if setting.name == field.name)

    def values(self, *wanted: Field[Any]) -> dict[str, Any]:
        """Returns the values of these settings by their names, in this order, for output or for another process."""
        return {field.name: self._value(field.name) for field in wanted}

    def _value(self, name: str) -> Any:
        return next(setting.value for setting in self.settings if setting.name == name)

    if not TYPE_CHECKING:  # users of LLM.resolved read by name; type checkers find such reads in this package

        def __getitem__(self, name: str) -> Any:
            return self._value(name)


def collect(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Asked]:
    """Returns the values that options and the environment ask for. Options (text or ready values; None means not given)
    replace the environment's values.

    Raises ConfigError for an unknown name, with the nearest known one, or for an unreadable value. An unknown variable
    is no error, because other programs set such names (Kubernetes does); one that resembles an option gets a warning.
    """
    asked: dict[str, Asked] = {}
    for name, text in environment.items():
        if name in BY_NAME:
            source = f"the variable TWOSTROKE_{name.upper()}"
            asked[name] = Asked(BY_NAME[name].read(text, source), source)
        else:
            _warn_of_spelling(name)
    for name, value in options.items():
        if value is None or value == ():
            continue
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, 1)
            hint = f"Did you mean {near[0]!r}?" if near else "Options: " + ", ".join(BY_NAME) + "."
            raise ConfigError(f"There is no option {name!r}.", fix=hint)
        option = BY_NAME[name]
        asked[name] = Asked(option.read(value, option.flag), option.flag)
    return asked


@cache
def _warn_of_spelling(name: str) -> None:
    """Warns once of a variable that resembles an option."""
    near = difflib.get_close_matches(name, BY_NAME, 1, cutoff=0.8)
    if near:
        meant = f"TWOSTROKE_{near[0].upper()}"
        log.warning("The variable TWOSTROKE_%s is no option and was ignored. Did you mean %s?", name.upper(), meant)


class Resolver:
    """Takes each asked value or a default, and records the reason."""

    def __init__(self, asked: Mapping[str, Asked]) -> None:
        self._asked = asked
        self._settings: dict[str, Setting[Any]] = {}

    def pick(self, option: Option[T], default: T, reason: str) -> T:
        """Records and returns the asked value of an option, or the default with its reason."""
        found = self._asked.get(option.name)
        return self.put(option, default if found is None else found.value, reason if found is None else found.source)

    def put(self, field: Field[T], value: T, reason: str) -> T:
        """Record a value that the engine has decided, with its reason. It replaces the value that was recorded for this
        field earlier."""
        self._settings[field.name] = Setting(field.name, value, reason)
        return value

    def asked_value(self, option: Option[T]) -> T | None:
        """Returns the value that the user gave for an option, by a flag or in the environment; None where none was
        given."""
        found = self._asked.get(option.name)
        return None if found is None else found.value

    def source_of(self, option: Option[Any]) -> str:
        """Returns the source of an asked value; "" where the option was not asked for."""
        found = self._asked.get(option.name)
        return "" if found is None else found.source

    def first_asked(self, *options: Option[Any]) -> Option[Any] | None:
        """Returns the first of these options that is asked for, or None."""
        return next((option for option in options if option.name in self._asked), None)

    def forget(self, option: Option[Any]) -> None:
        """Removes the asked value of this option."""
        self._asked = {name: asked for name, asked in self._asked.items() if name != option.name}

    def ask_instead(self, option: Option[T], value: T, source: str) -> None:
        """Replaces an asked value. source: words that name the old value and the reason for the new one."""
        self._asked = {**self._asked, option.name: Asked(value, source)}

    def resolved(self) -> Resolved:
        """Returns the settings that are recorded so far, frozen."""
        return Resolved.of(tuple(self._settings.values()))

"""The adapters of replicas, as their front knows them: names in the order in which each replica has loaded the
adapters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from twostroke.types.adapter import TakenAdapter
from twostroke.types.errors import InvalidRequest


def named_salt(name: str) -> str:
    """Returns the prefix of the cache salts that a front gives to requests with this adapter. Pages of different
    adapters are never shared."""
    return f"\0adapter {name} "


def salt_by_content(salt: str, names: Sequence[str], salts: Sequence[str]) -> str:
    """Replaces the adapter's name in a front's cache salt by the salt that follows from the adapter's contents. So a
    page on a disk is not used when its adapter's name belongs to another adapter meanwhile.

    salts: the salts of the adapters with these names.
    """
    for name, own in sorted(zip(names, salts, strict=False), key=lambda each: -len(each[0])):
        if salt.startswith(named_salt(name)):
            return own + salt.removeprefix(named_salt(name))
    return salt


class NamedAdapter(Struct, frozen=True):
    """An adapter of which a front knows only the name; its weights are in the replicas."""

    name: str


class FixedAdapters:
    """Tells a front which adapters its replicas have loaded. Satisfies engine.resources.Adapters. A replica's slots are
    filled in the order of the names; no slot is ever freed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._slots = {name: slot for slot, name in enumerate(names)}

    def loaded(self) -> tuple[NamedAdapter, ...]:
        """Returns all adapters."""
        return tuple(map(NamedAdapter, self._slots))

    @property
    def places(self) -> int:
        """The number of slots for adapters, all of which are in use."""
        return len(self._slots)

    def name_of(self, slot: int) -> str:
        """The name of the adapter in a slot."""
        return next(name for name, each in self._slots.items() if each == slot)

    def check(self, name: str | None) -> None:
        """Raises InvalidRequest for a name that is not loaded."""
        if name is not None:
            self.take(name)

    def take(self, name: str) -> TakenAdapter:
        """Returns the slot of an adapter and the salt of its prefixes. Raises InvalidRequest for a name that is not
        loaded."""
        if name not in self._slots:
            raise InvalidRequest(f"No adapter {name[:100]!r} is loaded.", param="model", code="model_not_found")
        return TakenAdapter(self._slots[name], named_salt(name))

    def give_back(self, slot: int) -> None:
        """Does nothing, because no slot is ever freed."""

"""One setting: its name, its type, how its text is read, and the group of settings that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Self, TypeVar, overload

from twostroke.types.errors import ConfigError

T = TypeVar("T")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One resolved value and its reason."""

    name: str
    value: T
    reason: str


class Field(Generic[T]):
    """A field of a group of settings. On an object of the group, the name gives the value. On the class of the group,
    it gives this description, by which the resolver asks for a value and sets it."""

    name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...

    @overload
    def __get__(self, group: Group, owner: type) -> T: ...

    def __get__(self, group: Group | None, owner: type) -> Self | T:
        """Returns the value on an object of the group, and the field itself on the class. Raises AttributeError for a
        setting that has no value yet."""
        return self if group is None else self.setting_of(group).value

    def __set__(self, group: Group, setting: Setting[T]) -> None:
        if isinstance(setting, Setting):  # a value that is not a Setting was not given, so it stays unsettled
            group.__dict__[self.name] = setting

    def setting_of(self, group: Group) -> Setting[T]:
        """The value in this group, with the reason for the value. Raises AttributeError where there is no value yet."""
        found: Setting[T] | None = group.__dict__.get(self.name)
        if found is None:
            raise AttributeError(f"The setting {self.name} of {type(group).__name__} is not settled yet.")
        return found


class Option(Field[T]):
    """A setting that a user can give by its flag, by the environment variable TWOSTROKE_NAME, or by its name in
    Python.

    default: text about what happens without the option. secret: its value is never printed. switch: the flag alone
    turns it on. also: the flag's names in other servers. many: it may be given several times; its value is a tuple.
    """

    many = False

    def __init__(
        self,
        metavar: str,
        parse: Callable[[str], T],
        help: str,
        default: str,
        *,
        secret: bool = False,
        switch: bool = False,
        also: tuple[str, ...] = (),
    ) -> None:
        self.metavar, self.help, self.default = metavar, help, default
        self._parse, self.secret, self.switch, self.also = parse, secret, switch, also

    @property
    def flag(self) -> str:
        """The option's spelling on the command line."""
        return "--" + self.name.replace("_", "-")

    def read(self, given: Any, source: str) -> T:
        """Returns the value from a text or from a ready value. Raises ConfigError that names the source of a wrong
        value."""
        text = str(given)
        try:
            return self._parse(text)
        except ValueError as error:
            value = "a wrong value" if self.secret else f"the value {text!r}"
            raise ConfigError(f"{source} has {value}: {error}.", fix=f"{self.flag}: {self.help}") from None


class ListOption(Option[tuple[Item, ...]]):
    """An option that may be given several times. Python may give a mapping, a list, or one text with commas between the
    items."""

    many = True

    def read(self, given: Any, source: str) -> tuple[Item, ...]:
        if isinstance(given, Mapping):
            given = [f"{key}={each}" for key, each in given.items()]
        texts = given.split(",") if isinstance(given, str) else given
        found = [super(ListOption, self).read(each, source) for each in texts]
        return tuple(item for each in found for item in each)


class NamesOption(ListOption[str]):
    """An option of names that may be given several times. Each name counts once."""

    def read(self, given: Any, source: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(super().read(given, source)))


@dataclass(frozen=True, eq=False, repr=False)
class Group:
    """Settings that the same part of the program uses: fields of a dataclass, each with its value and its reason."""

    @classmethod
    def of(cls, settled: Mapping[str, Setting[Any]]) -> Self:
        """Returns the group with those of its settings that have a value."""
        return cls(**{each.name: settled[each.name] for each in fields(cls) if each.name in settled})

    def has(self, field: Field[Any]) -> bool:
        """Returns whether this setting of the group has a value yet."""
        return field.name in self.__dict__

    @classmethod
    def options(cls) -> Iterator[Option[Any]]:
        """Returns the options of the group, in their order. They are the settings that can be asked for."""
        return (each.default for each in fields(cls) if isinstance(each.default, Option))


def options_of(*groups: type[Group]) -> tuple[Option[Any], ...]:
    """Returns the options of several groups, in their order."""
    return tuple(option for group in groups for option in group.options())

"""One option of the engine or the server: its name, its meaning, how its text is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twostroke.types.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Option:
    """name: the name in Python and after TWOSTROKE_; the flag is --name with dashes. default: words for what happens
    without the option.

    secret: its value is never printed. switch: the flag alone turns it on. many: it may be given several times; its
    value is a tuple. also: the flag as other servers call it.
    """

    name: str
    metavar: str
    parse: Callable[[str], Any]
    help: str
    default: str
    secret: bool = False
    switch: bool = False
    many: bool = False
    also: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The command line's spelling."""
        return "--" + self.name.replace("_", "-")

    def read(self, text: str, source: str) -> Any:
        """Parse; raises ConfigError that names where the text came from."""
        try:
            return self.parse(text)
        except ValueError as error:
            value = "a wrong value" if self.secret else f"the value {text!r}"
            raise ConfigError(f"{source} has {value}: {error}.", fix=f"{self.flag}: {self.help}") from None

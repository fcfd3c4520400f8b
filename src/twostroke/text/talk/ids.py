"""The ids of calls: some templates accept only ids of one form."""

from __future__ import annotations

import hashlib
import re
import string
from functools import lru_cache

from msgspec import Struct

_LETTERS = string.ascii_letters + string.digits


class CallIds(Struct, frozen=True):
    """The form of the ids of calls. An id is `prefix` followed by `characters` random letters and digits. If `template`
    is set, the id is that text instead, with values in place of {name} and {count}.

    count: the number of the call in the conversation, from 0. exact: True where the template raises for ids of another
    form.
    """

    prefix: str = "call_"
    characters: int = 24
    template: str = ""
    exact: bool = False

    def new(self, fresh: str, name: str, count: int) -> str:
        """Returns an id for a call. fresh: letters and digits that nobody can guess."""
        if self.template:
            return self.template.format(name=name, count=count)
        return self.prefix + fresh[: self.characters]

    def legal(self, call_id: str, name: str, count: int) -> str:
        """Returns the id of an earlier call in the form that the template accepts. It is the same id, or an id that is
        computed from it, so that the result is always the same."""
        if self.template:
            return self.template.format(name=name, count=count)
        if not self.exact or _form(self.prefix, self.characters).fullmatch(call_id):
            return call_id
        number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest())
        made = []
        for _ in range(self.characters):
            number, place = divmod(number, len(_LETTERS))
            made.append(_LETTERS[place])
        return self.prefix + "".join(made)

    def name_of(self, call_id: str) -> str:
        """Returns the name of the tool that an id of this form holds, "" for none."""
        if not self.template:
            return ""
        found = _parts(self.template).fullmatch(call_id)
        return found["name"] if found else ""


@lru_cache(maxsize=64)
def _form(prefix: str, characters: int) -> re.Pattern[str]:
    return re.compile(f"{re.escape(prefix)}[A-Za-z0-9]{{{characters}}}")


@lru_cache(maxsize=64)
def _parts(template: str) -> re.Pattern[str]:
    name, count = re.escape("{name}"), re.escape("{count}")
    return re.compile(re.escape(template).replace(name, "(?P<name>.+)").replace(count, "[0-9]+"))

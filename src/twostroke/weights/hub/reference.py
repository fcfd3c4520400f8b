"""Parses the text that a person writes for a model of a hub.

    [https://][hf.co/ | huggingface.co/] owner/repo [":" quantization-or-file] ["@" revision] | short name [":" tag]

A short name has no slash and an id of the hub has one, so neither can be taken for the other.
"""

from __future__ import annotations

import re

from msgspec import Struct

from twostroke.weights.store.table import row_of

_HOST = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<rest>[^?#]+)", re.IGNORECASE)
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?"
_HUB = re.compile(rf"(?P<repo>{_PART}/{_PART})(?::(?P<wanted>[^@]+))?(?:@(?P<revision>\S+))?")
_PAGE = re.compile(r"(?P<repo>[^/]+/[^/]+)/(?:tree|blob|resolve)/(?P<revision>[^/]+)(?:/(?P<file>.+))?")


class Reference(Struct, frozen=True):
    """repo_id: a repository. wanted: a quantization or a file; None for the usual choice. revision: the revision, or
    None."""

    repo_id: str
    wanted: str | None = None
    revision: str | None = None
    task: str = ""

    @property
    def text(self) -> str:
        """The full reference, as it is printed and kept."""
        wanted = f":{self.wanted}" if self.wanted else ""
        return f"{self.repo_id}{wanted}" + (f"@{self.revision}" if self.revision else "")


def reference_of(name: str) -> Reference | None:
    """Returns the model of a hub that a name stands for; None for any other name."""
    row = row_of(name)
    if row is not None:
        return Reference(row.repo, row.quant or None, None, row.task)
    host = _HOST.fullmatch(name)
    rest = host["rest"].rstrip("/") if host else name
    page = _PAGE.fullmatch(rest) if host else None
    if page:
        return Reference(page["repo"], page["file"], None if page["revision"] == "main" else page["revision"])
    found = _HUB.fullmatch(rest)
    if found is None:
        return None
    wanted = found["wanted"]
    return Reference(found["repo"], None if wanted in (None, "latest") else wanted, found["revision"])

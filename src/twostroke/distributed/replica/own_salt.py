"""Turns a front's salts into this replica's own. A front knows adapters by their names, and pages are found by the
contents of adapters."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from twostroke.distributed.fleet.fixed_adapters import salt_by_content
from twostroke.distributed.wire.frames import Assignment, Frame, PagesAhead, ReplicaFacts


def with_own_salt(frame: Frame, facts: ReplicaFacts) -> Frame:
    """Returns a front's frame with its cache salt replaced. The front's salt names the request's adapter; the new salt
    follows from the contents of this adapter here."""
    if isinstance(frame, Assignment):
        salt = salt_by_content(frame.request.cache_salt, facts.adapters, facts.adapter_salts)
        return structs.replace(frame, request=replace(frame.request, cache_salt=salt))
    if isinstance(frame, PagesAhead):
        salt = salt_by_content(frame.cache_salt, facts.adapters, facts.adapter_salts)
        return structs.replace(frame, cache_salt=salt)
    return frame

"""The progress of a prompt, reported until its first token is there. Sent when a client asks with `return_progress`.

    {"prompt_progress": {"total": 2000, "processed": 512, "cache": 0, "waiting_ahead": 0, "time_ms": 310.0}}
"""

from __future__ import annotations

from typing import Any

from twostroke.cost.history.account import Phase
from twostroke.server.live.view import EngineView

PROGRESS_S = 0.2
"""The seconds between two checks of how much of a prompt is computed, until its first token is there."""


class PromptProgress:
    """The progress of one completion's prompt. It reports each state once."""

    def __init__(self, view: EngineView, completion_id: str) -> None:
        self._view = view
        self._id = completion_id
        self._last_sent: tuple[int, int] | None = None

    def news(self) -> dict[str, Any] | None:
        """Returns the field `prompt_progress`, to which the API adds its own fields of an event. Returns None when
        nothing has changed, or no prompt is being read."""
        ledger = self._view.ledger
        live = ledger.live_one(self._id)
        if live is None or live.token_s is not None:
            return None
        ahead = 0
        if live.phase is Phase.QUEUED:
            ahead = sum(each.phase is Phase.QUEUED and each.arrival_s < live.arrival_s for each in ledger.live())
        if (live.num_computed, ahead) == self._last_sent:
            return None
        self._last_sent = (live.num_computed, ahead)
        return {
            "prompt_progress": {
                "total": live.num_prompt_tokens,
                "processed": live.num_computed,
                "cache": live.num_cached,
                "waiting_ahead": ahead,
                "time_ms": round(1e3 * (self._view.clock() - live.arrival_s), 3),
            }
        }

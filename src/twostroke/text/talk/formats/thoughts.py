"""The marks around thoughts that many formats have in common."""

from __future__ import annotations

from twostroke.text.talk.format import ThoughtMarks

THINK = ThoughtMarks("<think>\n", "\n</think>\n\n")
BRACKETS = ThoughtMarks("[THINK]", "[/THINK]", anywhere=True)

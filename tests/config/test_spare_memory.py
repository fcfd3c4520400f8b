"""Memory that other programs need is not taken for cached prefixes."""

from __future__ import annotations

import pytest

from twostroke import LLM, SamplingParams
from twostroke.assembly import device
from twostroke.assembly.find import find_model
from twostroke.assembly.machine.spare_memory import EVERY_S, SpareMemory
from twostroke.assembly.settings.config import room_sentence


def test_free_memory_is_read_once_a_second() -> None:
    now_s, readings = [100.0], [50, 49, 80]
    spare = SpareMemory(lambda: readings.pop(0), lambda: 50, lambda: now_s[0])
    assert not spare.is_short() and not spare.is_short() and len(readings) == 2
    now_s[0] += EVERY_S
    assert spare.is_short() and spare.is_short() and len(readings) == 1
    now_s[0] += 5 * EVERY_S
    assert not spare.is_short() and not readings


def used_pages(options: dict[str, str]) -> int:
    """How many pages hold K and V after eight prompts without a common beginning, one after the other."""
    params = SamplingParams(max_tokens=2, temperature=0.0)
    with LLM("spark", threads=1, context=256, max_sequences=4, cache="off", **options) as llm:
        for number in range(8):
            llm.generate([f"{number} " * 40], params)
        return llm._built.cache.pages_cached


def test_prefixes_take_no_memory_that_others_need(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = used_pages({})
    monkeypatch.setattr(device, "free_memory_bytes", lambda: 0)
    assert 0 < used_pages({}) <= usual // 4
    assert used_pages({"kv_memory": "8MB"}) == usual, "the user chose the size"


def test_the_sentence_about_the_cache_says_that_it_grows() -> None:
    said = room_sentence(find_model("spark", {"kv_memory": "8MB"}).resolver.resolved())
    assert "room for " in said and "It takes memory as requests come: nearly none now, 8 MB at most." in said

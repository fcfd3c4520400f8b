"""Sessions of agents, replayed over a real socket: none gets an error, and the cache finds what it contains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serve.harness import Live, serving
from tests.serve.sessions.clients import aider, claude_code, cline, codex, n8n, open_webui, opencode, zed
from tests.serve.sessions.frame import MODEL, Client, Played, replay
from tests.serve.sessions.scripted import write_scripted
from tests.serve.sessions.texts import REQUESTS
from twostroke.server.build import build_server

CLIENTS = [each.CLIENT for each in (claude_code, codex, opencode, cline, aider, zed, open_webui, n8n)]
LEAST_SHARE = 0.95


@contextmanager
def served(client: Client, folder: Path, **options: object) -> Iterator[Live]:
    """A server whose model writes what the client needs to go on."""
    model = write_scripted(folder / "model", client.answer)
    settings = {"kv_memory": "64MB", "threads": 1, "weights": "f32", "served_name": MODEL, **options}
    with build_server(str(model), settings) as built, serving(built.parts) as live:
        yield live


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_no_request_ends_in_an_error_and_the_cache_finds_the_history(client: Client, tmp_path: Path) -> None:
    with served(client, tmp_path) as live:
        played = replay(client, live)
    assert len(played.turns) + len(played.asides) == REQUESTS
    print(f"{client.name}: {played.cached_share:.2%} of {played.turns[-1].prompt_tokens} tokens")
    assert played.cached_share >= LEAST_SHARE, _shares(played)


def test_a_line_that_changes_empties_the_cache_where_it_is_kept(tmp_path: Path) -> None:
    with served(claude_code.CLIENT, tmp_path, client_lines="keep") as live:
        assert replay(claude_code.CLIENT, live).cached_share < 0.1


def test_what_was_left_out_is_named_and_a_text_tool_gets_its_text(tmp_path: Path) -> None:
    with served(codex.CLIENT, tmp_path) as live:
        played = replay(codex.CLIENT, live)
    assert codex.patch_of(played.turns[0]).startswith("*** Begin Patch\n*** Update File: part.py\n")
    for word in ("web_search", "image_generation", "mcp__docs", "apply_patch", "reasoning_effort"):
        assert word in played.turns[0].warnings, word
    for word in ("input_image", "web_search_call", "ghost_snapshot", "arguments"):
        assert word in played.turns[-1].warnings or word in played.turns[10].warnings, word


def _shares(played: Played) -> list[str]:
    return [f"{turn.cached_tokens} of {turn.prompt_tokens}" for turn in played.turns]

"""Codex: /v1/responses streamed, instructions next to developer messages, tools of five kinds, items without ids.

Its history contains calls of a text tool with a grammar, a local shell, a web search, a picture in an output, and a
summary.
"""

from __future__ import annotations

from typing import Any

from tests.serve.sessions.frame import MODEL, Ask, Client, Said, Session
from tests.serve.sessions.texts import REQUESTS, output, picture_url, rules, schema

HEADERS = {
    "originator": "codex_cli_rs",
    "user-agent": "codex_cli_rs/0.98.0 (Linux 6.8; x86_64) xterm",
    "session_id": "019a0000-0000-7000-8000-000000000000",
    "accept": "text/event-stream",
    "openai-beta": "responses=experimental",
}
GRAMMAR = 'start: begin hunk+ end\nbegin: "*** Begin Patch" LF\nend: "*** End Patch" LF?\nhunk: /.+/ LF\n'
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "exec_command", "description": rules("Commands", 700), "strict": False,
     "parameters": schema("cmd", "workdir")},
    {"type": "function", "name": "update_plan", "description": rules("Plans", 500), "strict": False,
     "parameters": schema("explanation")},
    {"type": "custom", "name": "apply_patch", "description": "Edit files.",
     "format": {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}},
    {"type": "web_search", "external_web_access": False},
    {"type": "image_generation", "output_format": "png"},
    {"type": "namespace", "name": "mcp__docs", "description": "Pages", "tools": []},
]
COMPACTED_AT = 14


def session() -> Session:
    items = _begun("Mend the failing test.")
    for turn in range(1, REQUESTS + 1):
        said = yield Ask("/v1/responses", _body(items), HEADERS)
        items += [{k: v for k, v in item.items() if k not in ("id", "status")} for item in said.body["output"]]
        items += [_result(call.call_id, call.name, turn) for call in said.calls]
        items += _more(turn)
        if turn == COMPACTED_AT:
            items = [*_begun("Mend the failing test."), _message("user", "Summary of what was done: " + output(turn))]


def _begun(text: str) -> list[dict[str, Any]]:
    return [
        _message("developer", "<permissions>\n" + rules("What may be written", 900) + "</permissions>"),
        _message("user", "<environment_context>\n  <cwd>/work</cwd>\n  <shell>bash</shell>\n</environment_context>"),
        _message("user", text),
    ]


def _message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _body(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": MODEL,
        "instructions": rules("Coding in a terminal", 4500),
        "input": items,
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "019a0000-0000-7000-8000-000000000000",
        "client_metadata": {"x-codex-installation-id": "0"},
    }


def _result(call_id: str, name: str, turn: int) -> dict[str, Any]:
    if name == "apply_patch":
        return {"type": "custom_tool_call_output", "call_id": call_id, "output": "Success. Updated: M part.py"}
    found: Any = output(turn)
    if turn == 5:
        found = [{"type": "input_text", "text": "shown"}, {"type": "input_image", "image_url": picture_url()}]
    return {"type": "function_call_output", "call_id": call_id, "output": found}


def _more(turn: int) -> list[dict[str, Any]]:
    """The other items that a session leaves in its history."""
    more: dict[int, list[dict[str, Any]]] = {
        3: [{"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "exit codes"}}],
        4: [
            {"type": "local_shell_call", "call_id": "shell_4", "status": "completed",
             "action": {"type": "exec", "command": ["ls", "-la"]}},
            {"type": "local_shell_call_output", "id": "shell_4", "output": '{"output": "part.py", "exit_code": 0}'},
        ],
        6: [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Think of the test."}], "content": None,
             "encrypted_content": "AAAA"},
            {"type": "function_call", "name": "exec_command", "arguments": '{"cmd": "sle', "call_id": "call_cut"},
            {"type": "function_call_output", "call_id": "call_cut", "output": "failed to parse the arguments"},
        ],
        8: [{"type": "ghost_snapshot", "ghost_commit": {"id": "0"}}],
        9: [_message("user", "<turn_aborted>\nThe user stopped this turn.\n</turn_aborted>")],
    }
    return more.get(turn, [])


PATCH = "*** Begin Patch\\n*** Update File: part.py\\n-old\\n+new\\n*** End Patch"
ANSWER = (
    'Let me look.\n<tool_call>\n{"name": "exec_command", "arguments": {"cmd": "ls"}}\n</tool_call>'
    '\n<tool_call>\n{"name": "apply_patch", "arguments": {"input": "' + PATCH + '"}}\n</tool_call>'
)
CLIENT = Client("Codex", ANSWER, session)


def patch_of(said: Said) -> str:
    """The input of the text tool."""
    return next(call.arguments for call in said.calls if call.name == "apply_patch")

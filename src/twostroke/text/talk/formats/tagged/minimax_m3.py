"""MiniMax M3: each tag has a prefix; objects are tags, lists are items."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ThoughtMarks
from twostroke.text.talk.notations.nested import NestedNotation

P = "]<]minimax[>["
FORMAT = Format(
    "minimax_m3",
    calls=(CallForm(NestedNotation(P), begin=f"{P}<tool_call>\n", between="\n", end=f"\n{P}</tool_call>"),),
    thought=ThoughtMarks("<mm:think>", "</mm:think>", anywhere=True),
    ends=("[e~[",),
    vocabulary=(P, "<mm:think>"),
    offer=(f"{P}<tool_call>",),
    parts=(P,),
)
EXAMPLES = (
    Example(
        f'<mm:think>Which?</mm:think>{P}<tool_call>\n{P}<invoke name="shelf">{P}<place>{P}<rows>{P}<item>1{P}</item>'
        f"{P}<item>2{P}</item>{P}</rows>{P}</place>{P}</invoke>\n{P}</tool_call>",
        thought="Which?",
        calls=(("shelf", '{"place": {"rows": [1, 2]}}'),),
    ),
    Example(
        f'{P}<tool_call>\n{P}<invoke name="shelf">{P}<title>Emma{P}</title>{P}<copies>2{P}</copies>{P}</invoke>\n'
        f'{P}<invoke name="bell">{P}</invoke>\n{P}</tool_call>',
        calls=(("shelf", '{"title": "Emma", "copies": 2}'), ("bell", "{}")),
    ),
    Example(
        f'{P}<tool_call>\n{P}<invoke name="shelf">{P}<place>{P}<tag>a{P}</tag>{P}<tag>b{P}</tag>{P}<rest>'
        f"{P}<item>x{P}</item>{P}</rest>{P}</place>{P}</invoke>\n{P}</tool_call>",
        calls=(("shelf", '{"place": {"tag": ["a", "b"], "rest": ["x"]}}'),),
    ),
)

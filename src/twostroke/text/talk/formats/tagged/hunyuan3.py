"""Hy3: tags stand around each call, key and value. Each tag's name has a suffix, which the chat template sets."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ThoughtMarks
from twostroke.text.talk.notations.tagged import TaggedNotation


def with_suffix(suffix: str) -> Format:
    """Returns the format of Hy3 with this suffix in the name of each tag: `<tool_call:x>` for the suffix `:x`."""
    notation = TaggedNotation(
        name_open="",
        name_close=f"<tool_sep{suffix}>\n",
        key_open=f"<arg_key{suffix}>",
        key_close=f"</arg_key{suffix}>\n",
        value_open=f"<arg_value{suffix}>",
        value_close=f"</arg_value{suffix}>",
        between="\n",
    )
    call = CallForm(
        notation,
        f"<tool_call{suffix}>",
        f"</tool_call{suffix}>",
        "\n",
        f"<tool_calls{suffix}>\n",
        f"\n</tool_calls{suffix}>",
    )
    return Format(
        "hunyuan3",
        calls=(call,),
        thought=ThoughtMarks(f"<think{suffix}>", f"</think{suffix}>", anywhere=True),
        ends=(f"<｜hy_eos{suffix}｜>",),
        vocabulary=(f"<tool_calls{suffix}>",),
        offer=(f"<tool_calls{suffix}>",),
    )


FORMAT = with_suffix(":opensource")
EXAMPLES = (
    Example(
        "<think:opensource>Which?</think:opensource><tool_calls:opensource>\n<tool_call:opensource>hours"
        "<tool_sep:opensource>\n<arg_key:opensource>day</arg_key:opensource>\n<arg_value:opensource>Mon"
        "</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
        thought="Which?",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
)

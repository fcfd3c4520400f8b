"""Solar Open: a turn consists of messages, one for the thought, one for the content and one for the calls.
`<|begin|>assistant` begins each further message."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ThoughtMarks
from twostroke.text.talk.ids import CallIds
from twostroke.text.talk.notations.named import NamedNotation

_CALL = CallForm(
    NamedNotation("<|tool_call:args|>", id_close="<|tool_call:name|>"),
    "<|tool_call:begin|>",
    "<|tool_call:end|>",
    "",
    "<|tool_calls|>",
)
FORMAT = Format(
    "solar",
    calls=(_CALL,),
    thought=ThoughtMarks("<|think|>", "<|end|>", anywhere=True, following="<|begin|>assistant"),
    wraps=("<|begin|>assistant", "<|content|>", "<|end|>"),
    answers=(("<|content|>", "<|end|>"),),
    ids=CallIds("", 10),
    ends=("<|calls|>", "<|flush|>"),
    vocabulary=("<|tool_calls|>", "<|tool_call:begin|>"),
    parts=("<|begin|>",),
)
EXAMPLES = (
    Example(
        "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>q1w2e3r4t5<|tool_call:name|>bell"
        "<|tool_call:args|>{}<|tool_call:end|>",
        thought="Hm.",
        calls=(("bell", "{}", "q1w2e3r4t5"),),
    ),
    Example("<|think|>Hm.<|end|><|begin|>assistant<|content|>At nine.<|end|>", "At nine.", "Hm."),
)

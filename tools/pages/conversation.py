"""Makes docs/guides/conversation.md: how a model's conversation format is found, with a table of all formats."""

from __future__ import annotations

from twostroke.text.talk.catalog import EXAMPLES, FORMATS
from twostroke.text.talk.format import Format
from twostroke.text.talk.write import written

TEXT = """# How a model converses

Each family of models has its own way to write turns, thoughts and calls of tools. Twostroke finds the way of a model
by itself, and clients get the same messages from all of them: text without marks, thoughts as thoughts, calls with
JSON arguments. See what was found with

```
twostroke doctor MODEL
twostroke config MODEL --talk --json
```

Both print the format and where it was found, the marks of thoughts, one call as the model writes it, and the tokens
that end an answer. They also print the template's switches for thinking, what of a conversation with tools the template
shows, and the publisher's values for sampling (`generation_config.json`, or `general.sampling.*` of a GGUF file).

## How a format is found

The first of these that fits is used, and the log names it at the start.

1. **The template writes it.** The model's chat template renders turns with known words. A format of the table counts
   where it reads these turns back.
2. **It is derived.** Where no format of the table fits, one is made of what the template writes around the known
   words. It is used only if it reads back every turn, cut at every place.
3. **The vocabulary has its tokens.** Some templates write no calls, and the model was still trained on them.
4. **The offer of tools tells it.** The template asks for calls in certain words.
5. **Common notations.** Otherwise the most usual notation is offered and read. `doctor` prints the format `common`
   for such a model.

Nothing is looked up in the template's source, and no format is chosen by a model's name.

## How to override

| option | meaning |
| --- | --- |
| `--tool-format NAME` | calls are read, held and written as this format of the table does |
| `--reasoning-format NAME` | thoughts have the marks of this format; `none` reads no thoughts |
| `--chat-template FILE` | this template is used in place of the model's |

## Differences from transformers' rendering

A prompt is what transformers renders, but for these cases, in which transformers refuses or drops
something.

- A conversation is not refused for its form. Some histories do not fit a template. They have two messages of a
  user in a row, a second system message, a system message without a place, an empty answer, or two calls where one is
  allowed. Each is changed to the nearest form that the template takes, and the header `x-twostroke-warnings` names the
  change.
- Offered tools, calls and results that a template leaves out are written in the format's own notation.
- Thoughts come under the name that the template reads, whatever name the client used.
- Ids of calls have the form that the template prints or asks for. An id that a model writes a second time is
  replaced.
- Control tokens in what clients wrote are quoted: they are text, and never end a turn.
- A text becomes a list of one part for a template that reads lists of parts alone.
- An answer that the client began stands after the thought, where the template writes an answer's text.

On 2026-11-29, six conversations for each of 208 published templates were compared with transformers 5.23, byte for
byte. It renders 1,149 of them, and 1,002 are equal. In 123 the template leaves out tools, calls or results, in 13
the system message; 11 are of templates that read lists of parts alone.

## Published templates

The same 208 templates, each with tools and a conversation of every form of the list above. 204 render all of it but
old thoughts. 3 refuse every conversation of more than one turn, and one is no template.

| the format is found by | templates |
| --- | --- |
| what the template writes, a format of the table | 112 |
| what the template writes, derived | 6 |
| the vocabulary, a format of the table | 13 |
| nothing; common notations are read | 76 |

gpt-oss leaves out a text next to a call. Some raw answers in the tests of other servers are read in another way on
purpose: a call within a thought ends the thought, although a closing mark comes later.

## Formats

The marks as the model writes them; `⏎` is a line end. Every format has examples, which tests read whole, at every
cut, and damaged. Told by: what tells the format, besides what the template writes.

| format | thought | a call | ends | told by | examples |
| --- | --- | --- | --- | --- | --- |
"""


def conversation_page(note: str) -> str:
    """Returns the page. note: the line that names the program which wrote the page."""
    return note + TEXT + "".join(_row(form) for form in FORMATS.values())


def _row(form: Format) -> str:
    call = written(form, [("NAME", {"KEY": "VALUE"}, form.ids.new("a1b2c3d4e5" * 3, "NAME", 0))]) if form.calls else ""
    if form.thought is not None:
        thought = f"{_code(form.thought.opening)} {_code(form.thought.closing)}"
    else:
        thought = "a message" if form.thinks else "-"
    ends = " ".join(map(_code, form.ends)) or "the model's"
    told = ", ".join(name for name, found in (("vocabulary", form.vocabulary), ("offer", form.offer)) if found) or "-"
    return f"| {form.name} | {thought} | {_code(call)} | {ends} | {told} | {len(EXAMPLES[form.name])} |\n"


def _code(text: str) -> str:
    """Returns a text as code for a cell of a table: a row is one line, and a bar would end the cell."""
    shown = text.strip().replace("\n", "⏎").replace("|", "\\|")
    mark = "``" if "`" in shown else "`"
    return f"{mark} {shown} {mark}" if "`" in shown else f"{mark}{shown}{mark}"

"""The tokenizer and the chat template, as trained and as shipped."""

import jinja2
import pytest
from tokenizers import Tokenizer
from tools.spark.corpus import Entry
from tools.spark.tokenizer import (
    CHAT_TEMPLATE,
    DEFAULT_PATH,
    DEFAULT_SYSTEM,
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    render_chat,
    train,
    training_lines,
)

CHAT = [
    {"role": "system", "content": DEFAULT_SYSTEM},
    {"role": "user", "content": "What is prefill?"},
    {"role": "assistant", "content": "The first phase."},
    {"role": "user", "content": "And then?\nTell me."},
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEFAULT_PATH))


@pytest.mark.parametrize(
    "text",
    [
        "What is prefill?",
        "  two  spaces\n\n\ttab ",
        "1,008 GB/s / 35 GB = 29 tok/s",
        "na\u00efve caf\u00e9 \u4f60\u597d \U0001f525",
        "\x00\x7f",
        "",
    ],
)
def test_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_answers_round_trip_in_few_tokens(tokenizer: Tokenizer, entries: list[Entry]) -> None:
    for entry in entries:
        ids = tokenizer.encode(entry.answer).ids
        assert tokenizer.decode(ids) == entry.answer
        assert len(ids) < len(entry.answer) / 2


def test_special_tokens_are_single_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    for token in SPECIAL_TOKENS:
        assert tokenizer.encode(token).ids == [tokenizer.token_to_id(token)]


def test_nothing_is_added_to_a_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("prefill").ids == tokenizer.encode("prefill", add_special_tokens=False).ids


@pytest.mark.parametrize("prompt", [True, False])
def test_template_has_the_documented_form(prompt: bool) -> None:
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(CHAT_TEMPLATE)
    expected = "<|bos|>" + "".join(f"<|{m['role']}|>\n{m['content']}<|end|>\n" for m in CHAT)
    expected += "<|assistant|>\n" if prompt else ""
    assert template.render(messages=CHAT, add_generation_prompt=prompt) == expected
    assert render_chat(CHAT, add_generation_prompt=prompt) == expected


def test_the_tokenizer_never_reads_held_out_lines(entries: list[Entry]) -> None:
    lines = set(training_lines(entries, []))
    assert not any(question in lines for entry in entries for question in entry.held_out)


def test_a_small_corpus_still_gives_a_full_vocabulary() -> None:
    entry = Entry(id="a", where="x:1", questions=["what is a token"], answer="A piece of text.")
    assert train([entry]).get_vocab_size() == VOCAB_SIZE

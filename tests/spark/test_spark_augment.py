"""The augmenter and the batches: variety, order, and that no text that was held out is ever trained on."""

from __future__ import annotations

import itertools
import random
from typing import Any

from tokenizers import Tokenizer
from tools.spark.augment import phrase, phrase_once, swap_frame, swap_synonyms
from tools.spark.corpus import Entry, held_out_set
from tools.spark.normal import normalise
from tools.spark.tokenizer import ASSISTANT, DEFAULT_PATH, END, PAD, USER

from tests.lazily import Lazily, torch

data = Lazily("tools.spark.data")
ENTRY = Entry(
    id="slow",
    where="x.txt:1",
    questions=["Why is decode slow?", "what makes decode slow", "decode is slow, why?"],
    held_out=["reason for slow decode"],
    answer="Decode reads every weight for each token.",
)


def small_dialogues(entries: list[Entry]) -> Any:
    """Batches over the real corpus, small enough for a test."""
    return data.Dialogues(entries, Tokenizer.from_file(str(DEFAULT_PATH)), seed=3, batch_tokens=2048)


def test_held_out_questions_are_never_phrased(entries: list[Entry]) -> None:
    held_out = held_out_set(entries)
    rng = random.Random(0)
    for entry in entries:
        for _ in range(20):
            assert normalise(phrase(entry, rng, held_out)) not in held_out


def test_a_held_out_question_that_chance_makes_is_thrown_away() -> None:
    drawn = {normalise(phrase_once(ENTRY, random.Random(i))) for i in range(500)}
    target = "why is decode slow"
    assert target in drawn  # so the law below is not empty
    refused = frozenset({target})
    assert all(normalise(phrase(ENTRY, random.Random(i), refused)) != target for i in range(500))


def test_phrasings_vary_and_are_never_empty() -> None:
    rng = random.Random(1)
    drawn = [phrase(ENTRY, rng, frozenset()) for _ in range(300)]
    assert len(set(drawn)) > 200
    assert all(text.strip() for text in drawn)


def test_same_random_stream_same_phrasing() -> None:
    assert phrase(ENTRY, random.Random(7), frozenset()) == phrase(ENTRY, random.Random(7), frozenset())


def test_synonyms_keep_the_question_mark() -> None:
    swapped = swap_synonyms("what is the ttft?".split(), random.Random(0), 1.0)
    assert swapped[-1].endswith("?")
    assert "ttft?" not in swapped


def test_frames_keep_the_subject() -> None:
    for seed in range(20):
        assert swap_frame("What is prefill?", random.Random(seed)).endswith("prefill?")
        both = swap_frame("what is the difference between prefill and decode?", random.Random(seed))
        assert "prefill" in both and "decode" in both


def test_batches_resume_where_they_stopped(entries: list[Entry]) -> None:
    dialogues = small_dialogues(entries)
    unbroken = list(itertools.islice(dialogues.batches(0, 0), 6))
    number, index, _ = unbroken[3]
    resumed = list(itertools.islice(small_dialogues(entries).batches(number, index + 1), 2))
    for (_, _, one), (_, _, other) in zip(unbroken[4:], resumed, strict=True):
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.index, other.index)
        assert torch.equal(one.weight, other.weight)


def test_targets_are_the_next_tokens(entries: list[Entry]) -> None:
    batch = small_dialogues(entries).batches(0, 0).__next__()[2]
    counts = batch.weight > 0
    flat = batch.ids.flatten()
    assert torch.equal(flat[batch.index[counts] + 1], batch.target[counts])
    pad = Tokenizer.from_file(str(DEFAULT_PATH)).token_to_id(PAD)
    assert not (batch.target[counts] == pad).any()


def test_a_dialogue_has_the_form_of_the_chat_template(entries: list[Entry]) -> None:
    dialogues = small_dialogues(entries)
    dialogues.short_share = 0.0
    sample = dialogues.sample([0, 1], random.Random(2))
    text = dialogues.tokenizer.decode(sample.ids, skip_special_tokens=False)
    assert text.count(USER) == text.count(ASSISTANT) == 2
    assert text.endswith(f"{ASSISTANT}\n{entries[1].answer}{END}\n")
    learnt = [token for token, weight in zip(sample.ids, sample.weights, strict=True) if weight == 1.0]
    assert dialogues.tokenizer.decode(learnt).startswith(entries[0].answer)

"""Frames: what is written is read, in whatever pieces it comes; everything else is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.world import ARITHMETIC, request_of
from tests.tiers import examples
from twostroke.cost.explain.explanation import Advice, Cause, CauseKind, Explanation, Verdict
from twostroke.distributed.cluster.framing import MAX_FRAME_BYTES, FrameReader, WireError, encode
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing, prefix_keys
from twostroke.distributed.wire.frames import (
    Assignment,
    Beat,
    Cancel,
    Frame,
    Hello,
    KeySpan,
    PagesAhead,
    PagesAsked,
    PageSource,
    Proof,
    RecordAsked,
    RecordSent,
    Refused,
    ReplicaFacts,
    ReplicaLoad,
    RowsAsked,
    RowsSent,
    StepNews,
    TilesAhead,
    WireEnd,
    WirePrompt,
    WireSpan,
    WireStart,
    WireToken,
)
from twostroke.distributed.wire.translate import requests_of, wire_request
from twostroke.types.event import FinishedEvent
from twostroke.types.grammar import Grammar
from twostroke.types.images import Sheet
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import TokenLogprob
from twostroke.types.sampling.sampling_params import SamplingParams

LOGPROB = TokenLogprob(3, -0.25, ((3, -0.25), (4, -1.5)))


def explained(request_id: str) -> Explanation:
    cause = Cause(CauseKind.QUEUE, Verdict.START, 0.5, "behind q", ("q@1.8",))
    advice = (Advice("more places", 0.5),)
    return Explanation(
        request_id, Verdict.START, "It waited.", 1.0, 0.6, None, 9, 0, 2, {"queue_s": 0.5}, (cause,), advice, ""
    )


SHOWN = WireSpan(3, b"j" * 32, 2, 3, 20, 20, 0, 2, True, Sheet(1, 1, 2, 0, 0, 2, 2, 2, 2))
FRAMES: list[Frame] = [
    Hello(1, b"n" * 32),
    Proof(b"d" * 32),
    ReplicaFacts("a", "i", "m", ARITHMETIC, 16, 1000, 500, 300, 8, 0.001),
    Cancel(9),
    RowsAsked(4, b"k" * 32, 3, 9),
    RowsSent(4, 3, b"rows", b"digest"),
    RowsSent(4, over=True),
    PagesAsked(4, 0, 2, "", (5, 6, 7), (KeySpan(1, 2, b"k" * 32),)),
    PagesAhead(4, "", (5, 6, 7), PageSource("i", "h", 1), (KeySpan(1, 2, b"k" * 32),)),
    TilesAhead(4, (WireSpan(1, b"k" * 32, 1, 2, 20, 20, 0, 2, False), SHOWN)),
    RecordAsked(9, "g"),
    RecordSent(9, None),
    RecordSent(9, explained("r@1.9")),
    Refused(3, "too long", 2.5),
    Beat(ReplicaLoad(running=2), draining=True),
    Beat(ReplicaLoad(disk_waits=True, disk_written_bytes=1 << 40, disk_read_bytes=3)),
    StepNews(
        ReplicaLoad(waiting=1),
        (
            WireStart(1, 0.5, 16),
            WireStart(3, 0.5, 32, 16, 0.25),
            WirePrompt(1, (LOGPROB,)),
            WireToken(1, 7, LOGPROB),
            WireToken(2, 8),
            WireToken(2, 9, None, (6.5, -0.25)),
            WireEnd(1, FinishedEvent("r@1.1", FinishReason.STOP, 2.5, 20, 4, 16, 0, 1.5, 7, LOGPROB)),
        ),
    ),
]


def full_request() -> Request:
    params = SamplingParams(
        temperature=0.5,
        logit_bias={3: 1.5},
        stop=("a", "b"),
        logprobs=3,
        seed=2**63,
        bad_token_ids=((1, 2), (3,)),
        mirostat=2,
        samplers=None,
        dry_multiplier=0.5,
        dry_breaker_ids=(4, 5),
    )
    made = Request("r", "g", (1, 2, 3), params, 2**62, 9, frozenset({1, 2}), 5.0, "salt", 1, speculate="ngram")
    return replace(made, resumed_memory=(1.5,))


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    assert list(FrameReader().feed(encode(frame))) == [frame]


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30))
def test_pieces_do_not_matter(sizes: list[int]) -> None:
    data, reader, read = b"".join(map(encode, FRAMES)), FrameReader(), []
    for size in [*sizes, len(data)]:
        read += reader.feed(data[:size])
        data = data[size:]
    assert read == FRAMES


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(FRAMES) - 1), st.integers(0, 60))
def test_noise_is_an_error_and_nothing_else(noise: bytes, which: int, place: int) -> None:
    good = encode(FRAMES[which])
    damaged = good[:place] + noise + good[place + len(noise) :]
    try:
        list(FrameReader().feed(damaged))
    except WireError as error:
        assert "frame" in str(error)


def test_a_huge_frame_is_refused_by_its_length_alone() -> None:
    with pytest.raises(WireError, match="is announced"):
        list(FrameReader().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "little")))
    with pytest.raises(WireError, match="is announced"):
        list(FrameReader(4096).feed((4097).to_bytes(4, "little")))


def test_values_that_no_request_may_have_are_refused() -> None:
    frame = encode(Assignment(1, wire_request(full_request(), 6.0)))
    wrong = frame.replace(b"\xcb\x3f\xe0" + bytes(6), b"\xcb\x40\x80" + bytes(6))  # temperature 0.5 becomes 512
    assert wrong != frame
    with pytest.raises(WireError, match="temperature"):
        list(FrameReader().feed(wrong))


def test_a_request_survives_the_way() -> None:
    request = full_request()
    (work,) = FrameReader().feed(encode(Assignment(4, wire_request(request, 6.0), (7, 8))))
    assert isinstance(work, Assignment) and work.request.arrival_s == -1.0
    found = requests_of(work, ["other"], [None], 50.0)[0]
    same = ("group_id", "prompt_token_ids", "params", "seed", "max_tokens", "end_token_ids", "cache_salt", "priority")
    assert all(getattr(found, name) == getattr(request, name) for name in (*same, "speculate"))
    assert (found.request_id, found.resumed_token_ids, found.arrival_s) == ("other", (7, 8), 49.0)


def test_a_grammar_survives_the_way() -> None:
    params = SamplingParams(grammar=Grammar.regex("a+b"))
    request = replace(request_of(random.Random(0), "r", 0.0), params=params)
    (work,) = FrameReader().feed(encode(Assignment(1, wire_request(request, 0.0))))
    assert isinstance(work, Assignment) and work.request.params.grammar == Grammar.regex("a+b")


def member(name: str, **load: float) -> FleetMember:
    return FleetMember(name, name, 8, ReplicaLoad(**{"token_s": 0.001, **load}))  # type: ignore[arg-type]


def test_the_router_takes_the_least_predicted_seconds() -> None:
    asked = Placing(100, prefix_keys("", range(100), 10), 10)
    router = LeastSeconds()
    chosen = router.rank(asked, [member("a", prefill_tokens=500), member("b")])
    assert chosen.name == "b"
    router.remember(asked, chosen)
    # b has the prefix now, so it is chosen again unless the others are much quicker
    assert router.rank(asked, [member("a"), member("b", prefill_tokens=80)]).name == "b"
    assert router.rank(asked, [member("a"), member("b", prefill_tokens=2000)]).name == "a"


def test_a_full_replica_and_a_forgotten_prefix() -> None:
    asked = Placing(100, prefix_keys("", range(100), 10), 10)
    router, first, second = LeastSeconds(), member("a"), member("b")
    first.streams = 8
    assert router.rank(asked, [first, second]) is second
    router.remember(asked, second)
    router.forget(second)
    second.load = ReplicaLoad(token_s=0.001, prefill_tokens=1)
    first.streams = 0
    assert router.rank(asked, [first, second]) is first


def test_prefixes_of_other_salts_are_others() -> None:
    assert prefix_keys("a", range(32), 16) != prefix_keys("b", range(32), 16)
    assert prefix_keys("a", range(40), 16)[:2] == prefix_keys("a", range(32), 16)

"""A replica that encodes images for others, and prompts with images that are split between replicas: the bits are those
of one engine.

The tests use real sockets. Counters show that rows and pages come from other replicas; a replica computes what does not
come.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_images_of_replicas import OPTIONS, replica
from tests.cluster.test_kill_transfer import Replica, join
from tests.vision.folders import picture, smolvlm, user, write_family
from twostroke import LLM
from twostroke.assembly.images.encoder_heart import EncoderHeart
from twostroke.assembly.processes.replica import BuiltReplica
from twostroke.distributed.cluster.front import FrontStepper
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.distributed.replica import page_calls, row_feeds
from twostroke.distributed.wire.frames import ReplicaRole
from twostroke.types.errors import ConfigError
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.request import FinishReason, Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS

CHATS: list[list[Any]] = [
    ["Before ", picture(90, 60), " after, and then some words so that a page follows the image."],
    [picture(33, 33, 3), "and", picture(64, 50), "which? Say what stands where, and why it does."],
    ["No image, but words that go on and on, so that there are pages."],
]
OUTPUT, WAIT_S = 20, 120.0
Answers = list[list[Any]]


def family_folder(name: str, folder: Path) -> Path:
    """The folder of SmolVLM, or of another family."""
    if name == "smolvlm":
        smolvlm(folder)
    else:
        write_family(name, folder)
    return folder


def requests(folder: Path) -> list[Request]:
    """One request for each chat, with its images."""
    made = []
    with LLM(str(folder), **{**OPTIONS, "max_step_tokens": 512}) as llm:
        for number, chat in enumerate(CHATS):
            rendered = llm._rendered([user(*chat)], False)
            ids = tuple(llm.tokenizer.encode_rendered(rendered.text, quoted=rendered.quoted))
            spans = () if rendered.pictures is None else rendered.pictures.spans(ids)
            params = SamplingParams(temperature=0.9, logprobs=1, seed=number)
            made.append(Request("", "", ids, params, number, OUTPUT, frozenset(), 0.0, images=spans))
    return made


def front_of(addresses: Sequence[tuple[str, int]], secret: str | None) -> FrontStepper:
    """A front that splits prompts where it can and has all images encoded elsewhere."""
    front = FrontStepper(addresses, PAGE_TOKENS, secret_key(secret), time.monotonic, print, lambda text: None)
    front.fleet = ReplicaFleet(PAGE_TOKENS, sooner=lambda elsewhere_s, here_s: True)
    join(front, len(addresses))
    return front


def answers(front: FrontStepper, asked: Sequence[Request], number: int = 0, salt: str = "") -> Answers:
    """The tokens and log probabilities of each request, where the requests come one after the other."""
    found: Answers = []
    for place, request in enumerate(asked):
        name, told, ended = f"{number}/{place}", list[Any](), False
        own = replace(request, request_id=name, group_id=name, arrival_s=time.monotonic(), cache_salt=salt)
        front.fleet.add(own)
        until_s = time.monotonic() + WAIT_S
        while not ended:
            assert time.monotonic() < until_s, front.states()
            front._exchange()
            events, front._early = front._early, []
            told += [(each.token_id, each.logprob) for each in events if isinstance(each, TokenEvent)]
            for each in events:
                if isinstance(each, FinishedEvent):
                    assert each.reason is FinishReason.LENGTH, each
                    ended = True
        found.append(told)
    return found


def encoded_by(built: BuiltReplica) -> int:
    """The number of pieces of encodes that this replica has computed."""
    heart = built.heart
    return (heart.kept if isinstance(heart, EncoderHeart) else heart.images.kept).num_pieces


@pytest.fixture(scope="module", params=["smolvlm", "qwen3-vl", "gemma3", "llava-next"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Request]]:
    folder = family_folder(request.param, tmp_path_factory.mktemp(request.param))
    return folder, requests(folder)


@pytest.fixture(scope="module")
def expected(case: tuple[Path, list[Request]]) -> Answers:
    folder, asked = case
    with replica(folder, "alone") as (_, address):
        front = front_of([address], "s")
        made = answers(front, asked)
        front.close()
    return made


def test_rows_of_another_replica_give_the_same_bits(case: tuple[Path, list[Request]], expected: Answers) -> None:
    folder, asked = case
    with ExitStack() as stack:
        encoder, encodes = stack.enter_context(replica(folder, "e", "encode"))
        text, computes = stack.enter_context(replica(folder, "t"))
        front = front_of([encodes, computes], "s")
        assert answers(front, asked) == expected
        assert encoded_by(text) == 0 < encoded_by(encoder), "all rows came from the other replica"
        first = encoded_by(encoder)
        assert answers(front, asked, 1) == expected and encoded_by(encoder) == first
        encoder.replica.stop()
        assert answers(front, asked, 2, salt="other") == expected, "rows that are kept"
        front.close()


def test_a_lost_encoder_and_rows_that_are_not_kept(
    case: tuple[Path, list[Request]], expected: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are gone do not come back, so the wait for them is short here."""
    monkeypatch.setattr(row_feeds, "WAIT_S", 0.02)
    folder, asked = case
    with ExitStack() as stack:
        encoder, encodes = stack.enter_context(replica(folder, "e", "encode", image_cache="1"))
        text, computes = stack.enter_context(replica(folder, "t", image_cache="1"))
        front = front_of([encodes, computes], "s")
        assert answers(front, asked, 0) == expected
        encoder.replica.stop()
        monkeypatch.setattr(page_calls, "ANSWER_S", 0.1)  # it answers no more: each tile of each image asks it
        assert answers(front, asked, 1, salt="other") == expected and encoded_by(text) > 0
        front.close()


@pytest.mark.parametrize("roles", [("prefill", "decode"), ("prefill", "decode", "encode")], ids=" ".join)
@pytest.mark.parametrize("name", ["smolvlm", "qwen3-vl"])
def test_a_split_prompt_with_images_has_the_bits_of_one_engine(
    tmp_path: Path, name: str, roles: tuple[ReplicaRole, ...]
) -> None:
    folder = family_folder(name, tmp_path)
    asked = requests(folder)
    with ExitStack() as stack:
        _, whole = stack.enter_context(replica(folder, "alone"))
        alone = front_of([whole], "s")
        wanted = answers(alone, asked)
        alone.close()
        made = [stack.enter_context(replica(folder, role, role)) for role in roles]
        front = front_of([address for _, address in made], "s")
        assert answers(front, asked) == wanted and front.fleet.handed_over == len(asked)
        decoder = made[1][0]
        cached = sum(len(each.prompt_token_ids) // PAGE_TOKENS * PAGE_TOKENS for each in asked)
        assert decoder.heart.scheduler.gauges().prefix_hit_tokens >= cached, "the pages came from the other replica"
        assert encoded_by(decoder) == 0, "its pages hold all image rows"
        assert (encoded_by(made[0][0]) == 0) is ("encode" in roles)
        front.close()


def test_a_model_that_reads_no_images_cannot_have_the_role(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    with pytest.raises(ConfigError, match=r"--role encode.*reads no images.*Leave --role out"):
        with replica(tmp_path, "e", "encode", images="off"):
            raise AssertionError


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[tuple[Path, list[Replica], Replica]]:
    """One replica for all roles, and one of each role, as processes."""
    smolvlm(tmp_path)
    more = ("--weights", "f32", "--context", "1024")
    with ExitStack() as stack:
        made = []
        for role in ("prefill", "decode", "encode", "both"):
            made.append(Replica(role, str(tmp_path), 512, more))
            stack.callback(made[-1].close)
        yield tmp_path, made[:3], made[3]


@pytest.mark.slow
def test_processes_that_are_killed_lose_no_answer(processes: tuple[Path, list[Replica], Replica]) -> None:
    folder, found, whole = processes
    asked = requests(folder)
    alone = front_of([("127.0.0.1", whole.port)], None)
    wanted = answers(alone, asked)
    alone.close()
    front = front_of([("127.0.0.1", each.port) for each in found], None)
    assert answers(front, asked, 0) == wanted and front.fleet.handed_over == len(asked)
    for number, victim in enumerate((found[2], found[0], found[1]), 1):
        victim.kill()
        assert answers(front, asked, number, salt=f"round {number}") == wanted
        join(front, len(found))
    front.close()

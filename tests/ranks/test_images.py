"""Models that read images over ranks and stages: real processes give the bits of one, chunked, preempted, from cached
pages, with image rows that were kept or are computed again. One process encodes, and the others get rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.ranks.test_processes import SOURCE, children
from tests.vision.folders import picture, smolvlm, user, write_family
from tests.vision.test_exactness import bits, opened
from twostroke import LLM
from twostroke.assembly.find import find_model
from twostroke.assembly.processes.ranks import RankPlaces, room_beside
from twostroke.assembly.settings.engine_settings import ImageSettings
from twostroke.assembly.settings.env import Machine, MemoryLimit, process_environment
from twostroke.engine.core import STEP_FAULT
from twostroke.ops.passes.division import TENSOR, Division
from twostroke.runner.images.image_encoder import ImageEncoder
from twostroke.types.errors import BackendError, ConfigError, EngineStopped
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

PARAMS = SamplingParams(max_tokens=12, temperature=0.8, seed=3, logprobs=2, prompt_logprobs=0, ignore_eos=True)
CONVERSATIONS: dict[str, list[Any]] = {
    "one image": ["Before ", (50, 20), " after."],
    "an image alone": [(90, 31)],
    "two images": [(20, 60), "and", (33, 33), "which?"],
    "none": ["Just text, and some more of it."],
}
WAYS = {"ranks": {"tensor_parallel": "2"}, "stages": {"pipeline_parallel": "2"}}
FAMILIES = ("smolvlm", "qwen3-vl", "gemma3", "gemma4-small", "qwen3.5")
"""Tiles; added rows and three places; rows that see each other; a filler in place of ids; states."""
Bits = tuple[Any, ...]
Write = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Write:
    @cache
    def written(family: str) -> Path:
        made: Path = tmp_path_factory.mktemp(family)
        smolvlm(made) if family == "smolvlm" else write_family(family, made)
        return made

    return written


@pytest.fixture(scope="module")
def alone(folder: Write) -> Callable[[str], list[Bits]]:
    @cache
    def computed(family: str) -> list[Bits]:
        with opened(folder(family)) as llm:
            return [told(llm, prompt_of(llm, name, salt=name)) for name in CONVERSATIONS]

    return computed


def prompt_of(llm: LLM, name: str, params: SamplingParams = PARAMS, salt: str = "") -> Prompt:
    parts = [picture(*part) if isinstance(part, tuple) else part for part in CONVERSATIONS[name]]
    rendered = llm._rendered([user(*parts)], False)
    ids = tuple(llm.tokenizer.encode_rendered(rendered.text, quoted=rendered.quoted))
    images = () if rendered.pictures is None else rendered.pictures.spans(ids)
    return Prompt(ids, params, images=images, cache_salt=salt)


def told(llm: LLM, prompt: Prompt) -> Bits:
    (output,) = llm.engine.generate([prompt])
    return *bits(output), output.prompt_logprobs


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", FAMILIES)
def test_two_processes_give_the_bits_of_one(
    family: str, way: str, folder: Write, alone: Callable[[str], list[Bits]]
) -> None:
    """Together and in chunks; then from cached pages, next to rows that were dropped."""
    options = {"max_step_tokens": 45, "max_sequences": 3, "image_cache": "1"}
    with opened(folder(family), **WAYS[way], **options) as llm:
        (member,) = children()
        prompts = [prompt_of(llm, name) for name in CONVERSATIONS]
        for _ in range(2):
            outputs = llm.engine.generate(prompts)
            found = [(*bits(output), output.prompt_logprobs) for output in outputs]
            assert found == alone(family)
        assert "rank" in Path(f"/proc/{member}/cmdline").read_text().split("\0")
        assert encoded(llm) > 0
        plain = [replace(prompt_of(llm, name), params=replace(PARAMS, prompt_logprobs=None)) for name in CONVERSATIONS]
        for _ in range(2):
            outputs = llm.engine.generate(plain)
            assert [bits(output) for output in outputs] == [each[:2] for each in alone(family)]
        assert any(output.num_cached_tokens for output in outputs)


def encoded(llm: LLM) -> int:
    images = llm._built.images
    assert images is not None
    return images.kept._encoder.num_encoded


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", ["smolvlm", "qwen3-vl"])
def test_the_same_bits_after_preemption(family: str, way: str, folder: Write) -> None:
    names, params = ("one image", "two images", "one image", "an image alone") * 2, replace(PARAMS, max_tokens=70)
    with opened(folder(family), context=256) as own:
        each = {name: prompt_of(own, name, params) for name in set(names)}
        whole = {name: told(own, prompt) for name, prompt in each.items()}
    pools = {"ranks": {"smolvlm": "85KB", "qwen3-vl": "140KB"}, "stages": {"smolvlm": "170KB", "qwen3-vl": "150KB"}}
    options = {"context": 256, "kv_memory": pools[way][family], "max_step_tokens": 40, "image_cache": "1"}
    with opened(folder(family), **WAYS[way], **options) as own:
        outputs = own.engine.generate([replace(each[name], cache_salt=str(n)) for n, name in enumerate(names)])
        assert [(*bits(output), output.prompt_logprobs) for output in outputs] == [whole[name] for name in names]
        assert sum(output.completions[0].num_preemptions for output in outputs) > 0


def test_four_stages_take_added_rows_where_their_layers_are(folder: Write, alone: Callable[[str], list[Bits]]) -> None:
    """The rows of the second layer's end are added in the second of four stages."""
    found = find_model(str(folder("qwen3-vl")), {"pipeline_parallel": "4", "context": 512})
    assert found.places is not None
    parts = [found.places.division.part(found.spec, stage).program for stage in range(4)]
    assert len(parts[0].given) < 3 and sum(len(part.given) for part in parts) == 3
    with opened(folder("qwen3-vl"), pipeline_parallel="4") as llm:
        assert [told(llm, prompt_of(llm, name)) for name in CONVERSATIONS] == alone("qwen3-vl")


def test_a_member_at_an_address_needs_no_file_of_the_encoder(
    folder: Write, alone: Callable[[str], list[Bits]], tmp_path: Path
) -> None:
    """It learns from its leader where rows come in. Its own folder has no settings of a processor."""
    (tmp_path / "bare").mkdir()
    for path in folder("qwen3-vl").iterdir():
        if path.name != "preprocessor_config.json":
            os.link(path, tmp_path / "bare" / path.name)
    command = [sys.executable, "-P", "-m", "twostroke", "rank", str(tmp_path / "bare")]
    command += ["--threads", "1", "--listen", "127.0.0.1:0"]
    environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
    member = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert member.stdout is not None
        address = member.stdout.readline().split("listens on ")[1].split()[0]
        with opened(folder("qwen3-vl"), tensor_parallel="2", rank_addresses=address) as llm:
            assert [told(llm, prompt_of(llm, name)) for name in CONVERSATIONS] == alone("qwen3-vl")
    finally:
        member.kill()
        member.wait()


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_dies_in_an_encode_ends_the_engine_by_its_name(
    way: str, folder: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[object] = []
    with opened(folder("smolvlm"), **WAYS[way]) as llm:
        (member,) = children()
        group, plain = group_of(llm), ImageEncoder.advance

        def dying(self: ImageEncoder, *words: Any, **named: Any) -> Any:
            pieces.append(None)
            if len(pieces) == 2:
                os.kill(member, signal.SIGKILL)
                with group._changed:
                    assert group._changed.wait_for(lambda: not group.whole, PATIENCE_S)
            return plain(self, *words, **named)

        monkeypatch.setattr(ImageEncoder, "advance", dying)
        number = 0 if way == "stages" else 1
        with pytest.raises(EngineStopped, match=f"rank was lost.*Rank {number} has ended.*SIGKILL"):
            for _ in range(2):  # the requests of the step fail first
                llm.engine.generate([prompt_of(llm, "two images")])
        assert len(pieces) == 2, "an encode goes on for nobody"


def group_of(llm: LLM) -> Any:
    """The group of the leader."""
    images = llm._built.images
    assert images is not None
    return images.kept.before_piece.__self__  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", WAYS)
def test_an_encode_that_fails_ends_its_request_and_no_other(
    way: str, folder: Write, alone: Callable[[str], list[Bits]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder("smolvlm"), **WAYS[way]) as llm:
        with monkeypatch.context() as patched:

            def broken(*words: object, **named: object) -> None:
                raise BackendError("no")

            patched.setattr(ImageEncoder, "advance", broken)
            (output,) = llm.engine.generate([prompt_of(llm, "one image")])
            assert output.completions[0].error == STEP_FAULT
        assert [told(llm, prompt_of(llm, name)) for name in CONVERSATIONS] == alone("smolvlm")


@pytest.mark.parametrize("way", WAYS)
def test_an_encode_that_is_interrupted_leaves_an_engine_that_goes_on(
    way: str, folder: Write, alone: Callable[[str], list[Bits]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder("smolvlm"), **WAYS[way]) as llm:
        pieces, plain = [0], ImageEncoder.advance

        def interrupted(self: ImageEncoder, *words: Any, **named: Any) -> Any:
            pieces[0] += 1
            if pieces[0] == 30:  # in the second tile; with stages, the first one's plan is in flight
                raise KeyboardInterrupt
            return plain(self, *words, **named)

        monkeypatch.setattr(ImageEncoder, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.engine.generate([prompt_of(llm, "two images")])
        assert [told(llm, prompt_of(llm, name)) for name in CONVERSATIONS] == alone("smolvlm")


def test_only_the_process_that_encodes_has_the_encoders_memory(folder: Write) -> None:
    path = str(folder("smolvlm"))
    usual = {"context": 512, "kv_memory": "20MB", "tensor_parallel": "2"}
    off, on = (find_model(path, {**usual, "images": word}).resolver.resolved() for word in ("off", "on"))
    assert on.reason_of(ImageSettings.images).endswith("; rank 0 encodes them")
    assert on.memory.weight_bytes > off.memory.weight_bytes
    assert on.memory.buffer_bytes > off.memory.buffer_bytes + on.images.image_cache
    with pytest.raises(ConfigError, match="not possible over several ranks"):
        find_model(path, {**usual, "speculate": "mtp"})


def test_the_processes_of_a_machine_share_what_the_encoder_leaves(tmp_path: Path) -> None:
    """The encoder takes 2 of 10 GB, and its process needs 1.5 more than the other one."""
    machine = Machine(4, 10_000_000_000, tmp_path).share(2)
    here, elsewhere = (RankPlaces(Division(TENSOR, 2), addresses) for addresses in ((), (("10.0.0.1", 1),)))
    assert room_beside(here, machine, 2_000_000_000, 1_500_000_000).available_bytes == 4_000_000_000 + 1_500_000_000
    assert room_beside(elsewhere, machine, 2_000_000_000, 1_500_000_000) is machine


def test_a_limit_of_each_process_holds_for_the_one_that_encodes(tmp_path: Path) -> None:
    """Each of two processes may use 5 of 10 GB. With an encoder of 2 GB, the larger process may use 5.5 GB."""
    here, share = RankPlaces(Division(TENSOR, 2)), "one of 2 ranks' share of 10 GB"

    def room(limit_bytes: int, encoder_bytes: int, more_bytes: int) -> tuple[int, str]:
        together, alone = MemoryLimit(10_000_000_000, "of 10 GB"), MemoryLimit(limit_bytes, "`ulimit -v`")
        free_bytes, words = min(together, alone)
        whole = Machine(4, free_bytes, tmp_path, memory_source=words, together=together, alone=alone)
        found = room_beside(here, whole.share(2), encoder_bytes, more_bytes)
        return found.available_bytes, found.memory_source

    assert room(4_900_000_000, 2_000_000_000, 1_500_000_000) == (4_900_000_000, "`ulimit -v`")
    assert room(5_200_000_000, 2_000_000_000, 1_500_000_000) == (5_200_000_000, "`ulimit -v`")
    assert room(6_000_000_000, 2_000_000_000, 1_500_000_000) == (5_500_000_000, share)
    assert room(4_000_000_000, 6_000_000_000, 500_000_000) == (2_500_000_000, share), "the encoder leaves 4 of 10 GB"

"""Every whole family, from files of images to log probabilities, compared with transformers; and the exactness law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.tiers import TIER, fewer, thinned
from tests.vision.families.family import Family, template_text
from tests.vision.folders import FAMILIES, picture, user
from tests.vision.test_exactness import bits, opened
from twostroke import LLM
from twostroke.engine.scheduler.limits.limits import StepLoad
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.types.errors import InvalidRequest
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

BAR = 1e-4
"""The largest error, as a share of the range of log probabilities."""
PARAMS = SamplingParams(max_tokens=8, temperature=0.0, logprobs=0, prompt_logprobs=0, ignore_eos=True)
DRAWN = SamplingParams(max_tokens=12, temperature=0.8, seed=3, logprobs=2, ignore_eos=True)
CONVERSATIONS: dict[str, list[Any]] = {
    "one image": ["Before ", (50, 20), " after."],
    "an image first": [(32, 32), "What is this?"],
    "an image alone": [(90, 31)],
    "two images": [(20, 60), "and", (33, 33), "which?"],
    "three images": ["First ", (40, 40), (64, 32), "then", (30, 70), "Compare."],
    "none": ["Just text."],
}


def test_the_names_that_tests_take_without_a_judge_are_those_of_the_families() -> None:
    from tests.vision.families import registry as families

    assert tuple(families.FAMILIES) == FAMILIES


class Opened:
    """A family's folder, judge and model."""

    def __init__(self, family: Family, folder: Path) -> None:
        self.family, self.folder = family, folder
        self.judge = family.write(folder)


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    from tests.vision.families import registry as families

    return Opened(families.FAMILIES[request.param], tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llm(made: Opened) -> Iterator[LLM]:
    options: dict[str, Any] = {"weights": "f32", "kv_format": "f32", "max_step_tokens": 48, "max_sequences": 8}
    with LLM(str(made.folder), context=1024, **options) as found:
        yield found


def parts_of(name: str) -> list[Any]:
    return [picture(*part) if isinstance(part, tuple) else part for part in CONVERSATIONS[name]]


def judged(made: Opened, ids: list[int], images: list[Image.Image]) -> np.ndarray:
    """The judge's log probabilities (positions, vocabulary)."""
    import torch

    given = made.family.inputs(images)
    types = torch.tensor([[int(each == made.family.placeholder) for each in ids]])
    if given and made.family.types:
        given[made.family.types] = types
        if made.family.masks is not None:
            given["attention_mask"] = made.family.masks(made.judge, types)
    with torch.no_grad():
        return torch.log_softmax(made.judge(torch.tensor([ids]), **given).logits[0].double(), -1).numpy()


def compare(llm: LLM, made: Opened, messages: list[Any], images: list[Image.Image]) -> None:
    """Compares the prompt's log probabilities and those of the answer, token by token."""
    output = llm.chat(messages, PARAMS)
    prompt = list(output.prompt_token_ids)
    ids = prompt + list(output.completions[0].token_ids)
    law = judged(made, ids, images)
    found = [each.logprob for each in output.prompt_logprobs or ()]
    found += [each.logprob for each in output.completions[0].logprobs or ()]
    assert len(found) == len(ids) - 1
    error = np.abs(np.array(found) - law[np.arange(len(found)), ids[1:]]).max()
    assert error < BAR * (law.max() - law.min())
    top = np.sort(law[len(prompt) - 1 : -1], axis=1)[:, -2:]
    clear = top[:, 1] - top[:, 0] > 1e-3
    assert np.array_equal(law[len(prompt) - 1 : -1].argmax(1)[clear], np.array(ids[len(prompt) :])[clear])


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_log_probabilities_are_those_of_transformers(llm: LLM, made: Opened, name: str) -> None:
    parts = parts_of(name)
    compare(llm, made, [user(*parts)], [part for part in parts if isinstance(part, Image.Image)])


def test_images_of_earlier_turns_stay(llm: LLM, made: Opened) -> None:
    first, second = picture(40, 40), picture(70, 30, 1)
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
    compare(llm, made, [user(first, "This one."), answer, user("And this?", second)], [first, second])


@pytest.mark.parametrize("size", [(1, 1), (1, 150), (27, 28), (32, 32), (33, 32), (400, 300), (5, 900)], ids=str)
def test_prompts_are_those_of_the_judges_processor(llm: LLM, made: Opened, size: tuple[int, int]) -> None:
    image = picture(*size)
    try:
        (text,) = made.family.texts(made.family.processed([image]))
    except ValueError:  # the judge computes a side of 0 for this image
        with pytest.raises(InvalidRequest, match="narrow"):
            llm.chat([user("See ", image, "!")])
        return
    output = llm.chat([user("See ", image, "!")], SamplingParams(max_tokens=1, temperature=0.0))
    assert list(output.prompt_token_ids) == made.family.token_ids(template_text(["See ", text, "!"]))


def prompt_of(llm: LLM, name: str) -> Prompt:
    rendered = llm._rendered([user(*parts_of(name))], False)
    ids = tuple(llm.tokenizer.encode_rendered(rendered.text, quoted=rendered.quoted))
    return Prompt(ids, DRAWN, images=() if rendered.pictures is None else rendered.pictures.spans(ids))


@pytest.fixture(scope="module")
def alone(made: Opened) -> list[tuple[Any, ...]]:
    """Each conversation on an engine that has computed no other."""
    found = []
    for name in CONVERSATIONS:
        with opened(made.folder) as own:
            found.append(bits(own.engine.generate([prompt_of(own, name)])[0]))
    return found


@pytest.mark.parametrize(
    "options",
    [{"threads": 2}, {"max_step_tokens": 40}, {"max_step_tokens": 45, "max_sequences": 3, "image_cache": "1"}],
    ids=str,
)
def test_the_same_bits_among_others(made: Opened, alone: list[tuple[Any, ...]], options: dict[str, Any]) -> None:
    with opened(made.folder, **options) as own:
        prompts = [prompt_of(own, name) for name in CONVERSATIONS]
        assert [bits(output) for output in own.engine.generate(prompts)] == alone


def test_the_same_bits_from_cached_pages(made: Opened, alone: list[tuple[Any, ...]]) -> None:
    with opened(made.folder) as own:
        found = [own.engine.generate([prompt_of(own, name)])[0] for name in (*CONVERSATIONS, *CONVERSATIONS)]
        assert [bits(output) for output in found] == [*alone, *alone]
        assert all(output.num_cached_tokens for output in found[len(alone) : -1])


def test_the_same_bits_after_preemption(made: Opened) -> None:
    if not made.family.pool:
        pytest.skip("windows admit one request at a time here; gemma3-wide and llama4-wide are preempted")
    names, params = ("one image", "two images", "one image", "an image first") * 2, replace(DRAWN, max_tokens=70)
    with opened(made.folder, context=256) as own:
        each = {name: replace(prompt_of(own, name), params=params) for name in set(names)}
        alone = {name: bits(own.engine.generate([prompt])[0]) for name, prompt in each.items()}
    with opened(made.folder, context=256, kv_memory=made.family.pool, max_step_tokens=40, image_cache="1") as own:
        prompts = [replace(each[name], params=params, cache_salt=str(n)) for n, name in enumerate(names)]
        outputs = own.engine.generate(prompts)
        assert [bits(output) for output in outputs] == [alone[name] for name in names]
        assert sum(output.completions[0].num_preemptions for output in outputs) > 0


def test_without_images_the_bits_are_those_of_the_text_model(made: Opened, alone: list[tuple[Any, ...]]) -> None:
    with opened(made.folder, images="off") as own:
        text = list(CONVERSATIONS).index("none")
        assert bits(own.engine.generate([prompt_of(own, "none")])[0]) == alone[text]


class CutAt:
    """Satisfies `limits.Limiter`: a chunk of the prompt ends at this place."""

    place = 0

    def limit(self, sequence: Sequence, wanted_tokens: int, step: StepLoad) -> int:
        ends_after = sequence.computed < self.place < sequence.computed + wanted_tokens
        return self.place - sequence.computed if ends_after else wanted_tokens


def test_the_same_bits_with_a_chunk_that_ends_at_each_place(made: Opened) -> None:
    """Where rows of an image see each other, the chunk ends before or after them."""
    with opened(made.folder, max_step_tokens=256, image_cache="1MB") as own:
        prompt, cut = prompt_of(own, "three images"), CutAt()
        prompt = replace(prompt, params=replace(DRAWN, max_tokens=3))
        alone = bits(own.engine.generate([prompt])[0])
        scheduler, more = own._built.scheduler, 0
        scheduler.limiters = (cut, *scheduler.limiters)
        places = list(range(1, len(prompt.token_ids)))
        for cut.place in places if TIER.daily else thinned(places, made.family.name, fewer(40, 8)):
            steps = scheduler._num_steps
            salted = replace(prompt, cache_salt=str(cut.place))
            assert bits(own.engine.generate([salted])[0]) == alone, cut.place
            more += scheduler._num_steps - steps > 3
        assert more > 0, "one step for the prompt and two for the tokens after the first"

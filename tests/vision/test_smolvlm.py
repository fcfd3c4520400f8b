"""SmolVLM whole, from files of images to log probabilities, compared with transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.vision.folders import ROWS, expected_text, image_token, picture, processed, token_ids, user
from twostroke import LLM
from twostroke.types.sampling.sampling_params import SamplingParams

BAR = 1e-4
"""The largest error, as a share of the range of log probabilities."""
PARAMS = SamplingParams(max_tokens=8, temperature=0.0, logprobs=0, prompt_logprobs=0, ignore_eos=True)


@pytest.fixture(scope="module")
def judge(folder: Path) -> Any:
    from tests.vision.smolvlm import make_smolvlm

    return make_smolvlm(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smolvlm")


@pytest.fixture(scope="module")
def llm(judge: Any, folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), weights="f32", kv_format="f32", context=1024, max_step_tokens=48, max_sequences=8) as made:
        yield made


def judged(judge: Any, ids: list[int], images: list[Image.Image]) -> np.ndarray:
    """The judge's log probabilities (positions, vocabulary)."""
    import torch

    given = {"pixel_values": torch.tensor(processed(images)[0])} if images else {}
    with torch.no_grad():
        return torch.log_softmax(judge(torch.tensor([ids]), **given).logits[0].double(), -1).numpy()


def compare(llm: LLM, judge: Any, messages: list[Any], images: list[Image.Image]) -> None:
    """Compares the prompt's log probabilities and those of the answer, token by token."""
    output = llm.chat(messages, PARAMS)
    prompt = list(output.prompt_token_ids)
    ids = prompt + list(output.completions[0].token_ids)
    law = judged(judge, ids, images)
    found = [each.logprob for each in output.prompt_logprobs or ()]
    found += [each.logprob for each in output.completions[0].logprobs or ()]
    assert len(found) == len(ids) - 1
    error = np.abs(np.array(found) - law[np.arange(len(found)), ids[1:]]).max()
    assert error < BAR * (law.max() - law.min())
    top = np.sort(law[len(prompt) - 1 : -1], axis=1)[:, -2:]
    clear = top[:, 1] - top[:, 0] > 1e-3
    assert np.array_equal(law[len(prompt) - 1 : -1].argmax(1)[clear], np.array(ids[len(prompt) :])[clear])


CONVERSATIONS = {
    "one image": ["Before ", (50, 20), " after."],
    "an image first": [(32, 32), "What is this?"],
    "an image alone": [(90, 31)],
    "two images": [(20, 60), "and", (33, 33), "which?"],
    "three images in a row": [(10, 10), (64, 32), (1, 40), "Compare."],
    "none": ["Just text."],
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_log_probabilities_are_those_of_transformers(llm: LLM, judge: Any, name: str) -> None:
    parts = [picture(*part) if isinstance(part, tuple) else part for part in CONVERSATIONS[name]]
    compare(llm, judge, [user(*parts)], [part for part in parts if isinstance(part, Image.Image)])


def test_images_of_earlier_turns_stay(llm: LLM, judge: Any) -> None:
    first, second = picture(40, 40), picture(70, 30, 1)
    messages = [
        user(first, "This one."),
        {"role": "assistant", "content": "Yes."},
        user("And this?", second),
    ]
    compare(llm, judge, messages, [first, second])


@pytest.mark.parametrize("size", [(1, 1), (1, 200), (27, 28), (32, 32), (33, 32), (400, 300), (3, 900)])
def test_prompts_are_those_of_the_judges_processor(llm: LLM, size: tuple[int, int]) -> None:
    image = picture(*size)
    _, rows, columns = processed([image])
    output = llm.chat([user("See ", image, "!")], SamplingParams(max_tokens=1, temperature=0.0))
    text = f"<|im_start|>User: See {expected_text(rows[0], columns[0])}!<end_of_utterance>\nAssistant:"
    assert list(output.prompt_token_ids) == token_ids(text)
    assert output.prompt_token_ids.count(image_token()) == ROWS * (rows[0] * columns[0] + 1)

"""A model that sees images on the emulated device. The processor encodes images, and the answers have the CPU's bits.

No device has run this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cuda.emulator.fake import controls, same_level
from tests.vision.folders import picture, user, write_family
from twostroke import LLM
from twostroke.assembly.find import find_model
from twostroke.types.errors import OutOfMemory
from twostroke.types.sampling.sampling_params import SamplingParams

PARAMS = SamplingParams(temperature=0.9, seed=7, max_tokens=3, logprobs=2, prompt_logprobs=0)
OPTIONS: dict[str, Any] = {"context": 256, "max_step_tokens": 64, "max_sequences": 4, "kv_memory": "2MB"}
CHAT = [user("See ", picture(50, 20), " and ", picture(33, 40, 3), "!")]


def answer(folder: Path, **options: Any) -> tuple[Any, ...]:
    with LLM(str(folder), **{**OPTIONS, **options}) as llm:
        output = llm.chat(CHAT, PARAMS)
    return output.completions[0].token_ids, output.completions[0].logprobs, output.prompt_logprobs


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("name", ["qwen3-vl", "gemma3", "gemma4"])
def test_images_give_the_bits_of_the_cpu(name: str, tmp_path: Path) -> None:
    """The models have added rows and places by three axes, spans in all layers, and spans in layers with windows."""
    level = same_level()
    if level is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    write_family(name, tmp_path)
    formats = {"weights": "int8", "kv_format": "int8"} if name == "gemma3" else {"weights": "f32", "kv_format": "f32"}
    on_device = answer(tmp_path, device="cuda", cpu_level=level, **formats)
    assert on_device == answer(tmp_path, cpu_level=level, **formats)
    assert controls().fake_used() == 0


@pytest.mark.usefixtures("fake")
def test_the_encoder_is_in_the_hosts_memory_and_steps_are_not_begun_early(tmp_path: Path) -> None:
    write_family("gemma3", tmp_path)
    on_device, on_cpu = (find_model(str(tmp_path), {**OPTIONS, "device": word}) for word in ("cuda", "cpu"))
    assert on_device.sight is not None and on_cpu.sight is not None
    encoder = on_cpu.sight.needs(on_cpu.resolver.resolved())
    more = on_cpu.resolver.resolved().memory.weight_bytes - on_device.resolver.resolved().memory.weight_bytes
    assert more == encoder.weights > 0, "the device holds the language model alone"
    settings = {setting.name: setting for setting in on_device.resolver.resolved().settings}
    assert settings["early_steps"].value == "off" and "images" in settings["early_steps"].reason
    with pytest.raises(OutOfMemory, match="encoder does not fit"):
        find_model(str(tmp_path), {**OPTIONS, "device": "cuda", "image_cache": "1000GB"})

"""The engine on the emulated device: `--device`, its refusals, and the same answers as on the CPU."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.bench.random_checkpoint import write_random
from tests.cuda.emulator.fake import built_folder, controls, same_level
from tests.models.families.stored import config_of
from tests.serve.harness import serving
from twostroke.assembly import engine as assemble
from twostroke.assembly.find import find_model
from twostroke.assembly.processes.replica import ReplicaEndpoint, build_replica
from twostroke.backends.cuda import library
from twostroke.cli.shared.command import exit_code
from twostroke.cost.shape import Segment
from twostroke.llm import LLM
from twostroke.server.build import build_server
from twostroke.types.errors import ConfigError, OutOfMemory, Overloaded, TwostrokeError, UnsupportedModel
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

PARAMS = SamplingParams(temperature=0.9, seed=7, max_tokens=3, logprobs=2)
SMALL = {"context": "128", "max_step_tokens": "64", "max_sequences": "4", "kv_memory": "2MB"}


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "DRIVER", str(tmp_path / "libcuda.so.1"))
    monkeypatch.setattr(library, "LIBRARY_FOLDER", built_folder())


def device_of(model: str = "spark", **options: Any) -> tuple[str, str]:
    resolved = find_model(model, {**SMALL, **options}).resolver.resolved()
    return next((setting.value, setting.reason) for setting in resolved.settings if setting.name == "device")


def answers(**options: Any) -> list[tuple[Any, ...]]:
    """The tokens and log probabilities of some requests together, sampled, with a shared prefix and prompt scores."""
    prompts = [list(range(5, 45)), list(range(5, 40)), [9, 8, 7]]
    with LLM("spark", **SMALL, **options) as llm:
        return [
            (output.completions[0].token_ids, output.completions[0].logprobs)
            for output in llm.generate(prompts, PARAMS)
        ]


@pytest.mark.usefixtures("fake")
def test_the_engine_gives_the_cpus_bits() -> None:
    level = same_level()
    if level is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    for weights, kv in (("int8", "int8"), ("f32", "f32")):
        options = {"weights": weights, "kv_format": kv}
        assert answers(device="cuda", **options) == answers(cpu_level=level, **options)
    assert controls().fake_used() == 0


@pytest.mark.usefixtures("fake")
def test_a_step_is_one_copy_up_and_one_down() -> None:
    """This holds for any options of sampling."""
    params = SamplingParams(
        seed=1, max_tokens=6, top_p=0.9, frequency_penalty=0.3, logit_bias={4: 1.0}, logprobs=3, ignore_eos=True
    )
    with LLM("spark", device="cuda", **SMALL) as llm:
        before = [getattr(controls(), f"fake_copies_{way}")() for way in ("up", "down")]
        made = llm.generate([[9, 8, 7], [5] * 20], params)
        after = [getattr(controls(), f"fake_copies_{way}")() for way in ("up", "down")]
    assert [len(output.completions[0].token_ids) for output in made] == [6, 6]
    assert [a - b for a, b in zip(after, before, strict=True)] == [6, 6]


@pytest.mark.usefixtures("fake")
def test_auto_takes_a_device_that_can_run_the_model(tmp_path: Path) -> None:
    assert device_of(device="auto") == ("cuda:0", "Emulated device 0")
    assert device_of()[0] == "cpu"
    config = config_of("llama2-multi-head") | {"head_dim": 520}
    write_random(config, tmp_path)
    word, reason = device_of(str(tmp_path), device="auto")
    assert word == "cpu" and "heads have 520 dimensions, more than 512" in reason
    with pytest.raises(UnsupportedModel, match="cannot run this model") as caught:
        device_of(str(tmp_path), device="cuda")
    assert exit_code(caught.value) == 3


@pytest.mark.usefixtures("fake")
def test_entries_may_be_wider_than_heads(tmp_path: Path) -> None:
    write_random(config_of("deepseek-v4-wide-heads"), tmp_path)
    assert device_of(str(tmp_path), device="cuda")[0] == "cuda:0"


@pytest.mark.usefixtures("no_driver")
def test_without_a_driver_cuda_is_refused_and_auto_takes_the_cpu() -> None:
    word, reason = device_of(device="auto")
    assert word == "cpu" and "no CUDA driver" in reason
    with pytest.raises(ConfigError, match="--device cuda cannot be used: There is no CUDA driver here") as caught:
        device_of(device="cuda")
    assert exit_code(caught.value) == 2 and "libcuda.so.1" in caught.value.why


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("facts", "needle"),
    [
        ((7, 5, 13000), "its compute capability is 7.5, and at least 8.0 is needed"),
        ((9, 0, 10020), "the newest CUDA that it supports: 10.2, and at least 11.0 is needed"),
    ],
)
def test_what_is_too_old_is_refused_with_both_versions(facts: tuple[int, int, int], needle: str) -> None:
    controls().fake_describe(*facts)
    with pytest.raises(ConfigError, match="--device cuda cannot be used") as caught:
        device_of(device="cuda")
    assert needle in caught.value.why and exit_code(caught.value) == 2
    word, reason = device_of(device="auto")
    assert word == "cpu" and needle in reason


@pytest.mark.usefixtures("fake")
def test_a_device_without_any_memory_left_is_named() -> None:
    controls().fake_fail(b"cuDevicePrimaryCtxRetain", 0)
    with pytest.raises(ConfigError, match="has no memory left to begin with") as caught:
        device_of(device="cuda")
    assert "OUT_OF_MEMORY" in caught.value.why and "End what else uses" in caught.value.fix


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("options", "needle"),
    [
        ({"device": "cuda:3"}, "CUDA device 3 cannot be used"),
        ({"device": "cuda", "tensor_parallel": "2"}, "--device cuda is not possible over several ranks"),
        ({"device": "cuda", "pipeline_parallel": "2"}, "--device cuda is not possible over several ranks"),
        ({"device": "gpu"}, "choose auto, cpu, cuda"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: dict[str, str], needle: str) -> None:
    with pytest.raises(ConfigError) as caught:
        device_of(**options)
    assert needle in str(caught.value)


@pytest.mark.usefixtures("fake")
def test_promises_begin_with_a_guess_of_the_device() -> None:
    found = find_model("spark", {**SMALL, "device": "cuda", "ttft": "1s", "itl": "50ms"})
    settings = {setting.name: setting for setting in found.resolver.resolved().settings}
    words = settings["step_cost"].reason
    assert settings["device"].value == "cuda:0" and settings["step_cost"].value == "guessed"
    assert words.startswith("Emulated device 0, not measured") and "132 multiprocessors" in words
    assert "1.98 GHz" in words and "50% of 4,917 GB/s" in words
    assert "doctor" not in words, "it measures processors"
    first, more = (found.costs.now.predict([Segment.prefill(0, rows, True)]).seconds for rows in (1, 500))
    assert 0 < first < more and not found.costs.measured
    found.device.close()


@pytest.mark.daily
@pytest.mark.usefixtures("fake")
def test_promises_change_no_answer_on_a_device() -> None:
    assert answers(device="cuda", ttft="600s", itl="5ms") == answers(device="cuda")


@pytest.mark.usefixtures("fake")
def test_promises_are_kept_by_steps_that_were_seen() -> None:
    """Steps that were not measured refuse nothing. After some steps with prompts, requests that cannot be in time are
    refused."""
    params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
    prompts = [Prompt(tuple(range(5 + each, 65 + each)), params) for each in range(24)]
    with assemble.build_sync("spark", {**SMALL, "device": "cuda", "ttft": "1ms"}) as built:
        first = built.engine.generate(prompts[:4])
        assert [len(output.completions[0].token_ids) for output in first] == [2] * 4
        with pytest.raises(Overloaded) as caught:
            built.engine.generate(prompts)
        assert caught.value.retry_after_s > 0
        gauges = built.engine.gauges()
        assert (gauges.running, gauges.waiting, gauges.pages_used) == (0, 0, 0)


@pytest.mark.usefixtures("fake")
def test_a_step_without_samples_waits_for_the_device() -> None:
    """Its time is then its own, and a failure belongs to the step that failed and not to the next one."""
    with assemble.build_sync(
        "spark", {**SMALL, "device": "cuda", "max_step_tokens": "64", "early_steps": "off"}
    ) as built:
        waits = []
        # The first two steps use the memory from which inputs are copied. From then on each copy waits for an earlier
        # one.
        for prompt in (range(300, 310), range(310, 320), range(5, 61), range(200, 320)):
            before = controls().fake_waits()
            built.engine.generate([Prompt(tuple(prompt), SamplingParams(max_tokens=1))])
            waits.append(controls().fake_waits() - before)
    assert waits[2:] == [2, 4]  # one step and two: each waits for its copy and for its results


@pytest.mark.usefixtures("fake")
def test_roles_that_send_pages_are_refused() -> None:
    options = {**SMALL, "device": "cuda"}
    with socket.socket() as listener, pytest.raises(ConfigError, match="--role prefill cannot be") as caught:
        build_replica("spark", options, ReplicaEndpoint(listener, "one", None, "prefill"), print)
    assert "lie in the device's memory" in caught.value.why and exit_code(caught.value) == 2


@pytest.mark.usefixtures("fake")
def test_the_pool_is_planned_in_the_devices_memory() -> None:
    controls().fake_reset(1, 40_000_000, 1)
    with pytest.raises(OutOfMemory, match="does not fit") as caught:
        device_of(device="cuda", kv_memory="1GB")
    assert "free of the 0.0 GB of Emulated device 0" in str(caught.value)
    assert isinstance(caught.value, TwostrokeError)


@pytest.mark.usefixtures("fake")
def test_the_server_streams_from_a_device() -> None:
    """Steps run in a thread of their own, which is not the thread that opened the device."""
    level, texts = same_level(), []
    if level is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    for options in ({"device": "cuda"}, {"cpu_level": level}):
        with build_server("spark", {**SMALL, **options}) as built, serving(built.parts) as live:
            body = {"model": "spark", "prompt": "What is", "max_tokens": 4, "seed": 3, "temperature": 0.8}
            answer = live.post("/v1/completions", body).json
            texts.append((answer["choices"][0]["text"], answer["usage"]))
    assert texts[0] == texts[1] and texts[0][1]["completion_tokens"] > 0

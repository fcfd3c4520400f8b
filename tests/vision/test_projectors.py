"""Models that see images as GGUF files: the file of the encoder next to that of the language model. Others are
refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from tests.vision import projectors
from tests.vision.folders import picture, smolvlm, user, write_family
from tests.vision.projectors import write_projector, write_text
from tests.weights.gguf.export import all_of
from twostroke import LLM
from twostroke.types.errors import TwostrokeError
from twostroke.types.sampling.sampling_params import SamplingParams

KINDS = {
    **{"smolvlm": ("llama", "idefics3"), "qwen3-vl": ("qwen3vl", "qwen3vl_merger"), "gemma3": ("gemma3", "gemma3")},
    **{"qwen2-vl": ("qwen2vl", "qwen2vl_merger"), "qwen2.5-vl": ("qwen2vl", "qwen2.5vl_merger")},
    **{"mistral3": ("llama", "pixtral"), "pixtral": ("llama", "pixtral"), "glm-4v": ("glm4", "glm4v")},
    **{"internvl": ("qwen2", "internvl"), "internvl-large": ("qwen2", "internvl"), "lfm2-vl": ("lfm2", "lfm2")},
    **{"gemma4": ("gemma4", "gemma4v"), "gemma4-small": ("gemma4", "gemma4v")},
    **{"gemma4-unified": ("gemma4", "gemma4uv"), "llama4-usual": ("llama4", "llama4")},
    **{name: ("qwen35", "minicpmv4_6") for name in ("minicpm-v-4.6", "minicpm-v-4.6-4x")},
    **{"kimi-k2.5": ("deepseek2", "kimik25"), "kimi-vl": ("deepseek2", "kimivl")},
    **{"llava-clip": ("llama", "mlp"), "llava-next": ("llama", "mlp"), "llava-next-siglip": ("llama", "mlp")},
}
PARAMS = SamplingParams(max_tokens=8, temperature=0.0, logprobs=0, prompt_logprobs=0, ignore_eos=True)
OPTIONS: dict[str, Any] = {"kv_format": "f32", "context": 512, "max_step_tokens": 64, "max_sequences": 8}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each family's folder, and its files in the subfolder `files`."""
    found = {}
    for name, (arch, word) in KINDS.items():
        folder: Path = tmp_path_factory.mktemp(name)
        if name == "smolvlm":
            smolvlm(folder)
        else:
            write_family("gemma3-sliding" if name == "gemma3" else name, folder)
        (folder / "files").mkdir()
        write_text(folder, folder / "files" / f"Tiny-{name}-F32.gguf", arch)
        write_projector(folder, folder / "files" / f"mmproj-Tiny-{name}-F32.gguf", word)
        found[name] = folder
    return found


def model_of(folders: dict[str, Path], name: str) -> str:
    return str(folders[name] / "files" / f"Tiny-{name}-F32.gguf")


def logprobs(model: str, **options: Any) -> np.ndarray:
    with LLM(model, **{**OPTIONS, **options}) as llm:
        output = llm.chat([user("See ", picture(50, 20), " this, then ", picture(33, 40), "!")], PARAMS)
    found = [each.logprob for each in output.prompt_logprobs or ()]
    return np.array(found + [each.logprob for each in output.completions[0].logprobs or ()])


@pytest.mark.parametrize("name", KINDS)
def test_the_file_next_to_the_model_is_found_and_says_what_the_folder_says(folders: dict[str, Path], name: str) -> None:
    law = logprobs(str(folders[name]), weights="f32")
    found = logprobs(model_of(folders, name), weights="f32")
    assert len(law) == len(found) and np.abs(law - found).max() < 1e-4 * (law.max() - law.min())


def test_the_second_norm_of_llama4_has_two_names(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The converter of August 2026 gives it the name of a norm of Gemma 4."""
    usual = projectors.stored_tensors

    def renamed(*given: Any) -> dict[str, np.ndarray]:
        return {name.replace(".ln2.", ".attn_post_norm."): values for name, values in usual(*given).items()}

    model = model_of(folders, "llama4-usual")
    law = logprobs(model, weights="f32")
    monkeypatch.setattr(projectors, "stored_tensors", renamed)
    path = write_projector(folders["llama4-usual"], tmp_path / "mmproj.gguf", "llama4")
    assert np.array_equal(logprobs(model, weights="f32", mmproj=str(path)), law)


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q8_0], ids=str)
def test_files_of_other_types(folders: dict[str, Path], tmp_path: Path, kind: Type) -> None:
    path = write_projector(folders["qwen3-vl"], tmp_path / "mmproj.gguf", "qwen3vl_merger", all_of(kind))
    model = model_of(folders, "qwen3-vl")
    law, found = (logprobs(model, weights="f32", **more) for more in ({}, {"mmproj": str(path)}))
    assert np.abs(law - found).max() < 0.05 * (law.max() - law.min())
    assert not np.array_equal(law, found)


def test_the_usual_weights_of_a_file_see_too(folders: dict[str, Path]) -> None:
    """Only the prompt's log probabilities are compared, because the answers may differ."""
    law, found = (logprobs(model_of(folders, "smolvlm"), **more)[:-8] for more in ({"weights": "f32"}, {}))
    assert np.abs(law - found).max() < 0.05 * (law.max() - law.min())


def test_an_encoder_of_another_model_is_refused_by_name(folders: dict[str, Path], tmp_path: Path) -> None:
    other = folders["gemma3"] / "files" / "mmproj-Tiny-gemma3-F32.gguf"
    with pytest.raises(TwostrokeError, match="mmproj-Tiny-gemma3-F32.gguf belongs to another model"):
        logprobs(model_of(folders, "qwen3-vl"), mmproj=str(other))
    wide = write_projector(folders["smolvlm"], tmp_path / "mmproj-wide.gguf", "idefics3", width=128)
    with pytest.raises(TwostrokeError, match=r"mmproj-wide.gguf belongs to another model(.|\n)*128 elements"):
        logprobs(model_of(folders, "smolvlm"), mmproj=str(wide))
    with pytest.raises(TwostrokeError, match="no encoder of images"):
        logprobs(model_of(folders, "smolvlm"), mmproj=model_of(folders, "smolvlm"))
    with pytest.raises(TwostrokeError, match="There is no file"):
        logprobs(model_of(folders, "smolvlm"), mmproj=str(tmp_path / "none.gguf"))
    unknown = write_projector(folders["smolvlm"], tmp_path / "mmproj-new.gguf", "newest")
    with pytest.raises(TwostrokeError, match="'newest' is not implemented"):
        logprobs(model_of(folders, "smolvlm"), mmproj=str(unknown))


def test_a_model_next_to_an_encoder_that_cannot_be_read_reads_text(folders: dict[str, Path], tmp_path: Path) -> None:
    model = Path(model_of(folders, "smolvlm"))
    (tmp_path / model.name).write_bytes(model.read_bytes())
    (tmp_path / f"mmproj-{model.name}").write_bytes(b"GGUF" + b"\xff" * 100)
    with LLM(str(tmp_path / model.name), **OPTIONS) as llm:
        assert llm.chat([user("Words.")], PARAMS).completions[0].token_ids


def test_of_several_files_one_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    model = Path(model_of(folders, "smolvlm"))
    (tmp_path / model.name).write_bytes(model.read_bytes())
    for name in ("mmproj-a.gguf", "mmproj-b.gguf"):
        write_projector(folders["smolvlm"], tmp_path / name, "idefics3")
    with pytest.raises(TwostrokeError, match="There are 2 encoders"):
        logprobs(str(tmp_path / model.name), images="on")
    assert len(logprobs(str(tmp_path / model.name), mmproj=str(tmp_path / "mmproj-a.gguf")))

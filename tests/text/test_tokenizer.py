"""The tokenizer agrees with transformers, and a message tells why a broken folder is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twostroke.text.tokenizer import MAX_PROMPT_CHARACTERS, Tokenizer
from twostroke.types.errors import CorruptModel, InvalidRequest, ModelNotFound, UnsupportedModel

from .kinds import byte_fallback, byte_level, make


def folder_with(path: Path, config: dict[str, object], kind: str = "byte_level") -> Path:
    library = byte_level() if kind == "byte_level" else byte_fallback()
    library.save(str(path / "tokenizer.json"))
    base: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    base["eos_token"] = {"__type": "AddedToken", "content": "</s>", "lstrip": False, "rstrip": False, "special": True}
    (path / "tokenizer_config.json").write_text(json.dumps(base | config))
    return path


@pytest.mark.parametrize("config", [{}, {"add_bos_token": True}, {"add_bos_token": False}, {"add_eos_token": True}])
@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_same_ids_as_transformers(tmp_path: Path, config: dict[str, object], kind: str) -> None:
    import transformers

    folder = folder_with(tmp_path, config, kind)
    ours = Tokenizer.from_folder(folder)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    for text in ("Prefill reads", "  two  spaces\n", "naïve 你好 🙂", "<s>inside</s>", ""):
        assert ours.encode_prompt(text) == theirs(text)["input_ids"]
        assert ours.encode_rendered(text) == theirs(text, add_special_tokens=False)["input_ids"]
        ids = ours.encode_prompt(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_rendered_text_gets_no_second_bos(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder_with(tmp_path, {}, "byte_fallback"))
    assert tokenizer.encode_prompt("a")[0] == tokenizer.bos_id
    assert tokenizer.encode_rendered("<s>a").count(tokenizer.bos_id) == 1


def test_end_ids_are_gathered_from_all_files(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, {})
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    (folder / "config.json").write_text('{"eos_token_id": 9}')
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.end_token_ids == {7, 8, 9, tokenizer.id_of("</s>")}


def test_limits_left_in_the_file_are_dropped(tmp_path: Path) -> None:
    library = byte_level()
    library.enable_truncation(2)
    library.enable_padding(length=50)
    library.save(str(tmp_path / "tokenizer.json"))
    text = "Prefill reads the whole prompt"
    assert Tokenizer.from_folder(tmp_path).decode(Tokenizer.from_folder(tmp_path).encode_prompt(text)) == text


def test_token_bytes_join_to_the_text() -> None:
    text = "naïve 你好 🙂\n"
    for kind in ("byte_level", "byte_fallback"):
        tokenizer = make(kind)
        joined = b"".join(map(tokenizer.token_bytes, tokenizer.encode_rendered(text))).decode()
        assert joined.removeprefix(" ") == text
    assert make("byte_level").token_bytes(10**6) == b""
    assert make("byte_level").token_text(make("byte_level").id_of("</s>") or 0) == "</s>"


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(UnsupportedModel, match=r"no tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
    for broken in ("", "{", "[]", '{"version": "1.0", "model": {"type": "Nothing"}}'):
        (tmp_path / "tokenizer.json").write_text(broken)
        with pytest.raises(CorruptModel):
            Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("content", ["[1]", "{", '{"eos_token_id": "x"}'])
def test_broken_side_files(tmp_path: Path, name: str, content: str) -> None:
    folder = folder_with(tmp_path, {})
    (folder / name).write_text(content)
    if name == "tokenizer_config.json" and "eos" in content:
        Tokenizer.from_folder(folder)
        return
    with pytest.raises(CorruptModel):
        Tokenizer.from_folder(folder)


def test_prompts_that_cannot_be_encoded() -> None:
    tokenizer = make("byte_level")
    with pytest.raises(InvalidRequest, match="characters"):
        tokenizer.encode_prompt("a" * (MAX_PROMPT_CHARACTERS + 1))
    with pytest.raises(InvalidRequest, match="surrogate"):
        tokenizer.encode_prompt("a\ud800")

"""Folders without tokenizer.json: their token ids are those of the libraries that wrote their vocabularies."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mistral_common
import pytest
import sentencepiece
import tiktoken
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.weights.vocabularies.rank_files import KIMI
from twostroke.weights.vocabularies.tekken import FIRST_SPECIAL
from twostroke.weights.vocabularies.unfold import with_tokenizer

DATA = Path(mistral_common.__file__).parent / "data"
NASTY = (
    "", "Hello world", "  two  blanks   three\n\n\n lines \t tab", "a" * 217, "ab" * 50, "don't DON'T I'll",
    "日本語テキスト 中文字符", "naïve café e\u0301", "🙂🙃\U0001f469\u200d\U0001f467", "1234567890 12,345.67",
    "x=3;\r\nif(a&&b){c++;}", "\x00\x01\x7f", "ABCdefGHI", "ǅungla", "ﬁ ligature ℌ", "שלום عليكم", "            deep",
    "=======-----_____", "a\u200bb\u00a0c\u3000d", "\ufeffbom", "http://x.y/z?q=1&r=2#frag", " " * 100, "\n" * 33,
    "汉字abc漢字ABC仮名カナ", "\u2028\u2029\u0085",
)  # fmt: skip
MARKED = ("<s>[INST] hi [/INST]</s> <unk>", "<SPECIAL_30>", "[TOOL_CALLS][{}]")


@cache
def nasty_texts() -> tuple[str, ...]:
    """The texts above and 300 random ones."""
    chosen = random.Random(1)
    letters = "ab \n\tAZ09é中'.,/\\🙂_"
    return NASTY + tuple("".join(chosen.choices(letters, k=chosen.randint(1, 60))) for _ in range(300))


def folder_of(place: Path, files: dict[str, bytes | dict[str, Any]]) -> Path:
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return place


@cache
def small_tekken() -> dict[str, Any]:
    """A real tekken.json, with the first 20,000 of its tokens, because a short vocabulary is made in less than a
    second."""
    said: dict[str, Any] = json.loads((DATA / "tekken_240718.json").read_bytes())
    said["config"] |= {"num_vocab_tokens": 20_000, "default_vocab_size": 21_000}
    return {**said, "vocab": said["vocab"][:20_000]}


def tekken_of(version: str, *more: str) -> dict[str, Any]:
    """The same tokens under another version, whose file has a list of its special tokens."""
    texts = [*FIRST_SPECIAL, *more]
    listed = [{"rank": index, "token_str": text, "is_control": True} for index, text in enumerate(texts)]
    said = small_tekken()
    return {**said, "config": {**said["config"], "version": version}, "special_tokens": listed}


def check_same(ours: Tokenizer, judge: Callable[[str], list[int]], texts: tuple[str, ...], begins: int) -> None:
    """begins: the number of special tokens that we put before a text."""
    for text in texts:
        found = ours.encode_prompt(text, parse_special=False)[begins:]
        assert found == judge(text), text
        assert ours.decode(found).removeprefix(" ") == text.removeprefix(" ") or "\ufffd" in ours.decode(found)


def test_tekken(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", {"tekken.json": small_tekken()})
    ours = Tokenizer.from_folder(with_tokenizer(folder, tmp_path / "cache"))
    judge = Tekkenizer.from_file(folder / "tekken.json")
    check_same(ours, lambda text: judge.encode(text, bos=False, eos=False), nasty_texts() + MARKED, 1)
    assert (ours.bos_id, ours.end_token_ids, ours.vocab_size) == (judge.bos_id, {judge.eos_id}, judge.n_words)
    assert ours.encode_rendered("[INST]a[/INST]")[::2] == [3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tekken_240718.json", "tekken_240911.json"])
def test_whole_tekken(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path / "m", {"tekken.json": (DATA / name).read_bytes()})
    ours = Tokenizer.from_folder(with_tokenizer(folder, None))
    judge = Tekkenizer.from_file(folder / "tekken.json")
    check_same(ours, lambda text: judge.encode(text, bos=False, eos=False), nasty_texts() + MARKED, 1)


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.model*")))
def test_sentencepiece(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path / "m", {"tokenizer.model": (DATA / name).read_bytes()})
    ours = Tokenizer.from_folder(with_tokenizer(folder, tmp_path / "cache"))
    judge = sentencepiece.SentencePieceProcessor(model_file=str(DATA / name))
    check_same(ours, judge.encode, nasty_texts(), 1)
    assert (ours.bos_id, ours.end_token_ids, ours.vocab_size) == (1, {2}, judge.vocab_size())


def ranks_of(said: dict[str, Any]) -> dict[bytes, int]:
    return {base64.b64decode(each["token_bytes"]): each["rank"] for each in said["vocab"]}


def rank_file(ranks: dict[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


KIMI_CONFIG: dict[str, Any] = {
    "tokenizer_class": "TikTokenTokenizer",
    "bos_token": "[BOS]",
    "eos_token": "[EOS]",
    "added_tokens_decoder": {
        "20000": {"content": "[BOS]", "special": True},
        "20001": {"content": "[EOS]", "special": True},
        "20003": {"content": "<|im_end|>", "special": True},
        "20009": {"content": "<|tool_calls_section_begin|>", "special": False},
    },
}


def test_rank_file_of_kimi(tmp_path: Path) -> None:
    """The ranks are Mistral's, which are real; the split is Kimi's."""
    ranks = ranks_of(small_tekken())
    files = {"tiktoken.model": rank_file(ranks), "tokenizer_config.json": KIMI_CONFIG}
    ours = Tokenizer.from_folder(with_tokenizer(folder_of(tmp_path / "m", files), tmp_path / "cache"))
    judge = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens={})
    check_same(ours, judge.encode_ordinary, nasty_texts(), 0)
    assert ours.encode_rendered("<|im_end|>[BOS]<|tool_calls_section_begin|><|reserved_token_20002|>") == [
        20003, 20000, 20009, 20002,
    ]  # fmt: skip
    assert (ours.bos_id, ours.end_token_ids) == (20000, {20001})
    assert 20009 not in ours.special_ids


def test_rank_file_of_glm_lies_under_the_name_of_sentencepiece(tmp_path: Path) -> None:
    ranks = ranks_of(small_tekken())
    config = {"tokenizer_class": "ChatGLM4Tokenizer", "eos_token": "<|endoftext|>"}
    config |= {"added_tokens_decoder": {"20000": {"content": "<|endoftext|>"}}}
    files = {"tokenizer.model": rank_file(ranks), "tokenizer_config.json": config}
    ours = Tokenizer.from_folder(with_tokenizer(folder_of(tmp_path / "m", files), tmp_path / "cache"))
    assert ours.end_token_ids == {20000}
    assert ours.decode(ours.encode_prompt("Hello, 世界")) == "Hello, 世界"


def test_class_that_nobody_knows_is_refused_by_name(tmp_path: Path) -> None:
    files = {"tiktoken.model": rank_file(ranks_of(small_tekken())), "tokenizer_config.json": {"tokenizer_class": "X"}}
    with pytest.raises(UnsupportedModel, match="tiktoken.model"):
        with_tokenizer(folder_of(tmp_path / "m", files), None)


def test_folder_is_made_once_and_links_to_the_other_files(tmp_path: Path) -> None:
    files = {"tekken.json": small_tekken(), "config.json": {"model_type": "mistral"}}
    folder = folder_of(tmp_path / "m", files)
    made = with_tokenizer(folder, tmp_path / "cache")
    assert made != folder and with_tokenizer(folder, tmp_path / "cache") == made
    assert (made / "config.json").resolve() == (folder / "config.json").resolve()
    (folder / "generation_config.json").write_text("{}")
    assert with_tokenizer(folder, tmp_path / "cache") != made
    assert with_tokenizer(made, tmp_path / "cache") == made


@pytest.mark.parametrize(
    "files",
    [
        {"tekken.json": b"{"},
        {"tekken.json": {"config": {}}},
        {"tekken.json": {"config": {"pattern": "a", "default_vocab_size": 9, "default_num_special_tokens": 2}}},
        {"tokenizer.model": b"\x0a\xff\xff\xff"},
        {"tokenizer.model": b"\x00" * 40},
        {"tiktoken.model": b"AA== 0\nAQ== 2\n", "tokenizer_config.json": KIMI_CONFIG},
        {"tiktoken.model": b"no rank\n", "tokenizer_config.json": KIMI_CONFIG},
    ],
)
def test_broken_files_are_refused_in_words(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(CorruptModel):
        with_tokenizer(folder_of(tmp_path / "m", files), None)


def test_damaged_bytes_raise_nothing_else(tmp_path: Path) -> None:
    """The beginning of a real file, cut or changed at one of 40 places."""
    data = (DATA / "mistral_instruct_tokenizer_240323.model.v3").read_bytes()
    chosen = random.Random(2)
    folder = folder_of(tmp_path / "m", {})
    for _ in range(40):
        place = chosen.randrange(4000)
        changed = b"" if chosen.random() < 0.3 else bytes([chosen.randrange(256)]) + data[place + 1 : 4000]
        (folder / "tokenizer.model").write_bytes(data[:place] + changed)
        try:
            with_tokenizer(folder, None)
        except (CorruptModel, UnsupportedModel):
            pass


TOOLS = [
    {"type": "function", "function": {"name": "hours", "description": "Opening hours — of a day",
     "parameters": {"type": "object", "properties": {"day": {"type": "string"}}}}}
]  # fmt: skip
CALL = {"id": "k3j5h7g9f", "type": "function", "function": {"name": "hours", "arguments": '{"day": "Mon"}'}}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "When are you open?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "nine to five", "tool_call_id": "k3j5h7g9f", "name": "hours"},
]
VERSIONS = {
    "v3": (),
    "v7": (),
    "v11": ("[ARGS]", "[CALL_ID]"),
    "v13": ("[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
}


@pytest.mark.parametrize(("turns", "tools"), [(2, None), (4, None), (2, TOOLS), (4, TOOLS), (6, TOOLS)])
@pytest.mark.parametrize("version", VERSIONS)
def test_conversations_of_tekken_folders(tmp_path: Path, version: str, tools: list[Any] | None, turns: int) -> None:
    folder = folder_of(tmp_path / "m", {"tekken.json": tekken_of(version, *VERSIONS[version])})
    made = with_tokenizer(folder, None)
    template = ChatTemplate.from_folder(made)
    assert template is not None
    messages = CONVERSATION[:turns]
    ours = Tokenizer.from_folder(made).encode_rendered(template.render(messages, tools=tools))
    judge = MistralTokenizer.from_file(folder / "tekken.json")
    request = ChatCompletionRequest.from_openai(messages=messages, tools=tools)
    assert ours == judge.encode_chat_completion(request).tokens

"""Tokenizers written as GGUF by the package, compared with the tokenizer.json from which they were made, on a difficult
text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers, processors, trainers

from tests.weights.gguf.export import add_tokenizer
from tests.weights.gguf.files import number, raw, string, strings, write
from twostroke.assets import spark_path
from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.container import GgufFile
from twostroke.weights.gguf.vocabulary.pre_splits import PRE_SPLITS
from twostroke.weights.gguf.vocabulary.token_list import TokenList
from twostroke.weights.gguf.vocabulary.tokenizer import as_json, chat_templates, special_texts, tokenizer_json

NASTY = (
    "Hello, world!  It's 1234567 o'clock\tand\n\n\n  we'LL see... \r\n x=3.14; f(a[0])->b  \u00a0\u2003 end   ",
    "Äpfel übel naïve café e\u0301 \u1e9b\u0323 ½ ② ٣٤٥ १२३",
    "日本語のテキスト、中文，한국어 ไทย العربية עברית हिन्दी Ελληνικά Кириллица Ω≈ç√∫",
    "🦙🚀👩‍👩‍👧‍👦 🇩🇪 \ufeff\u200b\u200d ▁under▁score <|end|> <s> </s> <0x0A> <|not a token|>",
    "def f(x):\n\treturn x**2 # ünïcödé\n\n\n\n   \n" + "a" * 70 + " " * 33 + "\x00\x01\x7f",
    "THIS IS LOUD camelCase snake_case kebab-case 'S 'Ll can't WON'T d'accord http://a.b/c?d=e&f#g",
    "", " ", "\n", "  \n \t ", "é", "1", "12", "123", "1234", "a1b2",
)  # fmt: skip
CORPUS = [text for text in NASTY for _ in range(3)] + [
    "the quick brown fox can't see 2024 things, it's 100% true. "
] * 9

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")


def level(regex: bool = False) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


STYLES: dict[str, tuple[list[pre_tokenizers.PreTokenizer], bool, bool]] = {
    "gpt-2": ([level(True)], False, False),
    "smollm": ([pre_tokenizers.Digits(individual_digits=True), level(True)], False, False),
    "starcoder": ([pre_tokenizers.Digits(individual_digits=True), level(True)], False, False),
    "command-r": ([pre_tokenizers.Digits(individual_digits=True), level(True)], False, True),
    "llama-bpe": ([split(LLAMA3), level()], True, False),
    "dbrx": ([split(LLAMA3), level()], False, False),
    "qwen2": ([split(LLAMA3.replace("{1,3}", "")), level()], False, True),
    "tekken": ([split(TEKKEN), level()], True, False),
    "falcon": (
        [pre_tokenizers.Punctuation("contiguous"), level(True), split("[0-9][0-9][0-9]")],
        False,
        False,
    ),
}
"""The settings of the original tokenizer.json files, in the library's terms: steps, ignore_merges, NFC."""


def trained(style: str) -> tokenizers.Tokenizer:
    """A small tokenizer in the style of the models with this `pre`."""
    steps, whole_words, composed = STYLES[style]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=whole_words))
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.normalizer = normalizers.NFC() if composed else None
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [tokenizers.AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>", "<|end|>")]
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def rebuilt(path: Path) -> tuple[tokenizers.Tokenizer, TokenList]:
    file = GgufFile.open(path)
    vocabulary = TokenList.read(file.values, path.name)
    file.close()
    return tokenizers.Tokenizer.from_str(as_json(tokenizer_json(vocabulary))), vocabulary


def written(folder: Path, made: tokenizers.Tokenizer, pre: str, **config: Any) -> Path:
    """A GGUF file with nothing but this tokenizer."""
    made.save(str(folder / "tokenizer.json"))
    said = {"vocab_size": made.get_vocab_size() + 3, **config}
    (folder / "config.json").write_text(json.dumps(said))
    writer = gguf.GGUFWriter(folder / f"{pre}.gguf", "llama")
    add_tokenizer(writer, folder, pre)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return folder / f"{pre}.gguf"


@pytest.mark.parametrize("style", STYLES)
def test_ids_are_the_original_s(style, tmp_path):
    original = trained(style)
    found, _ = rebuilt(written(tmp_path, original, style))
    for text in NASTY:
        for special in (False, True):
            expected = original.encode(text, add_special_tokens=special)
            assert found.encode(text, add_special_tokens=special).ids == expected.ids, text
        assert found.decode(expected.ids) == original.decode(expected.ids)


def test_the_embedded_model_s(tmp_path):
    original = tokenizers.Tokenizer.from_file(str(spark_path() / "tokenizer.json"))
    found, _ = rebuilt(written(tmp_path, original, "gpt-2", eos_token_id=4, bos_token_id=0))
    for text in NASTY:
        assert found.encode(text).ids == original.encode(text).ids, text


def test_bos_is_added_where_the_file_or_the_name_says_so(tmp_path):
    keys = {"model": string("gpt2"), "tokens": strings(["a", "b", "ab", "<s>"]), "merges": strings(["a b"])}
    keys["bos_token_id"] = number(4, 3)

    def ids(**more: bytes) -> list[int]:
        said = [(f"tokenizer.ggml.{name}", value) for name, value in {**keys, **more}.items()]
        found, _ = rebuilt(write(tmp_path / "x.gguf", raw(said)))
        return found.encode("ab").ids

    assert ids(pre=string("gpt-2")) == [2]
    assert ids(pre=string("llama-bpe")) == [3, 2]
    assert ids(pre=string("llama-bpe"), add_bos_token=number(7, 0)) == [2]
    assert ids(pre=string("gpt-2"), add_bos_token=number(7, 1)) == [3, 2]
    both = {"add_bos_token": number(7, 1), "add_eos_token": number(7, 1), "eos_token_id": number(4, 1)}
    assert ids(pre=string("gpt-2"), **both) == [3, 2, 1]
    assert ids(pre=string("llama-bpe"), bos_token_id=number(4, 99)) == [2]


PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]


def sentencepiece() -> tuple[list[str], list[float]]:
    """The pieces and scores of a small vocabulary: characters, then joins, with falling scores."""
    words = [
        "▁",
        *"helowrdinsatcump",
        "he",
        "ll",
        "▁w",
        "in",
        "▁he",
        "▁hello",
        "hello",
        "llo",
        "or",
        "ld",
        "▁world",
        "▁▁",
        "at",
        "is",
    ]
    words = list(dict.fromkeys(words))
    return PIECES + words, [0.0] * len(PIECES) + [-float(index) for index in range(len(words))]


def judge_of_sentencepiece(pieces: list[str], scores: list[float], prefix: bool) -> tokenizers.Tokenizer:
    """transformers' LlamaConverter, in the library's terms."""
    vocab = {piece: index for index, piece in enumerate(pieces)}
    merges = []
    for piece, score in zip(pieces[len(PIECES) :], scores[len(PIECES) :], strict=True):
        local = [
            (piece[:i], piece[i:], score) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab
        ]
        merges += sorted(local, key=lambda merge: (vocab[merge[0]], vocab[merge[1]]))
    merges.sort(key=lambda merge: (merge[2], len(merge[0]), len(merge[1])), reverse=True)
    pairs = [(left, right) for left, right, _ in merges]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    replace = normalizers.Replace(" ", "▁")
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace] if prefix else [replace])
    made.add_special_tokens([tokenizers.AddedToken(text, normalized=False, special=True) for text in PIECES[:3]])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return made


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_with_bytes(prefix, tmp_path):
    pieces, scores = sentencepiece()
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types([2, 3, 3, *([6] * 256), *([1] * (len(pieces) - len(PIECES)))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if not prefix:
        writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found, vocabulary = rebuilt(tmp_path / "x.gguf")
    judge = judge_of_sentencepiece(pieces, scores, prefix)
    for text in (*NASTY, "hello world", " hello  world", "helloworld is in", "hello</s>world", "ill or cold"):
        expected = judge.encode(text).ids
        assert found.encode(text).ids == expected, text
        assert found.decode(expected) == judge.decode(expected)
    assert vocabulary.end_ids == [2] and special_texts(vocabulary)["bos_token"] == "<s>"


def test_ends_of_answers_and_templates(tmp_path):
    tokens = ["a", "<|im_end|>", "<|eot_id|>", "<eos>", "</think>"]
    keys = {
        "tokenizer.ggml.model": string("gpt2"), "tokenizer.ggml.pre": string("qwen2"),
        "tokenizer.ggml.tokens": strings(tokens), "tokenizer.ggml.merges": strings(["a a"]),
        "tokenizer.ggml.token_type": b"\x09\0\0\0\x05\0\0\0" + (5).to_bytes(8, "little")
        + b"".join(kind.to_bytes(4, "little") for kind in (1, 3, 1, 3, 4)),
        "tokenizer.ggml.eos_token_id": number(4, 3),
        "tokenizer.chat_template": string("default one"), "tokenizer.chat_templates": strings(["tool_use", "../x"]),
        "tokenizer.chat_template.tool_use": string("other"), "tokenizer.chat_template.../x": string("no"),
    }  # fmt: skip
    file = GgufFile.open(write(tmp_path / "x.gguf", raw(list(keys.items()))))
    vocabulary = TokenList.read(file.values, "x.gguf")
    assert vocabulary.end_ids == [
        1,
        2,
        3,
    ]  # the tokens that the file names, and tokens that always end
    assert chat_templates(file.values, "x.gguf") == {"default": "default one", "tool_use": "other"}
    added = {token["content"]: token["special"] for token in tokenizer_json(vocabulary)["added_tokens"]}
    assert added == {"<|im_end|>": True, "<|eot_id|>": True, "<eos>": True, "</think>": False}
    file.close()


def list_of(*tokens: str, types: tuple[int, ...] = (), eos: int = 0) -> TokenList:
    values: dict[str, Any] = {"tokenizer.ggml.tokens": [text.encode() for text in tokens]}
    values["tokenizer.ggml.token_type"] = np.array(types or [3] * len(tokens), np.int32)
    return TokenList.read({**values, "tokenizer.ggml.eos_token_id": eos}, "made.gguf")


ENDS = (
    "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end_of_text|>", "<|eom_id|>", "<|end|>", "<turn|>", "[e~[", "[EOT]",
    "<|eot|>", "<|eom|>", "<end_of_utterance>", "</assistant>", "<SPECIAL_12>", "<seed:eos>", "<|tool_response>",
)  # fmt: skip


@pytest.mark.parametrize("kind", [1, 3, 4])
@pytest.mark.parametrize("end", ENDS)
def test_known_ends_are_control_tokens_whatever_their_type(end: str, kind: int) -> None:
    """Files of older converters mark some of them as normal text, and most files name only one end."""
    found = list_of("<|endoftext|>", "a", end, types=(3, 1, kind))
    assert found.end_ids == [0, 2] and found.types == [3, 1, 3]
    found = list_of("<|endoftext|>", end, types=(3, 5))
    assert found.types == [3, 5], "an id that is not used stays so"


@pytest.mark.parametrize("mark", ["<|call|>", "<|calls|>"])
def test_the_end_of_one_of_several_messages_ends_no_answer(mark: str) -> None:
    assert list_of("a", "<|end|>", mark, types=(1, 3, 3), eos=2).end_ids == [2]


def test_the_next_turn_is_an_end_in_glm_alone() -> None:
    turns = ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|observation|>")
    assert list_of(*turns, "[gMASK]").end_ids == [0, 1, 3] and list_of(*turns).end_ids == [0]


def test_every_split_is_a_pattern_that_the_library_takes():
    for name, pre in PRE_SPLITS.items():
        steps = pre_tokenizers.Sequence([*(split(pattern) for pattern in pre.patterns), level()])
        pieces = [piece for piece, _ in steps.pre_tokenize_str(NASTY[0])]
        assert decoders.ByteLevel().decode(pieces) == NASTY[0], name


def test_an_unknown_split_is_refused(tmp_path):
    keys = {"model": string("gpt2"), "tokens": strings(["a"]), "merges": strings(["a a"]), "pre": string("new")}
    path = write(tmp_path / "x.gguf", raw([(f"tokenizer.ggml.{name}", value) for name, value in keys.items()]))
    with pytest.raises(UnsupportedModel, match="'new'") as caught:
        rebuilt(path)
    assert "llama-bpe" in str(caught.value.why)

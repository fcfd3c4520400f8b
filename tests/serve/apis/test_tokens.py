"""/tokenize, /detokenize, /tokenizer_info, and the refusal of embeddings."""

from __future__ import annotations

import openai
import pytest

from tests.serve.apis.tools.test_tools import TOOLS
from tests.serve.fakes import CONTEXT, MODEL, fake_parts
from tests.serve.harness import Live, serving


def test_tokenize_and_back(live: Live) -> None:
    made = live.post("/tokenize", {"model": MODEL, "prompt": "aß", "add_special_tokens": False}).json
    assert made == {"count": 3, "max_model_len": CONTEXT, "tokens": [97, 195, 159], "token_strs": None}
    assert live.post("/detokenize", {"tokens": made["tokens"]}).json == {"prompt": "aß", "content": "aß"}
    strings = live.post("/tokenize", {"prompt": "ab", "return_token_strs": True}).json["token_strs"]
    assert strings == ["a", "b"]


def test_tokenize_a_conversation(live: Live) -> None:
    messages = [{"role": "user", "content": "hi"}]
    made = live.post("/tokenize", {"messages": messages, "tools": TOOLS}).json
    asked = live.chat(tools=TOOLS).json["usage"]["prompt_tokens"]
    assert made["count"] == asked


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/tokenize", {}, 400),
        ("/tokenize", {"prompt": "a", "messages": []}, 400),
        ("/tokenize", {"messages": []}, 400),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404),
        ("/detokenize", {"tokens": [-1]}, 400),
        ("/detokenize", {"tokens": [2**31]}, 400),
        ("/detokenize", {"tokens": "a"}, 400),
        ("/detokenize", {"tokens": [1], "model": "other"}, 404),
    ],
)
def test_refused(live: Live, path: str, body: object, status: int) -> None:
    reply = live.post(path, body)
    assert reply.status == status
    assert reply.error


def test_tokenizer_info() -> None:
    with serving(fake_parts(special_texts={"eos_token": "<end>"})) as live:
        info = live.get("/tokenizer_info").json
    assert info["eos_token"] == "<end>" and info["bos_token"] is None and info["model_max_length"] == CONTEXT


def test_embeddings_are_refused_clearly(live: Live) -> None:
    with openai.OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model=MODEL, input="x")
    assert caught.value.code == "unsupported_model" and "embeddings" in str(caught.value)

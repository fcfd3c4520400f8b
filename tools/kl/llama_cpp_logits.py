"""Drives llama.cpp through llama-cpp-python: quantizes a GGUF file, writes the logits of texts, decodes greedily.

Runs under the Python of the peer `llama_cpp`, next to protocol.py of the drivers. All settings that are not named in
this file are llama.cpp's defaults: float16 K and V, and flash attention where llama.cpp has it.
"""

import ctypes

import llama_cpp
import numpy as np
from protocol import serve

KV = {"f16": "GGML_TYPE_F16", "f32": "GGML_TYPE_F32"}


class Context:
    """An open model file with room for `tokens` positions. Use it as a context manager."""

    def __init__(self, path, tokens, threads, kv):
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not read {path}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = tokens, tokens, min(tokens, 512)
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.type_k = parameters.type_v = getattr(llama_cpp, KV[kv])
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise RuntimeError("llama_init_from_model failed")
        self.width = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(tokens, 0, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def forget(self):
        """Clears the cache, so that the next text begins at position 0."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def step(self, ids, first):
        """Returns the logits (len(ids), vocabulary) of tokens at the positions from `first` on. They are valid until
        the next step."""
        self.batch.n_tokens = len(ids)
        for row, token in enumerate(ids):
            self.batch.token[row], self.batch.pos[row] = token, first + row
            self.batch.n_seq_id[row], self.batch.seq_id[row][0], self.batch.logits[row] = 1, 0, 1
        if llama_cpp.llama_decode(self.context, self.batch):
            raise RuntimeError("llama_decode failed")
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits(self.context), (len(ids), self.width))


class Driver:
    """See protocol.py of the drivers."""

    def __init__(self):
        llama_cpp.llama_backend_init()

    def version(self):
        """The version of llama-cpp-python."""
        return llama_cpp.__version__

    def quantize(self, source, kind, path, threads):
        """Writes `source`, a float32 file, to `path` in the llama.cpp mix named `kind`."""
        parameters = llama_cpp.llama_model_quantize_default_params()
        parameters.nthread = threads
        parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
        if llama_cpp.llama_model_quantize(source.encode(), path.encode(), ctypes.byref(parameters)):
            raise RuntimeError("llama_model_quantize failed")

    def logits(self, path, texts, output, threads, kv):
        """Writes the logits of all positions of all texts, float32, text by text. texts: lists of token ids."""
        with open(output, "wb") as file, Context(path, max(map(len, texts)), threads, kv) as context:
            for ids in texts:
                context.forget()
                context.step(ids, 0).tofile(file)

    def greedy(self, path, prompts, count, threads, kv):
        """Returns the `count` most likely tokens after each prompt, decoded one at a time."""
        answers = []
        with Context(path, max(map(len, prompts)) + count, threads, kv) as context:
            for ids in prompts:
                context.forget()
                rows, place, said = ids, 0, []
                while len(said) < count:
                    said.append(int(context.step(rows, place)[-1].argmax()))
                    place += len(rows)
                    rows = said[-1:]
                answers.append(said)
        return answers


if __name__ == "__main__":
    serve(Driver())

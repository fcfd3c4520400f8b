"""Drives llama.cpp through llama-cpp-python. A GGUF is written from the checkpoint and quantized by llama.cpp itself:
int8 to Q8_0, int4 to Q4_0, other weights to the type that is asked for.

For a published checkpoint, the caller has written a file with exact weights, which is quantized. For random weights the
driver writes a file without reordering the rows of q and k for llama.cpp's rope, because the work is the same.
"""

import ctypes
import json
import os
import struct
import time

from protocol import gguf_path, likeliest, long_gap, random_ids, serve

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


TYPES = {"int8": "Q8_0", "int4": "Q4_0"}


def gguf_name(name):
    """Returns a tensor's name in GGUF: model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight."""
    if name.startswith("model.layers."):
        _, _, index, *middle, kind = name.split(".")
        return f"blk.{index}.{NAMES['.'.join(middle)]}.{kind}"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]


def write_gguf(model, path):
    """Writes a float16 GGUF from a checkpoint that is a single bf16 safetensors file."""
    import gguf
    import numpy as np

    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    architecture = "qwen2" if config["model_type"] == "qwen2" else "llama"
    writer = gguf.GGUFWriter(path, architecture)
    heads = config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config.get("head_dim", config["hidden_size"] // heads))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = ["t", "0", *(f"t{i}" for i in range(config["vocab_size"] - 2))]
    writer.add_token_list(words)
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    with open(os.path.join(model, "model.safetensors"), "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    raw = np.memmap(os.path.join(model, "model.safetensors"), np.uint8, "r", 8 + size)
    for name, info in header.items():
        begin, end = info["data_offsets"]
        bits = raw[begin:end].view(np.uint16).reshape(info["shape"])
        values = (bits.astype(np.uint32) << 16).view(np.float32)
        writer.add_tensor(gguf_name(name), values if values.ndim == 1 else values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def exact_path(model):
    """Returns the path of the file with the weights of a published checkpoint, not rounded."""
    return f"{model.rstrip('/')}-exact.gguf"


class Driver:
    """The driver of llama.cpp; protocol.py lists the methods of a driver."""

    def prepare(self, model, weights):
        """Writes and quantizes the file; returns its path."""
        import llama_cpp

        stem = model.rstrip("/")
        kind = TYPES.get(weights, weights)
        path = gguf_path(model, kind)
        if not os.path.exists(path):
            source = exact_path(model)
            if not os.path.exists(source):
                source = f"{stem}-f16.gguf"
            if not os.path.exists(source):
                write_gguf(model, source)
            parameters = llama_cpp.llama_model_quantize_default_params()
            parameters.nthread = 2
            parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
            names = (source.encode(), f"{path}.partial".encode())
            if llama_cpp.llama_model_quantize(*names, ctypes.byref(parameters)):
                raise RuntimeError("llama_model_quantize failed")
            os.replace(f"{path}.partial", path)
        return path

    def files(self, model, weights):
        """Returns the paths that a start reads."""
        return [self.prepare(model, weights)]

    def load(self, model, weights, threads, context, sequences):
        """Loads the model. Returns the seconds that it took."""
        import llama_cpp

        path, self.lib, self.seed = self.prepare(model, weights), llama_cpp, 0
        began = time.perf_counter()
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = context * sequences, 2048, 512
        parameters.n_seq_max, parameters.n_threads, parameters.n_threads_batch = sequences, threads, threads
        parameters.kv_unified = False  # a unified cache would make each stream search the others' positions
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise RuntimeError("llama_init_from_model failed")
        self.batch = llama_cpp.llama_batch_init(2048, 0, 1)
        return time.perf_counter() - began

    def _forget(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def _feed(self, rows):
        """Computes the rows. rows: tuples (token, position, stream, whether logits are wanted)."""
        for first in range(0, len(rows), 2048):
            part = rows[first : first + 2048]
            self.batch.n_tokens = len(part)
            for i, (token, position, stream, wanted) in enumerate(part):
                self.batch.token[i], self.batch.pos[i] = token, position
                self.batch.n_seq_id[i], self.batch.seq_id[i][0], self.batch.logits[i] = 1, stream, wanted
            if self.lib.llama_decode(self.context, self.batch):
                raise RuntimeError("llama_decode failed")
            self.lib.llama_get_logits(self.context)  # waits until the computation is done

    def _prompt(self, tokens, stream=0):
        self.seed += 1
        ids = random_ids(tokens, self.seed)
        return [(token, i, stream, i == tokens - 1) for i, token in enumerate(ids)]

    def prefill(self, tokens):
        """Returns the tokens of the prompt divided by the seconds from the call to the first logits."""
        self._forget()
        rows = self._prompt(tokens)
        began = time.perf_counter()
        self._feed(rows)
        return tokens / (time.perf_counter() - began)

    def cached(self, tokens):
        """Returns the seconds to the logits of the last token of a prompt whose K and V are in the cache."""
        self._forget()
        rows = self._prompt(tokens)
        self._feed(rows)
        self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(self.context), 0, tokens - 1, -1)
        began = time.perf_counter()
        self._feed(rows[-1:])
        return time.perf_counter() - began

    def decode(self, batch, context, new_tokens):
        """Returns tokens a second of all streams. One prompt is read; the other streams begin with copies of its K and
        V."""
        self._forget()
        self._feed(self._prompt(context))
        memory = self.lib.llama_get_memory(self.context)
        for stream in range(1, batch):
            self.lib.llama_memory_seq_cp(memory, 0, stream, -1, -1)
        self._feed([(5, context, stream, True) for stream in range(batch)])
        began = time.perf_counter()
        for step in range(new_tokens):
            self._feed([(6 + step, context + 1 + step, stream, True) for stream in range(batch)])
        return batch * new_tokens / (time.perf_counter() - began)

    def logprobs(self, texts, top):
        import numpy as np

        width = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        found = []
        for ids in texts:
            self._forget()
            self._feed([(token, i, 0, True) for i, token in enumerate(ids)])
            rows = np.ctypeslib.as_array(self.lib.llama_get_logits(self.context), (len(ids), width))
            found.append([likeliest(row, top) for row in rows[:-1]])
        return found

    def weight_bytes(self):
        return self.lib.llama_model_size(self.model)

    def gap(self, context, new_tokens):
        """Returns the seconds that 95% of the gaps between one stream's tokens do not exceed."""
        self._forget()
        self._feed(self._prompt(context))
        arrivals = []
        for step in range(new_tokens):
            self._feed([(6 + step, context + step, 0, True)])
            arrivals.append(time.perf_counter())
        return long_gap(arrivals)


serve(Driver())

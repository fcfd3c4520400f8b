"""Drives OpenVINO GenAI on the CPU: LLMPipeline, many streams as one batch.

The checkpoint is exported by optimum-intel once for each number of bits; the export is kept next to the checkpoint.
int4 is symmetric, in groups of 128, or of the largest smaller power of two that divides the columns of every matrix.
"""

import json
import math
import os
import subprocess
import sys
import time

from protocol import bits_of, likeliest, random_ids, serve


def group_size(model):
    """Returns the number of columns in a group of int4. nncf refuses a number that does not divide the columns of every
    matrix."""
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    joined = heads * (config.get("head_dim") or hidden // heads)
    return math.gcd(128, hidden, config["intermediate_size"], joined)


class Driver:
    """The driver of OpenVINO GenAI; protocol.py lists the methods of a driver."""

    def prepare(self, model, weights):
        """Exports the checkpoint; returns the folder of the export."""
        bits = bits_of(weights)
        folder = f"{model.rstrip('/')}-openvino-int{bits}"
        if not os.path.exists(os.path.join(folder, "openvino_model.bin")):
            groups = ["--group-size", str(group_size(model)), "--sym", "--ratio", "1.0"]
            extra = groups if bits == 4 else []
            command = [os.path.join(os.path.dirname(sys.executable), "optimum-cli"), "export", "openvino", "-m", model]
            command += ["--task", "text-generation-with-past", "--weight-format", f"int{bits}", *extra, folder]
            subprocess.run(command, check=True, stdout=2)
        return folder

    def files(self, model, weights):
        """Returns the paths that a start reads."""
        return [self.prepare(model, weights)]

    def load(self, model, weights, threads, context, sequences):
        """Loads the model. Returns the seconds that it took."""
        import openvino_genai

        self.genai, self.folder, self.seed, self.batcher = openvino_genai, self.prepare(model, weights), 0, None
        self.settings = {"INFERENCE_NUM_THREADS": threads}
        began = time.perf_counter()
        self.pipeline = openvino_genai.LLMPipeline(self.folder, "CPU", **self.settings)
        return time.perf_counter() - began

    def _inputs(self, rows):
        import numpy as np
        import openvino

        ids = np.array(rows, dtype=np.int64)
        return self.genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))

    def _config(self, new_tokens):
        config = self.genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = new_tokens, True, False
        return config

    def _ids(self, tokens):
        self.seed += 1
        return random_ids(tokens, self.seed)

    def prefill(self, tokens):
        """Returns the tokens of the prompt divided by the seconds from the call to the first token."""
        inputs, config = self._inputs([self._ids(tokens)]), self._config(1)
        began = time.perf_counter()
        self.pipeline.generate(inputs, config)
        return tokens / (time.perf_counter() - began)

    def decode(self, batch, context, new_tokens):
        """Returns tokens a second of all streams, from the difference of two calls: one for 1 new token, one for
        new_tokens + 1.

        A call before both puts the prompts into the engine's prefix cache, where it has one.
        """
        inputs = self._inputs([self._ids(context) for _ in range(batch)])
        took = []
        for count in (1, 1, new_tokens + 1):
            began = time.perf_counter()
            self.pipeline.generate(inputs, self._config(count))
            took.append(time.perf_counter() - began)
        return batch * new_tokens / (took[2] - took[1])

    def cached(self, tokens):
        """Returns the seconds to the first token of a prompt that was read before."""
        inputs = self._inputs([self._ids(tokens)])
        self.pipeline.generate(inputs, self._config(1))
        began = time.perf_counter()
        self.pipeline.generate(inputs, self._config(1))
        return time.perf_counter() - began

    def logprobs(self, texts, top):
        """Returns the likeliest next tokens, as protocol.py describes. LLMPipeline returns a single token, so the
        exported model itself is run by OpenVINO's runtime, with the pipeline's settings. The model reads each text in
        one step, so K and V are not rounded."""
        import numpy as np
        import openvino

        compiled = openvino.Core().compile_model(os.path.join(self.folder, "openvino_model.xml"), "CPU", self.settings)
        named = {name for port in compiled.inputs for name in port.get_names()}
        found = []
        for ids in texts:
            count = len(ids)
            fed = {"input_ids": [ids], "attention_mask": [[1] * count], "position_ids": [list(range(count))]}
            inputs = {name: np.array(rows, dtype=np.int64) for name, rows in fed.items() if name in named}
            if "beam_idx" in named:
                inputs["beam_idx"] = np.zeros(1, dtype=np.int32)
            request = compiled.create_infer_request()
            rows = request.infer(inputs)[compiled.output("logits")][0]
            found.append([likeliest(row, top) for row in rows[:-1]])
        return found

    def weight_bytes(self):
        return os.path.getsize(os.path.join(self.folder, "openvino_model.bin"))


serve(Driver())

"""Drives ONNX Runtime GenAI on the CPU, with int4 weights in blocks of 32 and int8 activations (accuracy level 4).

Its model builder makes the model once, in a folder next to the checkpoint.
"""

import json
import os
import subprocess
import sys
import time

from protocol import Unable, bits_of, long_gap, random_ids, serve


class Driver:
    """The driver of ONNX Runtime GenAI; protocol.py lists the methods of a driver."""

    def prepare(self, model, weights):
        """Builds the model; returns its folder."""
        if bits_of(weights) != 4:
            raise Unable("its model builder makes int4 for a CPU, not int8")
        folder = f"{model.rstrip('/')}-onnxruntime-int4"
        if not os.path.exists(os.path.join(folder, "genai_config.json")):
            command = [
                sys.executable,
                "-m",
                "onnxruntime_genai.models.builder",
                "-i",
                model,
                "-o",
                folder,
                "-p",
                "int4",
            ]
            command += ["-e", "cpu", "-c", f"{folder}-cache", "--extra_options", "int4_accuracy_level=4"]
            subprocess.run(command, check=True, stdout=2)
        return folder

    def files(self, model, weights):
        """Returns the paths that a start reads."""
        return [self.prepare(model, weights)]

    def load(self, model, weights, threads, context, sequences):
        """Loads the model. Returns the seconds that it took."""
        import numpy
        import onnxruntime_genai

        self.np, self.genai, self.seed, self.context = numpy, onnxruntime_genai, 0, context
        folder = self.prepare(model, weights)
        began = time.perf_counter()
        config = onnxruntime_genai.Config(folder)
        options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self.model = onnxruntime_genai.Model(config)
        return time.perf_counter() - began

    def _ids(self, tokens):
        self.seed += 1
        return random_ids(tokens, self.seed)

    def _begun(self, rows, new_tokens):
        """Returns a generator that has read the prompts and chosen one token for each."""
        parameters = self.genai.GeneratorParams(self.model)
        tokens = len(rows[0]) + new_tokens + 1
        parameters.set_search_options(max_length=tokens, min_length=tokens, do_sample=False, batch_size=len(rows))
        generator = self.genai.Generator(self.model, parameters)
        generator.append_tokens(self.np.array(rows, dtype=self.np.int32))
        generator.generate_next_token()
        return generator

    def prefill(self, tokens):
        """Returns tokens a second, from the call to the first token."""
        rows = [self._ids(tokens)]
        began = time.perf_counter()
        self._begun(rows, 1)
        return tokens / (time.perf_counter() - began)

    def decode(self, batch, context, new_tokens):
        """Returns tokens a second of all streams."""
        generator = self._begun([self._ids(context) for _ in range(batch)], new_tokens)
        began = time.perf_counter()
        for _ in range(new_tokens):
            generator.generate_next_token()
        return batch * new_tokens / (time.perf_counter() - began)

    def gap(self, context, new_tokens):
        """Returns the seconds that 95% of the gaps between one stream's tokens do not exceed."""
        generator = self._begun([self._ids(context)], new_tokens)
        arrivals = []
        for _ in range(new_tokens):
            generator.generate_next_token()
            arrivals.append(time.perf_counter())
        return long_gap(arrivals)


serve(Driver())

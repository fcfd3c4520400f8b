"""Drives vLLM on the CPU with bf16 weights: vLLM has no int8 or int4 on the CPU for a plain checkpoint."""

import os
import time

from protocol import bits_of, random_ids, serve


class Driver:
    """The driver of vLLM; protocol.py lists the methods of a driver."""

    def files(self, model, weights):
        """Returns the paths that a start reads."""
        return [model]

    def load(self, model, weights, threads, context, sequences):
        """Loads the model. Returns the seconds that it took. The weights stay bf16; no GGUF file is read."""
        bits_of(weights)
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = "4"
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # a single process, so its memory is the engine's
        began = time.perf_counter()
        from vllm import LLM, SamplingParams

        self.params, self.seed = SamplingParams, 0
        self.llm = LLM(model, dtype="bfloat16", max_model_len=context, max_num_seqs=sequences)
        return time.perf_counter() - began

    def _generate(self, rows, new_tokens):
        """Returns the seconds for `new_tokens` tokens after each prompt."""
        params = self.params(temperature=0.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)
        began = time.perf_counter()
        self.llm.generate([{"prompt_token_ids": row} for row in rows], params, use_tqdm=False)
        return time.perf_counter() - began

    def _ids(self, tokens):
        self.seed += 1
        return random_ids(tokens, self.seed)

    def prefill(self, tokens):
        """Returns tokens a second, from the call to the first token."""
        return tokens / self._generate([self._ids(tokens)], 1)

    def decode(self, batch, context, new_tokens):
        """Returns tokens a second of all streams, from the difference of two calls with cached prompts: one for 1 new
        token, one for new_tokens + 1."""
        rows = [self._ids(context) for _ in range(batch)]
        took = [self._generate(rows, count) for count in (1, 1, new_tokens + 1)]
        return batch * new_tokens / (took[2] - took[1])

    def cached(self, tokens):
        """Returns the seconds to the first token of a prompt that was read before."""
        rows = [self._ids(tokens)]
        self._generate(rows, 1)
        return self._generate(rows, 1)


if __name__ == "__main__":
    serve(Driver())

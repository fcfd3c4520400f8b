"""Twostroke itself, driven like a peer."""

import time

from protocol import gguf_path, long_gap, random_ids, serve, steady_rate


def _source(model, weights):
    """Returns the checkpoint, or its GGUF file where the weights have a type of GGUF files."""
    return model if _is_own(weights) and not model.endswith(".gguf") else gguf_path(model, weights)


def _is_own(weights):
    """Returns whether `weights` is a format of this engine, such as int8 or bf16. Types of GGUF files have capitals."""
    return weights.islower()


class Driver:
    """The driver of Twostroke; protocol.py lists the methods of a driver."""

    def files(self, model, weights):
        """Returns the paths that a start reads. One is the cache of packed weights, which need not exist yet."""
        from twostroke.assembly.settings.env import read_machine

        return [_source(model, weights), str(read_machine().cache_folder / "packed")]

    def load(self, model, weights, threads, context, sequences, kv="bf16"):
        """Loads the model. Returns the seconds that it took. kv: the format of K and V."""
        from twostroke import LLM

        source = _source(model, weights)
        began = time.perf_counter()
        settings = {
            "context": context,
            "max_sequences": sequences,
            "threads": threads,
            "kv_memory": "2GB",
            "kv_format": kv,
            "speculate": "off",
        }
        if source == model and not model.endswith(".gguf"):
            settings["weights"] = weights
        self.llm = LLM(source, **settings)
        self.seed, self.started = 0, False
        return time.perf_counter() - began

    def _prompt(self, tokens, new_tokens, seed=None):
        from twostroke import SamplingParams
        from twostroke.types.output import Prompt

        self.seed += 1
        ids = tuple(random_ids(tokens, self.seed if seed is None else seed))
        return Prompt(ids, SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True))

    def prefill(self, tokens):
        """Returns the tokens of the prompt divided by the seconds from the call to the first token. All calls but the
        first wait until the weights lie in huge pages. The first call after `load` does not: the benchmark counts it as
        part of the engine's start."""
        if self.started:
            self.llm.settle()
        self.started = True
        began = time.perf_counter()
        self.llm.engine.generate([self._prompt(tokens, 1)])
        return tokens / (time.perf_counter() - began)

    def cached(self, tokens):
        """Returns the seconds to the first token of a prompt that was read before."""
        self.llm.engine.generate([self._prompt(tokens, 1, seed=7)])
        began = time.perf_counter()
        self.llm.engine.generate([self._prompt(tokens, 1, seed=7)])
        return time.perf_counter() - began

    def decode(self, batch, context, new_tokens):
        """Returns tokens a second of all streams. Their prompts were read before, so that all streams begin together.
        """
        seeds = range(self.seed + 1, self.seed + 1 + batch)
        self.llm.engine.generate([self._prompt(context, 1, seed) for seed in seeds])
        prompts = [self._prompt(context, new_tokens, seed) for seed in seeds]
        arrivals = []
        for delta in self.llm.engine.stream(prompts):
            arrivals += [(time.perf_counter(), delta.request_id)] * len(delta.token_ids)
        return steady_rate(arrivals)

    def logprobs(self, texts, top):
        from twostroke import SamplingParams
        from twostroke.types.output import Prompt

        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=top)
        outputs = self.llm.engine.generate([Prompt(tuple(ids), params) for ids in texts])
        return [[list(zip(*each.top, strict=True)) for each in output.prompt_logprobs] for output in outputs]

    def weight_bytes(self):
        from twostroke.ops.quant.formats import format_choice

        formats, weights = format_choice(self.llm.resolved.model.weights), self.llm.spec.plain.weights
        return sum(formats(weight).total_bytes(weight.all_rows, weight.columns) for weight in weights)

    def gap(self, context, new_tokens):
        """Returns the seconds that 95% of the gaps between one stream's tokens do not exceed."""
        stream = self.llm.engine.stream([self._prompt(context, new_tokens)])
        return long_gap([time.perf_counter() for delta in stream for _ in delta.token_ids])


serve(Driver())

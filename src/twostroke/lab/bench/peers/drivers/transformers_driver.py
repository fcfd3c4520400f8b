"""Drives transformers with PyTorch on the CPU, with bf16 weights: a baseline that is available everywhere."""

import time

from protocol import bits_of, likeliest, long_gap, random_ids, serve


class Driver:
    """The driver of Hugging Face transformers; protocol.py lists the methods of a driver."""

    def files(self, model, weights):
        """Returns the paths that a start reads."""
        return [model]

    def load(self, model, weights, threads, context, sequences):
        """Loads the model. Returns the seconds that it took. The weights stay bf16; no GGUF file is read."""
        bits_of(weights)
        import torch
        from transformers import AutoModelForCausalLM

        began = time.perf_counter()
        torch.set_num_threads(threads)
        self.torch, self.seed = torch, 0
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
        self.model.train(False)
        return time.perf_counter() - began

    def _ids(self, rows, tokens):
        self.seed += 1
        return self.torch.tensor([random_ids(tokens, self.seed * 1000 + row) for row in range(rows)])

    def prefill(self, tokens):
        """Returns the tokens of the prompt divided by the seconds from the call to the first token."""
        ids = self._ids(1, tokens)
        began = time.perf_counter()
        with self.torch.inference_mode():
            int(self.model(ids, logits_to_keep=1).logits[0, -1].argmax())
        return tokens / (time.perf_counter() - began)

    def decode(self, batch, context, new_tokens):
        """Returns tokens a second of all streams."""
        with self.torch.inference_mode():
            made = self.model(self._ids(batch, context), use_cache=True, logits_to_keep=1)
            began = time.perf_counter()
            for _ in range(new_tokens):
                made = self.model(made.logits[:, -1:].argmax(-1), past_key_values=made.past_key_values, use_cache=True)
            return batch * new_tokens / (time.perf_counter() - began)

    def logprobs(self, texts, top):
        with self.torch.inference_mode():
            rows = [self.model(self.torch.tensor([ids])).logits[0, :-1].float().numpy() for ids in texts]
        return [[likeliest(row, top) for row in text] for text in rows]

    def gap(self, context, new_tokens):
        """Returns the seconds that 95% of the gaps between one stream's tokens do not exceed."""
        arrivals = []
        with self.torch.inference_mode():
            made = self.model(self._ids(1, context), use_cache=True, logits_to_keep=1)
            for _ in range(new_tokens):
                made = self.model(made.logits[:, -1:].argmax(-1), past_key_values=made.past_key_values, use_cache=True)
                arrivals.append(time.perf_counter())
        return long_gap(arrivals)


serve(Driver())

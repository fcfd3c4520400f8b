"""How a driver communicates: it reads one JSON object a line and writes one a line. It runs under the peer's own
Python.

A driver is an object with load(model, weights, threads, context, sequences) and a method for each case it can do:
prefill(tokens), decode(batch, context, new_tokens), cached(tokens), gap(context, new_tokens). Each returns seconds or
tokens a second, according to its command. logprobs(texts, top) takes texts as lists of token ids. For each token of a
text but the last it returns the ids of the `top` likeliest next tokens and their log probabilities. weight_bytes()
returns how many bytes hold all weights. prepare(model, weights), which not every driver has, exports the checkpoint.
files(model, weights) returns the paths that a start reads. weights: int8, int4, another format of ours, or a type of
GGUF files such as Q4_K_M. For such a type, the engine reads the file that `gguf_path` names, which llama.cpp's driver
wrote.
"""

import json
import os
import sys
import time


class Answers:
    """Writes answers to the real standard output. All other output of an engine goes to standard error."""

    def __init__(self):
        self.file = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, value):
        """Writes a value as one line of JSON."""
        self.file.write(json.dumps(value) + "\n")
        self.file.flush()


class Unable(Exception):
    """Raised where the engine cannot do what is asked; the text gives the reason."""


def gguf_path(model, weights):
    """Returns the path of the GGUF file with this type of weights, next to the checkpoint's folder. For a model that is
    itself a GGUF file, returns `model`."""
    if model.endswith(".gguf"):
        return model
    return f"{model.rstrip('/')}-{weights}.gguf"


def bits_of(weights):
    """Returns 8 for int8 and 4 for int4. Raises Unable for other weights."""
    if weights not in ("int8", "int4"):
        raise Unable(f"its driver reads no {weights} files")
    return int(weights[3:])


class Prompts:
    """Holds the exclusive bound of random token ids: 50,000, or the size of the vocabulary that `load` was told, if
    that is smaller."""

    vocabulary = 50_000


def random_ids(count, seed):
    """Returns random token ids. They are the same for the same seed under every Python."""
    state, made = seed * 2654435761 % 2**32, []
    first = min(1000, Prompts.vocabulary // 2)
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        made.append(first + (state >> 8) % (Prompts.vocabulary - first))
    return made


def likeliest(logits, top):
    """Returns the ids of the `top` largest logits of a row, the largest first, and their log probabilities."""
    import numpy

    row = numpy.asarray(logits, dtype=numpy.float64)
    row = row - row.max()
    row -= numpy.log(numpy.exp(row).sum())
    ids = numpy.argsort(-row)[:top]
    return [ids.tolist(), row[ids].tolist()]


def steady_rate(arrivals):
    """Returns tokens a second during the time in which every stream was decoding. arrivals: a pair (seconds, stream)
    for each token."""
    first, last = {}, {}
    for at, stream in arrivals:
        first.setdefault(stream, at)
        last[stream] = at
    begin, end = max(first.values()), min(last.values())
    return sum(begin < at <= end for at, _ in arrivals) / (end - begin)


def long_gap(arrivals):
    """Returns the seconds that 95% of the gaps between tokens do not exceed. arrivals: the times of one stream's tokens
    in seconds."""
    gaps = sorted(after - before for before, after in zip(arrivals[:-1], arrivals[1:], strict=True))
    return gaps[min(len(gaps) - 1, len(gaps) * 95 // 100)]


def serve(driver):
    """Reads commands from standard input, calls the driver's method of the same name, and writes each result. Returns
    when the input ends. driver: an object as the module describes."""
    answers = Answers()
    for line in sys.stdin:
        asked = json.loads(line)
        command = asked.pop("command")
        Prompts.vocabulary = min(Prompts.vocabulary, asked.pop("vocabulary", Prompts.vocabulary))
        act = getattr(driver, command, None)
        if act is None:
            answers.say({"missing": f"it has no {command} here"})
            continue
        try:
            began = time.perf_counter()
            value = act(**asked)
            answers.say({"value": value, "seconds": time.perf_counter() - began})
        except Unable as reason:
            answers.say({"missing": str(reason)})
        except Exception as error:  # every fault of an engine is reported: the run goes on without that case
            answers.say({"error": f"{type(error).__name__}: {error}"[:500]})

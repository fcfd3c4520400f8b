"""The bars in seconds of everyday use, each with the function that measures it."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tools.ab import by_turns
from tools.everyday import samplers
from tools.everyday.running import Server, first_byte_s, served

ROUNDS = 7
LONG_TEXT = 420
"""Sentences of a long prompt, which have about 7,000 tokens."""
Figure = tuple[float, str]


@dataclass(frozen=True)
class Asked:
    """model: the model that is measured. other: a second, small one. folder: a folder for caches."""

    model: str
    other: str
    folder: Path


@dataclass(frozen=True)
class Bar:
    """section: the section of the design. limit: the largest figure that meets the bar, in `unit`. measure: returns the
    figure and words about it."""

    section: str
    words: str
    limit: float
    unit: str
    measure: Callable[[Asked], Figure] = field(repr=False)


def table(asked: Asked) -> Figure:
    """The first look into the table of short names, which reads it."""
    from twostroke.weights.store.table import row_of, rows

    found = []
    for _ in range(ROUNDS):
        rows.cache_clear()
        begin_s = time.perf_counter()
        row_of("llama3.2:1b")
        found.append(time.perf_counter() - begin_s)
    begin_s = time.perf_counter()
    row_of("llama3.2:1b")
    return 1e3 * median(found), f"a later look {1e6 * (time.perf_counter() - begin_s):.0f} us"


def list_of_200(asked: Asked) -> Figure:
    """`twostroke list` of 200 models as a whole command, with the start of Python."""
    hub = asked.folder / "cache" / "huggingface" / "hub"
    for number in range(200):
        folder = hub / f"models--owner--m{number}-GGUF"
        blob, link = folder / "blobs" / f"{number:064x}", folder / "snapshots" / ("c" * 40) / f"m{number}-Q4_K_M.gguf"
        for each in (blob, link):
            each.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(b"x")
        if not link.is_symlink():
            link.symlink_to(blob)
    found = [first_byte_s(asked.folder, "list", "--json") for _ in range(ROUNDS)]
    bare = [first_byte_s(asked.folder, "--version") for _ in range(ROUNDS)]
    return median(found), f"`--version` alone takes {median(bare):.2f} s"


def first_word(asked: Asked) -> Figure:
    """The first word of `run`, where the weights are packed."""
    words = ("run", asked.model, "What is prefill?", "--max-tokens", "1", "--local")
    first_byte_s(asked.folder, *words)
    found = [first_byte_s(asked.folder, *words) for _ in range(ROUNDS)]
    return median(found), f"{min(found):.2f} to {max(found):.2f}"


def _several(asked: Asked, server: Server) -> list[str]:
    return list(server.json("/health")["models"])


def from_unloaded(asked: Asked) -> Figure:
    """Returns the seconds from a request for an unloaded model to its first token, in a server of two models."""
    with served(asked.folder, asked.model, asked.other) as server:
        name, found = _several(asked, server)[0], []
        server.chat(name, "Hello")
        for _ in range(ROUNDS):
            server.json("/models/unload", {"model": name})
            server.wait_for(name, "unloaded")
            found.append(server.chat(name, "Hello")[0])
    return median(found), f"{min(found):.2f} to {max(found):.2f}"


def unload(asked: Asked) -> Figure:
    """The seconds from the wish to unload a model to the end of its process."""
    with served(asked.folder, asked.model, asked.other) as server:
        name, found = _several(asked, server)[0], []
        for _ in range(ROUNDS):
            server.chat(name, "Hello")
            server.json("/models/unload", {"model": name})
            found.append(server.wait_for(name, "unloaded"))
    return median(found), f"{min(found):.2f} to {max(found):.2f}"


def ollama_line(asked: Asked) -> Figure:
    """How much later the first line of Ollama's route comes than that of OpenAI's."""
    with served(asked.folder, asked.other) as server:
        name = _name(server)
        chat = {"model": name, "messages": [{"role": "user", "content": "Hello"}]}
        routes = {
            "openai": lambda _: server.times("/v1/chat/completions", {**chat, "max_tokens": 4})[0],
            "ollama": lambda _: server.times("/api/chat", {**chat, "options": {"num_predict": 4}})[0],
        }
        found = by_turns(routes, 40, 4)
    first, second = (1e3 * median(found[name]) for name in ("openai", "ollama"))
    return second - first, f"{second:.2f} and {first:.2f} ms"


def front(asked: Asked) -> Figure:
    """How much longer the gap between two tokens is with a front than with one process. Both servers run at the same
    time and answer in turn."""
    with served(asked.folder, asked.other) as alone, served(asked.folder, asked.other, "--replicas", "1") as fronted:
        name = _name(alone)
        gaps = [_gap(each.chat(name, "Hello", 100)) for _ in range(20) for each in (alone, fronted)]
        firsts = [each.chat(name, "Hello")[0] for _ in range(30) for each in (alone, fronted)]
    more, first = (1e3 * (median(found[1::2]) - median(found[::2])) for found in (gaps, firsts))
    return more, f"the first token comes {first:.2f} ms later (bar: 1 ms)"


def _name(server: Server) -> str:
    return str(server.json("/v1/models")["data"][0]["id"])


def _gap(times: Sequence[float]) -> float:
    return median([later - sooner for sooner, later in zip(times[1:], times[2:], strict=False)])


def after_restart(asked: Asked) -> Figure:
    """The first token of a long prompt after a restart, with K and V on the disk, as a share of that without."""
    towns = ("Alba", "Bern", "Cork")
    text = " ".join(f"In year {n} the town of {towns[n % 3]} built {n * 7 % 13} bridges." for n in range(LONG_TEXT))
    words = (asked.model, "--kv-disk", "2GB")
    with served(asked.folder, *words) as server:
        name = _name(server)
        server.chat(name, "Hello")
        cold_s = server.chat(name, text)[0]
    with served(asked.folder, *words) as server:
        server.chat(name, "Hello")
        found_s = server.chat(name, text)[0]
    return found_s / cold_s, f"{found_s:.2f} s, cold {cold_s:.2f} s"


def two_busy(asked: Asked) -> Figure:
    """Two busy models in one server: their tokens a second as shares of those alone, added; 1 is sharing by hand."""
    with served(asked.folder, asked.model, asked.other) as server:
        names = _several(asked, server)[:2]
        for name in names:
            server.chat(name, "Hello", 20)
        alone = {name: _stream(server, name) for name in names}
        together = dict[str, list[float]]()
        threads = [
            threading.Thread(target=lambda name=name: together.__setitem__(name, _stream(server, name)))
            for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shares = [_rate(together[name]) / _rate(alone[name]) for name in names]
    slower = max(_p95(together[name]) / _p95(alone[name]) for name in names)
    return -sum(shares), f"p95 gap {slower:.2f} times that alone (bar: 2.2); shares {shares[0]:.2f} and {shares[1]:.2f}"


def _stream(server: Server, name: str, seconds: float = 8.0) -> list[float]:
    """Returns the gaps of answers that follow each other for some seconds."""
    until_s, found = time.perf_counter() + seconds, list[float]()
    while time.perf_counter() < until_s:
        times = server.chat(name, "Write on.", 200)
        found += [later - sooner for sooner, later in zip(times[1:], times[2:], strict=False)]
    return found


def _rate(gaps: Sequence[float]) -> float:
    return len(gaps) / sum(gaps)


def _p95(gaps: Sequence[float]) -> float:
    return sorted(gaps)[int(0.95 * len(gaps))]


def other_samplers(asked: Asked) -> Figure:
    """The slowest sampler of a steep row, as times top-p."""
    found = samplers.of_samplers(128_256, 25)["steep"]
    shares = {name: each / found["top_p"] for name, each in found.items()}
    slowest = max(shares, key=lambda name: shares[name])
    return shares[slowest], f"{slowest}; top-p {found['top_p']:.0f} us"


def dry(asked: Asked) -> Figure:
    """Returns the time of the DRY sampler with 8,000 tokens in its history that are distributed like words."""
    found = samplers.of_dry(8000)
    rest = ", ".join(f"{each['later']:.0f} ({name.partition(',')[0]})" for name, each in found.items())
    return found["as words, 8,000 tokens"]["later"], rest


BARS = {
    "table": Bar("2", "the table of names resolves", 1.0, "ms", table),
    "list": Bar("2", "`list` of 200 models", 0.3, "s", list_of_200),
    "first-word": Bar("2", "first word of `run` of 1 B after `pull`", 1.0, "s", first_word),
    "load": Bar("3", "1 B from unloaded to its first token", 1.0, "s", from_unloaded),
    "unload": Bar("3", "unload to the end of the process", 0.5, "s", unload),
    "two-busy": Bar("3", "tokens of two busy models, minus their shares of those alone", -0.95, "", two_busy),
    "front": Bar("3", "the gap between two tokens, with a front", 0.2, "ms later", front),
    "ollama": Bar("4", "first line of /api/chat after that of OpenAI's route", 1.0, "ms", ollama_line),
    "dry": Bar("5", "DRY over 8,000 tokens", 50.0, "us", dry),
    "samplers": Bar("5", "the slowest other sampler", 1.2, "times top-p", other_samplers),
    "restart": Bar(
        "7", "first token of a long prompt after a restart, as a share of a cold one", 0.1, "", after_restart
    ),
}
NOT_HERE = {
    "2": "first word of an 8 B model: give one with --model",
    "3": "8 B from unloaded: give one with --model; swaps back from the disk: `restart`",
    "6": "10,000 lines of a batch next to 8 users; a stored response of 8,000 tokens",
    "7": "longest gaps of other streams while pages are written and read",
}
"""Bars that this tool does not measure, by section."""


def measured(name: str, model: str, other: str) -> Figure:
    """Measures one bar in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="twostroke-bars-") as folder:
        return BARS[name].measure(Asked(model, other, Path(folder)))

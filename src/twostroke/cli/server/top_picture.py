"""Adds up the messages with a server's latest steps for `twostroke top`, and shows them as figures and as a rich table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

WINDOW_S = 5.0
MOST_STEPS, MOST_SHOWN = 16_384, 12
BAR = 40
PHASES = {"queued": "yellow", "filling": "dark_orange", "decoding": "blue", "back": "red"}


class Picture:
    """The figures that `twostroke top` shows: call `add` with each message of the server, then `figures` or `drawing`.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._about = about
        self._steps: deque[dict[str, float]] = deque(maxlen=MOST_STEPS)
        self._frame: Mapping[str, Any] = {}

    def add(self, frame: Mapping[str, Any]) -> None:
        """Adds a message of the server: its new steps, its counters and its present requests."""
        self._frame = frame
        for run in frame["runs"]:
            prompt = sum(tokens for _, _, tokens, _, decoded in run["rows"] if not decoded)
            for since_us, *spans_us, _ in run["times"]:
                seconds, model_s, sampling_s = (1e-6 * span for span in spans_us)
                self._steps.append(
                    {
                        "end_s": run["begin_s"] + 1e-6 * since_us + seconds,
                        "seconds": seconds,
                        "prefill_s": model_s * run["prefill_share"],
                        "decode_s": model_s * (1 - run["prefill_share"]),
                        "sampling_s": sampling_s,
                        "prompt": prompt,
                        "decode": sum(decoded for *_, decoded in run["rows"]),
                        "predicted_s": run.get("predicted_s", [0.0])[0],
                    }
                )

    def figures(self) -> dict[str, Any]:
        """Returns the figures of the last five seconds of steps; times in seconds, rates in tokens a second."""
        now_s = self._frame["now_s"]
        steps = [step for step in self._steps if step["end_s"] >= now_s - WINDOW_S]
        spent_s = sum(step["seconds"] for step in steps)
        parts = {name: sum(step[f"{name}_s"] for step in steps) for name in ("prefill", "decode", "sampling")}
        parts["host"] = max(0.0, spent_s - sum(parts.values()))
        predicted_s = sum(step["predicted_s"] for step in steps)
        gauges = self._frame["gauges"]
        return {
            "model": self._about["model"],
            "running": gauges.get("running", 0),
            "waiting": gauges.get("waiting", 0),
            "steps_per_s": len(steps) / WINDOW_S,
            "prefill_tokens_per_s": sum(step["prompt"] for step in steps) / WINDOW_S,
            "decode_tokens_per_s": sum(step["decode"] for step in steps) / WINDOW_S,
            "busy_share": min(1.0, spent_s / WINDOW_S),
            "shares": {name: seconds / spent_s if spent_s else 0.0 for name, seconds in parts.items()},
            "predicted_over_measured": predicted_s / spent_s if spent_s and predicted_s else None,
            "latency": self._frame["latency"],
            "pages": {name: gauges.get(f"pages_{name}", 0) for name in ("used", "cached", "free")},
            "preemptions": gauges.get("preemptions_total", 0),
            "requests": [self._request(row) for row in self._frame["requests"]],
            "replicas": self._frame.get("replicas", []),
        }

    def drawing(self) -> Group:
        """Returns the figures as a picture of the terminal's width."""
        found = self.figures()
        return Group(
            _head(found), _bars(found), _latency(found), _replicas(found["replicas"]), _requests(found["requests"])
        )

    def _request(self, row: list[Any]) -> dict[str, Any]:
        name, phase, arrival_s, _, token_s, prompt, computed, cached = row
        return {
            "request": self._frame["names"][name],
            "phase": phase,
            "age_s": max(0.0, self._frame["now_s"] - arrival_s),
            "ttft_s": None if token_s is None else token_s - arrival_s,
            "prompt_tokens": prompt,
            "computed_tokens": computed,
            "cached_tokens": cached,
        }


def _head(found: Mapping[str, Any]) -> Panel:
    shown = (
        f"{found['running']} running, {found['waiting']} waiting    "
        f"prefill {found['prefill_tokens_per_s']:,.0f} tok/s    decode {found['decode_tokens_per_s']:,.0f} tok/s    "
        f"{found['steps_per_s']:,.0f} steps/s    busy {found['busy_share']:.0%}    {found['preemptions']} preemptions"
    )
    return Panel(shown, title=f"twostroke top: {found['model']}", title_align="left")


def _bars(found: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 1))
    colours = {"prefill": "dark_orange", "decode": "blue", "sampling": "magenta", "host": "bright_black"}
    ratio = found["predicted_over_measured"]
    shown = "  ".join(f"{name} {share:.0%}" for name, share in found["shares"].items())
    shown += "" if ratio is None else f"  predicted/measured {ratio:.2f}"
    table.add_row("steps", _bar(found["shares"], colours), shown)
    pages, total = found["pages"], sum(found["pages"].values()) or 1
    shares = {name: pages[name] / total for name in ("used", "cached")}
    words = "  ".join(f"{name} {count:,}" for name, count in pages.items())
    table.add_row("KV pages", _bar(shares, {"used": "blue", "cached": "cyan"}), words)
    return table


def _bar(shares: Mapping[str, float], colours: Mapping[str, str]) -> Text:
    bar = Text()
    for name, share in shares.items():
        bar.append("█" * round(share * BAR), colours[name])
    bar.truncate(BAR)
    bar.append("·" * (BAR - len(bar)), "bright_black")
    return bar


def _latency(found: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("", "p50", "p90", "p99", "objective", "within"):
        table.add_column(title, justify="right" if title else "left")
    for name, each in found["latency"].items():
        objective_s, within = each["objective_s"], each.get("within")
        cells = [_late(each.get(f"p{share}_s"), objective_s) for share in (50, 90, 99)]
        table.add_row(name.upper(), *cells, _ms(objective_s), "-" if within is None else f"{within:.1%}")
    return table


def _replicas(replicas: list[dict[str, Any]]) -> Table:
    """Returns a table with a row for each replica of a front; a server without replicas has no row."""
    table = Table(box=None, pad_edge=False)
    columns = ("name", "state", "role", "running", "waiting", "prompt_tokens", "pages_used", "step_s")
    for title in columns if replicas else ():
        title = {"name": "replica", "step_s": "last step"}.get(title, title.replace("_", " "))
        table.add_column(title, justify="left" if title in ("replica", "state", "role") else "right")
    for each in replicas:
        shown = {**each, "name": each["name"] or each["address"], "step_s": _ms(each["step_s"] or None)}
        table.add_row(*(str(shown[name]) for name in columns))
    return table


def _requests(requests: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("request", "phase", "age", "TTFT", "prompt", "computed", "cached"):
        table.add_column(title, justify="left" if title in ("request", "phase") else "right")
    for each in requests[:MOST_SHOWN]:
        counts = [f"{each[name]:,}" for name in ("prompt_tokens", "computed_tokens", "cached_tokens")]
        phase = Text(each["phase"], PHASES.get(each["phase"], ""))
        table.add_row(each["request"], phase, _ms(each["age_s"]), _ms(each["ttft_s"]), *counts)
    if len(requests) > MOST_SHOWN:
        table.add_row(f"and {len(requests) - MOST_SHOWN} more")
    return table


def _late(seconds: float | None, objective_s: float | None) -> Text:
    over = seconds is not None and objective_s is not None and seconds > objective_s
    return Text(_ms(seconds), "red" if over else "")


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{1e3 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"

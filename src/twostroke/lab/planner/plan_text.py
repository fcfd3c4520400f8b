"""A plan as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from twostroke.cost.memory import KEPT_FREE_SHARE
from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.ceilings import answer_s
from twostroke.lab.planner.choose import Candidate, seconds
from twostroke.lab.planner.closed_loop import Load
from twostroke.lab.planner.expect import ARITHMETIC, Expectation, Phase, Room
from twostroke.lab.planner.images import image_lines
from twostroke.lab.planner.plan import ModelPlan
from twostroke.lab.planner.savings import needed_read_words

MOST_CANDIDATES = 24
LACK_WORDS = {"memory": "does not hold them", "ttft": "TTFT too long", "itl": "ITL too long"}


def plan_text(plan: ModelPlan) -> str:
    """Returns the plan as sections of a few lines each."""
    sections = [
        *(_head(plan), _memory(plan), _images(plan), _phases(plan), _load(plan), _prices(plan), _catalogue(plan)),
        ["What would change it:", *(f"  - {saving.words}" for saving in plan.savings)],
        ["Round figures you may have read:", *(f"  - {figure}" for figure in plan.round_figures)]
        if plan.round_figures
        else [],
        ["Assumptions:", *(f"  - {assumption}" for assumption in plan.assumptions)],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def size(num_bytes: float) -> str:
    """Returns a number of bytes as text, in the unit that fits."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return (
                f"{num_bytes / factor:,.3g} {unit}" if num_bytes < 1e3 * factor else f"{num_bytes / factor:,.0f} {unit}"
            )
    return f"{num_bytes:.0f} bytes"


def rate(tokens_per_s: float) -> str:
    """Returns a rate as text, in tokens a second."""
    return f"{tokens_per_s:,.1f} tok/s" if tokens_per_s < 100 else f"{tokens_per_s:,.0f} tok/s"


def _parameters(count: int) -> str:
    return f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"


def _has_experts(room: Room) -> bool:
    return room.active_parameters < room.parameters


def _head(plan: ModelPlan) -> list[str]:
    target, ask = plan.expectation.target, plan.ask
    peak = target.peak_ops_per_s(ask.arithmetic)
    room = plan.expectation.room
    of_a_token = f" ({_parameters(room.active_parameters)} for each token)" if _has_experts(room) else ""
    return [
        f"{plan.source}: {_parameters(room.parameters)} parameters{of_a_token}, weights {ask.weights}, "
        f"K and V {ask.kv_words}",
        f"on {target.title}: {size(target.memory_bytes)}, {target.read_bytes_per_s / 1e9:,.4g} GB/s, "
        f"{peak / 1e12:,.4g} T operations a second with these weights",
    ]


def _memory(plan: ModelPlan) -> list[str]:
    room, ask = plan.expectation.room, plan.ask
    read = "of experts, those that a step's tokens choose are read" if _has_experts(room) else "read once in every step"
    lines = [
        f"weights             {size(room.weight_bytes):>12}   {read}",
        *(
            [
                f"{ask.adapters} adapters".ljust(20)
                + f"{size(room.adapter_bytes):>12}   those that a step's rows use are read"
            ]
            if ask.adapters
            else []
        ),
        *_cache_lines(room, ask.context_tokens),
    ]
    if room.sequences == 0:
        lines.append(
            f"DOES NOT FIT: weights, buffers and one sequence need {size(room.needed_bytes)}. Of "
            f"{size(room.memory_bytes)} there may be used {size(room.memory_bytes - room.reserve_bytes)}: "
            f"{KEPT_FREE_SHARE:.0%}, {size(room.reserve_bytes)}, are the reserve that is left free"
        )
        return lines
    lines.append(f"sequences that fit  {room.sequences:>12,}")
    if room.sequences < ask.concurrency:
        lines.append(f"{ask.concurrency} at a time do not fit: {ask.concurrency - room.sequences} wait")
    return lines


def _images(plan: ModelPlan) -> list[str]:
    if not plan.expectation.room.encoder_bytes:
        return []
    alone_s = plan.expectation.ttft_alone_s + sum(image.encode_s for image in plan.images)
    room, weights = plan.expectation.room, plan.ask.encoder_weights
    return image_lines(plan.images, size(room.encoder_bytes), weights, seconds(alone_s))


def _cache_lines(room: Room, context_tokens: int) -> Iterator[str]:
    """Yields a line for the memory that grows with a sequence. K and V in windows, and states, have lines of their own:
    they do not grow beyond a limit."""
    if room.kv_bytes_per_token:
        yield f"K and V a token     {size(room.kv_bytes_per_token):>12}"
    if room.window_bytes_per_sequence:
        yield f"K and V in windows  {size(room.window_bytes_per_sequence):>12}   a sequence at most, at any length"
    if room.kv_bytes_per_sequence:
        yield f"K and V a sequence  {size(room.kv_bytes_per_sequence):>12}   of {context_tokens:,} tokens"
    if room.state_bytes:
        yield f"states a sequence   {size(room.state_bytes):>12}   constant, whatever its length"


def _phases(plan: ModelPlan) -> list[str]:
    found = plan.expectation
    ridge = found.prefill.ridge_flops_per_byte
    lines = [f"ridge {ridge:,.0f} FLOPs a byte: steps above it are bound by arithmetic, below it by memory"]
    lines.append(_phase_line(f"prefill, {found.prefill_tokens:,} tokens", found.prefill))
    lines.append(_phase_line("decode, 1 stream", found.decode_one))
    if found.decode.streams > 1:
        lines.append(_phase_line(f"decode, {found.decode.streams} streams", found.decode))
    for guessed in found.guessed:
        streams = f"{guessed.streams} stream{'s' * (guessed.streams > 1)}"
        lines.append(
            f"decode, {streams}, {guessed.guesses} guesses of each and step, {guessed.acceptance:.0%} of them right: "
            f"{rate(guessed.rate_tokens_per_s)}"
        )
    alone_s = answer_s(found.ttft_alone_s, plan.ask.output_tokens - 1, found.decode_one.rate_tokens_per_s)
    lines.append(
        f"one request alone: TTFT {seconds(found.ttft_alone_s)}, then {seconds(found.decode_one.seconds)} a token: "
        f"{seconds(alone_s)} in all"
    )
    return lines


def _phase_line(name: str, phase: Phase) -> str:
    sign = "above" if phase.side == ARITHMETIC else "below"
    return (
        f"{name:<22} {rate(phase.rate_tokens_per_s):>14} of at most {rate(phase.ceiling_tokens_per_s):>14}; "
        f"{phase.intensity_flops_per_byte:,.4g} FLOPs a byte, {sign} the ridge: {phase.side}"
    )


def _load(plan: ModelPlan) -> list[str]:
    if plan.expectation.load is None:
        return []
    needed = needed_read_words(plan.spec, plan.ask)
    return [*load_lines(plan.ask, plan.expectation.load), *([needed] if needed else [])]


def load_lines(ask: Ask, load: Load) -> list[str]:
    """Returns the closed loop's figures, and which objectives they meet."""
    lines = [
        f"{ask.concurrency} at a time, {ask.prompt_tokens:,} tokens in and {ask.output_tokens:,} out: "
        f"TTFT {seconds(load.ttft_s)}; ITL {seconds(load.itl_s)} for 95% of a request's gaps, "
        f"{seconds(load.mean_itl_s)} on average, {seconds(load.longest_gap_s)} at most; "
        f"{load.prefill_gap_share:.1%} of them hold another prompt's chunk",
        f"{load.requests_per_s:.3g} requests a second; {rate(load.input_tokens_per_s)} read, "
        f"{rate(load.output_tokens_per_s)} written",
    ]
    for name, wanted, got in (("ttft", ask.ttft_s, load.ttft_s), ("itl", ask.itl_s, load.itl_s)):
        if wanted is not None:
            verdict = "met" if got <= wanted else "MISSED"
            lines.append(f"--{name} {seconds(wanted)}: {verdict} ({seconds(got)})")
    return lines


def _prices(plan: ModelPlan) -> list[str]:
    prices = plan.expectation.prices
    if prices is None:
        return []
    return [
        f"at {plan.ask.price_per_hour:g} an hour: {prices.input_per_million:.3g} a million input tokens, "
        f"{prices.output_per_million:.3g} a million output tokens, {prices.mixed_per_million:.3g} of this mix",
        price_reason(plan.expectation, prices.ratio),
    ]


def price_reason(found: Expectation, ratio: float) -> str:
    """Returns a sentence that explains why an output token and an input token do not cost the same."""
    streams = found.decode.streams
    tokens = f"{streams} token{'s' if streams > 1 else ''}"
    return (
        f"an output token costs {ratio:,.2g} times an input token: a step reads the weights, "
        f"{size(found.decode.work.weight_bytes)}, for {tokens} when it decodes and for "
        f"{found.prefill_tokens:,} when it reads a prompt"
    )


def _catalogue(plan: ModelPlan) -> list[str]:
    return [
        f"{'hardware that would do':<48} {'holds':>7} {'TTFT':>9} {'ITL':>9} {'written':>14}",
        *_candidate_lines([each for each in plan.candidates if each.does]),
        *_lacking_lines([each for each in plan.candidates if not each.does]),
    ]


def _candidate_lines(found: list[Candidate]) -> Iterator[str]:
    """Yields a line for each of the fastest candidates (devices of the catalogue and how many of them), the fastest
    first. One more line names all slower ones."""
    ordered = sorted(found, key=lambda each: -_written(each))
    for each in ordered[:MOST_CANDIDATES]:
        target, load = each.expectation.target, each.expectation.load
        figures = f"{'-':>9} {'-':>9} {'-':>14}"
        if load is not None:
            figures = f"{seconds(load.ttft_s):>9} {seconds(load.itl_s):>9} {rate(load.output_tokens_per_s):>14}"
        yield f"  {target.title:<46} {each.expectation.room.sequences:>7,} {figures}"
    if ordered[MOST_CANDIDATES:]:
        yield "  and, more slowly: " + ", ".join(each.hardware.name for each in ordered[MOST_CANDIDATES:])


def _written(candidate: Candidate) -> float:
    load = candidate.expectation.load
    return 0.0 if load is None else load.output_tokens_per_s


def _lacking_lines(found: list[Candidate]) -> Iterator[str]:
    """Yields a line for each way in which hardware falls short, such as too little memory, with the names of that
    hardware."""
    by_lack: dict[str, list[str]] = {}
    for each in found:
        by_lack.setdefault(", ".join(LACK_WORDS[lack] for lack in each.lacks), []).append(each.hardware.name)
    for lack, names in by_lack.items():
        yield f"would not do ({lack}): {', '.join(names)}"

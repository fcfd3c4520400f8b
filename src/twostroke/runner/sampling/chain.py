"""The samplers of one request in their order, and the token that they choose from a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twostroke.ops.attention.token_weights import Weigh
from twostroke.ops.operands import F32Array
from twostroke.runner.sampling.row import SamplerRow
from twostroke.runner.sampling.samplers.adaptive_p import AdaptiveP
from twostroke.runner.sampling.samplers.dynamic_temperature import DynamicTemperature
from twostroke.runner.sampling.samplers.mirostat import Mirostat
from twostroke.runner.sampling.samplers.sampler_link import Memory, RememberingSampler, SamplerLink
from twostroke.runner.sampling.samplers.top_n_sigma import TopNSigma
from twostroke.runner.sampling.samplers.typical import Typical
from twostroke.runner.sampling.samplers.usual import MinP, Temperature, TopK, TopP
from twostroke.runner.sampling.samplers.xtc import Xtc
from twostroke.types.plan import PlannedSequence
from twostroke.types.sampling import sampler_fields as names
from twostroke.types.sampling.sampling_params import SamplingParams

LINKS: Mapping[str, Callable[[SamplingParams], SamplerLink | None]] = {
    names.SIGMA: TopNSigma.of,
    names.TEMPERATURE: lambda params: DynamicTemperature.of(params) or Temperature(params.temperature),
    names.TOP_K: TopK.of,
    names.TYPICAL: Typical.of,
    names.TOP_P: TopP.of,
    names.MIN_P: MinP.of,
    names.XTC: Xtc.of,
    names.ADAPTIVE: AdaptiveP.of,
}
"""The samplers by name, in the default order of this engine. The temperature comes before the samplers that keep sets
of tokens, as it does where a request names no chain of samplers."""


def links_of(params: SamplingParams) -> list[SamplerLink]:
    """Returns the samplers that are on, in the order of the request. Mirostat replaces all samplers that keep sets of
    tokens."""
    mirostat = Mirostat.of(params)
    if mirostat is not None:
        return [Temperature(params.temperature), mirostat]
    order = LINKS if params.samplers is None else [name for name in params.samplers if name in LINKS]
    made = [LINKS[name](params) for name in order]
    return [link for link in made if link is not None]


def chosen(weigh: Weigh, logits: F32Array, sequence: PlannedSequence) -> tuple[int, Memory]:
    """Returns a token for a sequence, and the numbers that its samplers (Mirostat, adaptive-p) need at the next token.
    weigh: makes weights of tokens from logits. logits: (V,), after penalties, bias, bans and masks."""
    links = links_of(sequence.request.params)
    row = SamplerRow(weigh, logits, sequence.request.seed, sequence.num_output_tokens, sequence.memory)
    for link in links:
        link.apply(row)
    place = row.draw()
    last = links[-1] if links else None
    return row.token_id(place), last.remember(row, place) if isinstance(last, RememberingSampler) else ()

"""One request of a workload."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """One request of a workload. arrival_s: when it should be sent, in seconds from the workload's beginning (0
    everywhere in a closed loop).

    block_ids: identities of the prompt's successive blocks of block_tokens tokens (Mooncake's hash_ids). Equal ids in
    equal places mean equal text, so a prefix can be found again. Empty ids mean a prompt that shares no text with
    others. text: the real prompt where the trace has one. priority: lower is served first; 0 is interactive. scored:
    whether the prompt's log probabilities are asked for, so that all of it is computed; then output_tokens may be 0.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...] = ()
    block_tokens: int = 512
    text: str | None = None
    priority: int = 0
    scored: bool = False

"""The usual roofline formulas as functions: what bandwidth and arithmetic allow at best."""

from __future__ import annotations


def decode_ceiling_tokens_per_s(read_bytes_per_s: float, weight_bytes: float, kv_bytes: float = 0.0) -> float:
    """Returns the most tokens a second of one stream that reads these bytes for each token."""
    return read_bytes_per_s / (weight_bytes + kv_bytes)


def batch_ceiling_tokens_per_s(read_bytes_per_s: float, weight_bytes: float, kv_bytes: float, streams: int) -> float:
    """Returns the most tokens a second of all streams together. The weights are read once, and `kv_bytes` for each
    stream."""
    return streams * read_bytes_per_s / (weight_bytes + streams * kv_bytes)


def bandwidth_for_bytes_per_s(tokens_per_s: float, bytes_per_token: float) -> float:
    """Returns the bytes that must be read a second for `tokens_per_s`."""
    return tokens_per_s * bytes_per_token


def prefill_floor_s(flops: float, flops_per_s: float) -> float:
    """Returns the least seconds that a prompt's arithmetic takes."""
    return flops / flops_per_s


def answer_s(prefill_s: float, output_tokens: int, tokens_per_s: float) -> float:
    """Returns the seconds from the request to its last token."""
    return prefill_s + output_tokens / tokens_per_s


def streams_for_bytes(pool_bytes: float, bytes_per_stream: float) -> float:
    """Returns how many sequences fill this KV memory."""
    return pool_bytes / bytes_per_stream


def page_waste_share(page_tokens: int, mean_tokens: float) -> float:
    """Returns the share of KV memory that paging leaves unused: half a page of each sequence on average."""
    unused = (page_tokens - 1) / 2
    return unused / (mean_tokens + unused)


def reserved_waste_share(reserved_tokens: float, mean_tokens: float) -> float:
    """Returns the share of KV memory that is unused where each sequence has one block for its largest possible length.
    """
    return (reserved_tokens - mean_tokens) / reserved_tokens


def speculative_gain(acceptance: float, draft_tokens: int, draft_share: float, check_share: float = 1.0) -> float:
    """Returns how many times faster one stream decodes with `draft_tokens` draft tokens in each step (Leviathan et al.
    2023).

    acceptance: the probability that a draft token is right, below 1. draft_share: a draft token's time as a share of a
    plain step's time. check_share: the time of the step that checks all draft tokens, as a share of a plain step's
    time.
    """
    expected_tokens = (1 - acceptance ** (draft_tokens + 1)) / (1 - acceptance)
    return expected_tokens / (check_share + draft_tokens * draft_share)

"""Decoders whose feed-forward block is squared ReLU without a gate, with biases where the config sets them."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import Parts
from twostroke.models.common.registry import CommonFacts, ProgramText

SQUARED_RELU = ("hidden_act", "relu2")
"""The field of the activation, and its default."""


def squared_relu_decoder(parts: Parts, partial: float | None = None) -> tuple[CommonFacts, ProgramText]:
    """Returns facts and program of a decoder with these blocks. attention_bias gives biases to all products of
    attention, mlp_bias to both products of the feed-forward block. partial: the share of a head that is rotated where
    the config does not have the field; None for all of it."""
    turn = parts.rope(partial=partial)
    heads = parts.biased_heads()
    feed = replace(parts.biased_feed(), gate="")
    return pre_decoder(replace(parts, heads=heads, feed=feed), turn)

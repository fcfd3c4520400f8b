"""The tracer: what it records, and what it refuses."""

from __future__ import annotations

import pytest

from tests.program.programs import EPS, rows_of
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import PagedKV, Size, Value
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.rms_norm import rms_norm


def logits_of(trace: Tracer) -> Value:
    """A whole program: rows of the embedding, which is also the head."""
    table = trace.matrix("embedding", {"wte": 11}, 8)
    return linear(gather_rows(embed(table, trace.token_ids, trace), trace.logit_rows), table)


def test_weights_are_named_where_they_are_used_and_the_same_tensors_are_one_weight() -> None:
    trace = Tracer()
    logits = logits_of(trace)
    with trace.layer("outer."), trace.layer("inner."):
        assert trace.name("x") == "outer.inner.x"
    assert trace.name("x") == "x"
    program = trace.program(logits)
    assert [part.name for weight in program.weights for part in weight.parts] == ["wte.weight"]
    assert program.parameters == 88
    assert [call.NAME for call in program.body] == ["embed"]
    assert [call.NAME for call in program.head] == ["gather_rows", "linear"]


def test_what_is_asked_for_and_never_used_is_refused() -> None:
    for ask in (
        lambda trace: trace.matrix("o", {"forgotten": 8}, 8),
        lambda trace: trace.vector("forgotten", 8),
        lambda trace: trace.cache(PagedKV(2, 4)),
    ):
        trace = Tracer()
        logits = logits_of(trace)
        ask(trace)
        with pytest.raises(ValueError, match="never used"):
            trace.program(logits)


def test_shapes_that_do_not_fit_are_refused_with_the_operand_and_what_it_must_be() -> None:
    trace = Tracer()
    x = rows_of(trace, 8)
    with pytest.raises(ValueError, match=r"linear: weight must be \(5, 8\), it is \(5, 9\)"):
        linear(x, trace.matrix("o", {"o": 5}, 9))
    with pytest.raises(ValueError, match=r"rms_norm: weight must be \(8\), it is \(7,\)"):
        rms_norm(x, trace.vector("norm", 7), EPS)
    with pytest.raises(ValueError, match=r"pointwise: y must be \(T, 8\)"):
        add(x, rows_of(trace, 9))
    cache = trace.cache(PagedKV(2, 4))
    with pytest.raises(ValueError, match="kv_write: k must be"):
        kv_write(cache, x.heads(4), x.heads(4), trace.slots)
    with pytest.raises(ValueError, match="attention: layer must be"):
        attention(x.heads(4), cache, 1.0)


def test_rows_of_different_counts_do_not_fit() -> None:
    trace = Tracer()
    with pytest.raises(ValueError, match="pointwise: y must be"):
        add(rows_of(trace, 8), rows_of(trace, 8, Size.LOGIT_ROWS))


def test_all_rows_after_the_chosen_ones_are_refused() -> None:
    trace = Tracer()
    x = embed(trace.matrix("embedding", {"wte": 11}, 8), trace.token_ids, trace)
    chosen = gather_rows(x, trace.logit_rows)
    rms_norm(x, trace.vector("late", 8), EPS)
    with pytest.raises(ValueError, match="a call of all rows follows"):
        trace.program(chosen)

"""Per-layer embeddings (Gemma 3n, Gemma 4): each layer gets a few numbers of its own for each token.

    p = (norm(P x / sqrt(D)) + sqrt(W) E[id]) / sqrt(2), W numbers for each layer, x the scaled embedding
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.norm import Norm
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import HeadRows, Value, Weight
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add, scale
from twostroke.ops.rows.multiply import multiply


@dataclass(frozen=True, slots=True)
class PerLayer:
    """The per-layer embeddings of a model. vocab_size: the number of token ids. table_rows: the number of rows of the
    table. Where the table has fewer rows than there are ids, the ids beyond it take its row 0.

    width: how many numbers one layer has. table_scale: the factor of the table's rows. norm: the norm that the family
    uses.
    """

    vocab_size: int
    table_rows: int
    hidden_size: int
    num_layers: int
    width: int
    table_scale: float
    norm: Norm
    activation: Activation

    def inputs(self, t: Tracer, x: Value) -> tuple[Value, ...]:
        """Returns, for each layer, its own numbers p (T, width) for the embedded rows x; see the module. The names of
        the tensors have no layer's prefix."""
        whole = self.num_layers * self.width
        looked_up = scale(embed(self._table(t, whole), t.token_ids, t), self.table_scale)
        matrix = t.matrix("per_layer", {"model.per_layer_model_projection": whole}, self.hidden_size)
        projected = scale(linear(x, matrix), self.hidden_size**-0.5).heads(self.num_layers)
        normed = self.norm.of_heads(t, "model.per_layer_projection_norm", projected).flat()
        both = scale(add(normed, looked_up), 2.0**-0.5)
        return both.split(*(self.width for _ in range(self.num_layers)))

    def __call__(self, t: Tracer, x: Value, p: Value) -> Value:
        """Returns norm(W2 (p act(W1 x))) for the rows x after a layer, which is then added to the residual. p: the
        layer's numbers from `inputs`."""
        small = linear(x, t.matrix("per_layer_gate", {"per_layer_input_gate": self.width}, self.hidden_size))
        made = multiply(p, small, self.activation)
        matrix = t.matrix("per_layer_out", {"per_layer_projection": self.hidden_size}, self.width)
        return self.norm(t, "post_per_layer_input_norm", linear(made, matrix), in_place=True)

    def _table(self, t: Tracer, columns: int) -> Weight:
        name, beyond = "model.embed_tokens_per_layer", self.vocab_size - self.table_rows
        if beyond <= 0:
            return t.matrix("embedding", {name: self.table_rows}, columns)
        orders = (HeadRows(1, self.table_rows, self.table_rows), HeadRows(beyond, 0, 1))
        return t.selected("embedding", name, self.table_rows, columns, orders)

"""The weight formats on offer, by name, with the group sizes that the measurements chose.

tools/measure_quantization.py prints the errors. int8: the output error of a Gaussian matrix goes from 0.76% to 0.92%
when groups grow from 32 to 128, while folding a group into the float32 sums costs a 6 x 64 tile 72 vector instructions
beside 768 dot products at 128, and beside 192 at 32. int4: with outlier columns in the weights 14% of error become 23%
between groups of 32 and of 128; 4.5 bits a weight instead of 4.125 buy that back.

Knows: names, groups.
Must not know: how numbers are rounded.
"""

from __future__ import annotations

from twostroke.spec.formats import BF16, F32, WeightFormat, WeightKind

INT8 = WeightFormat(WeightKind.INT8, group=128)
"""8.125 bits a weight."""

INT4 = WeightFormat(WeightKind.INT4, group=32)
"""4.5 bits a weight."""

FORMATS: dict[str, WeightFormat] = {"f32": F32, "bf16": BF16, "int8": INT8, "int4": INT4}


def weight_format(name: str) -> WeightFormat:
    """The format called `name`. Raises ValueError for other names, with the list."""
    found = FORMATS.get(name)
    if found is None:
        raise ValueError(f"no weight format is called {name!r}; there are {', '.join(FORMATS)}")
    return found

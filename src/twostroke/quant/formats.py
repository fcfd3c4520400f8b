"""The weight formats on offer, by name, with the group sizes that the measurements chose.

tools/measure_quantization.py prints the errors. int8: the error of a Gaussian matrix's outputs goes from 0.76% to 0.92%
when groups grow from 32 to 128, and folding a group into the float32 sum costs the kernel a tenth of its time at 128
and a third at 32. int4: outliers in the weights make 14% of error 23% between groups of 32 and 128; 4.5 bits a weight
instead of 4.125 buy that back.

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

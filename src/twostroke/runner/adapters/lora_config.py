"""adapter_config.json as PEFT writes it, of kind LORA.

Each field that changes what an adapter computes is honoured, or refused by its name where its value is not neutral. An
unknown field is refused in the same way, because its effect is not known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from twostroke.runner.adapters.module_pattern import module_pattern
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.fields import Fields
from twostroke.weights.json_file import read_object

CONFIG_NAME = "adapter_config.json"
MAX_RANK, MAX_ALPHA = 1024, 1e6
MAX_PATTERNS = 4096
ALL_LINEAR = "all-linear"
HONOURED = frozenset(
    "peft_type r lora_alpha use_rslora rank_pattern alpha_pattern target_modules exclude_modules layers_to_transform "
    "init_lora_weights bias".split()
)
WITHOUT_EFFECT = frozenset(
    # These fields concern training, bookkeeping, and the layout of the model's own matrices. The layout of the
    # adapter's tensors is the same in any case.
    "task_type auto_mapping peft_version base_model_name_or_path revision inference_mode lora_dropout fan_in_fan_out "
    "megatron_core layers_pattern qalora_group_size runtime_config ensure_weight_tying eva_config "
    "lora_ga_config".split()
)
PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")
"""Values of init_lora_weights that leave the model's own matrices as they are."""


class LoraConfig(Struct, frozen=True):
    """The fields of adapter_config.json that change what an adapter computes. rank, alpha: the values for modules that
    no pattern fits. ranks, alphas: the values by pattern. targets, excluded: endings of names, or one regular
    expression.

    layers: the layers that the adapter changes; empty for all. Patterns are regular expressions over endings of names.
    """

    rank: int
    alpha: float
    rank_stabilized: bool
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    targets: str | tuple[str, ...]
    excluded: str | tuple[str, ...]
    layers: frozenset[int]

    def rank_of(self, module: str) -> int:
        """Returns the rank for a module. The first pattern that fits decides, as in PEFT."""
        return next((rank for pattern, rank in self.ranks.items() if _ends_with(pattern, module)), self.rank)

    def scaling(self, module: str) -> float:
        """Returns the factor of the product B A: alpha / r, or alpha / sqrt(r) where the ranks are stabilized."""
        alpha = next((each for pattern, each in self.alphas.items() if _ends_with(pattern, module)), self.alpha)
        rank = self.rank_of(module)
        return alpha / math.sqrt(rank) if self.rank_stabilized else alpha / rank

    def changes(self, module: str) -> bool:
        """Returns whether the adapter may change the module."""
        if not _names(self.targets, module) or (self.excluded and _names(self.excluded, module)):
            return False
        numbers = [int(word) for word in module.split(".") if word.isdecimal()]
        return not self.layers or not numbers or numbers[0] in self.layers


def read_lora_config(folder: Path) -> LoraConfig:
    """Reads and checks the file. Raises CorruptModel or UnsupportedModel with the name of the field."""
    fields = Fields(read_object(folder / CONFIG_NAME), CONFIG_NAME)
    kind = fields.text("peft_type", "")
    if kind.upper() != "LORA":
        raise _refused("peft_type", kind, "Only adapters of the kind LORA are served.")
    _refuse_what_is_not_known(fields)
    return LoraConfig(
        rank=fields.integer("r", 1, MAX_RANK),
        alpha=fields.number("lora_alpha", -MAX_ALPHA, MAX_ALPHA),
        rank_stabilized=fields.boolean("use_rslora", False),
        ranks={key: each.integer(key, 1, MAX_RANK) for key, each in _patterns(fields, "rank_pattern")},
        alphas={key: each.number(key, -MAX_ALPHA, MAX_ALPHA) for key, each in _patterns(fields, "alpha_pattern")},
        targets=_modules(fields, "target_modules"),
        excluded=_modules(fields, "exclude_modules"),
        layers=frozenset(fields.integers("layers_to_transform")),
    )


def _refuse_what_is_not_known(fields: Fields) -> None:
    values = fields.values
    for name in ("use_dora", "modules_to_save", "lora_bias"):
        if values.get(name):
            raise _refused(name, values[name], _WHY[name])
    if values.get("bias", "none") not in ("none", None):
        raise _refused("bias", values["bias"], "Biases are not changed by adapters here.")
    start = values.get("init_lora_weights", True)
    if start is not None and start not in PLAIN_STARTS:
        raise _refused(
            "init_lora_weights",
            start,
            "Such an adapter belongs to a changed copy of the model's weights.",
            "Convert it with PEFT (path_initial_model_for_weight_conversion), then serve the converted one.",
        )
    for name, value in values.items():
        if name not in HONOURED | WITHOUT_EFFECT and value not in (None, False, "", [], {}):
            raise _refused(name, value, _WHY.get(name, "It is not known what this field changes."))


_WHY = {
    "use_dora": "DoRA also scales the model's own matrices, which is not implemented.",
    "modules_to_save": "It has whole matrices next to the low-rank ones, which cannot be served by request.",
    "lora_bias": "Biases of adapters are not implemented.",
    "target_parameters": "Adapters of stacks of experts are not implemented.",
    "trainable_token_indices": "Rows of the embedding that were trained cannot be served by request.",
    "alora_invocation_tokens": "Adapters that begin after some tokens (aLoRA) are not implemented.",
    "layer_replication": "It makes another model of the layers.",
}


def _refused(
    name: str, value: Any, why: str, fix: str = "Merge the adapter into the model and serve that."
) -> UnsupportedModel:
    return UnsupportedModel(f"{CONFIG_NAME}: {name} is {str(value)[:80]!r}.", why=why, fix=fix)


def _patterns(fields: Fields, name: str) -> list[tuple[str, Fields]]:
    """Returns the keys of a mapping, which are patterns. The value of each can be read from the returned fields."""
    group = fields.group(name)
    if group is None:
        return []
    if len(group.values) > MAX_PATTERNS:
        raise fields.wrong(name, f"At most {MAX_PATTERNS:,} patterns are read.")
    for text in group.values:
        _require_pattern(fields, name, _ending(text))
    return [(text, group) for text in group.values]


def _modules(fields: Fields, name: str) -> str | tuple[str, ...]:
    value = fields.values.get(name)
    if not isinstance(value, str):
        return fields.texts(name)
    if value.lower() != ALL_LINEAR:
        _require_pattern(fields, name, value)
    return value


def _require_pattern(fields: Fields, name: str, text: str) -> None:
    try:
        module_pattern(text)
    except ValueError as error:
        raise fields.wrong(name, f"{text[:80]!r}: {error}.") from None


def _names(wanted: str | tuple[str, ...], module: str) -> bool:
    if not isinstance(wanted, str):
        return any(module == each or module.endswith("." + each) for each in wanted)
    return wanted.lower() == ALL_LINEAR or module_pattern(wanted).matches(module)


def _ending(pattern: str) -> str:
    return rf"(.*\.)?({pattern})"


_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def _ends_with(pattern: str, module: str) -> bool:
    """Returns whether a pattern fits a name, or the end of the name after a dot. Most patterns are plain names, often
    one for each module."""
    if not _PLAIN.fullmatch(pattern):
        return module_pattern(_ending(pattern)).matches(module)
    begin = len(module) - len(pattern)
    if begin < 0 or (begin > 0 and module[begin - 1] != "."):
        return False
    return all(wanted in (found, ".") for wanted, found in zip(pattern, module[begin:], strict=True))

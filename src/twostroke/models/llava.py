"""LLaVA and models built like it: a tower for images before a language model of any family (Liu et al. 2023).

Knows: which architectures are built so. Must not know: the language models.
"""

from __future__ import annotations

from twostroke.models.common.fields.nested import language_model_by_type
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.spec.fields import Fields


@architecture(
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "InternVLForConditionalGeneration",
    "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
    model_type="llava",
    other_types=("llava_next", "mistral3", "internvl", "idefics3", "smolvlm"),
)
def llava(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The language model of a checkpoint that also sees images, Pixtral's among them."""
    return language_model_by_type(fields)

"""Projectors of LLaVA 1.5 and NeXT: two linear layers after the tower of CLIP or SigLIP, whose last layer is left out.

Sources: tools/mtmd/legacy-models/convert_image_encoder_to_gguf.py and tools/mtmd/clip-impl.h of llama.cpp.
"""

from __future__ import annotations

from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.projectors.kind import VISION, Config, ProjectorKind, Shapes, activation_of
from twostroke.weights.gguf.projectors.siglip import OUTER, SIGLIP

NEWLINE, GRIDS, LAYERS = "model.image_newline", "image_grid_pinpoints", "feature_layer"


def _llava(keys: Keys, tower: Config, shapes: Shapes) -> tuple[Config, Config]:
    """Returns the fields of LLaVA. The language model's width is not among them: projection_dim in files of
    llava_surgery is CLIP's own. Sizes of image grids are stored as width, then height; config.json has the height
    first."""
    clip, side = "v.class_embd" in shapes, tower["image_size"]
    tower |= {"model_type": "clip_vision_model" if clip else "siglip_vision_model"}
    tower["hidden_act"] = activation_of(keys, "gelu" if clip else "gelu_pytorch_tanh")
    config: Config = {
        **{"model_type": "llava_next" if NEWLINE in shapes else "llava", "vision_config": tower},
        **{"vision_feature_select_strategy": "default" if clip else "full", "projector_hidden_act": "gelu"},
        "vision_feature_layer": keys.integers(VISION + LAYERS) if keys.has(VISION + LAYERS) else -1,
        "multimodal_projector_bias": "mm.0.bias" in shapes,
    }
    square = {"height": side, "width": side}
    settings: Config = {"size": {"shortest_edge": side}, "crop_size": square} if clip else {"size": square}
    if keys.has(VISION + GRIDS):
        found = keys.integers(VISION + GRIDS)
        pairs = [[high, wide] for wide, high in zip(found[::2], found[1::2], strict=False)]
        config[GRIDS] = settings[GRIDS] = pairs
    return config, settings


KINDS = {
    "mlp": ProjectorKind(
        mark="<image>",
        texts=("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MixtralForCausalLM"),
        tower="model.vision_tower.",
        layers="encoder.layers.",
        layer=SIGLIP,
        outer={
            **OUTER,
            "v.class_embd": "embeddings.class_embedding/",
            "v.pre_ln": "pre_layrnorm",
            "mm.0": "/model.multi_modal_projector.linear_1",
            "mm.2": "/model.multi_modal_projector.linear_2",
            NEWLINE: f"/{NEWLINE}/",
        },
        config=_llava,
        wide="mm.2.weight",
    ),
}

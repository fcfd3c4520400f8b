"""Published config.json files of dense models, the fields that matter, and the parameters that their pages name.

Counts are in thousands of millions, as on the pages of the models. For models that also take images, they are those of
the language model.
"""

from __future__ import annotations

from typing import Any


def gemma3_text(hidden: int, inner: int, layers: int, heads: int, kv: int, dim: int) -> dict[str, Any]:
    """The text_config of Gemma 3, which leaves usual fields out."""
    said = {"num_attention_heads": heads, "num_key_value_heads": kv} if heads != 8 else {}
    said |= {"head_dim": dim} if dim != 256 else {}
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "eos_token_id": [1, 106],
        "text_config": {
            "hidden_size": hidden,
            "intermediate_size": inner,
            "model_type": "gemma3_text",
            "num_hidden_layers": layers,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
            **said,
        },
        "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
    }


def sizes(
    architecture: str, vocab: int, hidden: int, inner: int, layers: int, heads: int, kv: int | None = None, **more: Any
) -> dict[str, Any]:
    """A config with the usual names."""
    usual = {
        "architectures": [architecture],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "torch_dtype": "bfloat16",
    }
    return {**usual, **({} if kv is None else {"num_key_value_heads": kv}), **more}


GEMMA = {"head_dim": 256, "hidden_act": "gelu", "max_position_embeddings": 8192}
FALCON = {"architectures": ["FalconForCausalLM"], "vocab_size": 65_024, "torch_dtype": "bfloat16"}
OPT = {"architectures": ["OPTForCausalLM"], "vocab_size": 50_272, "num_attention_heads": 12, "torch_dtype": "float16"}
GRIFFIN = {
    **{"attention_window_size": 2048, "conv1d_width": 4, "logits_soft_cap": 30.0, "partial_rotary_factor": 0.5},
    **{"block_types": ["recurrent", "recurrent", "attention"], "hidden_activation": "gelu_pytorch_tanh"},
}


def neo_layers(pairs: int) -> list[Any]:
    """attention_types of GPT-Neo: every other layer has a window."""
    return [[["global", "local"], pairs]]


GPT_NEO = {"architectures": ["GPTNeoForCausalLM"], "vocab_size": 50_257}
TIED = {"tie_word_embeddings": True}
GEMMA2 = {"hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "sliding_window": 4096}

PUBLISHED: dict[str, tuple[dict[str, Any], float]] = {
    "google/gemma-2b": (sizes("GemmaForCausalLM", 256_000, 2048, 16_384, 18, 8, 1, **GEMMA), 2.506),
    "google/gemma-7b": (sizes("GemmaForCausalLM", 256_000, 3072, 24_576, 28, 16, 16, **GEMMA), 8.538),
    "google/gemma-2-2b": (sizes("Gemma2ForCausalLM", 256_000, 2304, 9216, 26, 8, 4, head_dim=256, **GEMMA2), 2.614),
    "google/gemma-2-9b": (sizes("Gemma2ForCausalLM", 256_000, 3584, 14_336, 42, 16, 8, head_dim=256, **GEMMA2), 9.242),
    "google/gemma-2-27b": (
        sizes(
            "Gemma2ForCausalLM", 256_000, 4608, 36_864, 46, 32, 16, head_dim=128, query_pre_attn_scalar=144, **GEMMA2
        ),
        27.227,
    ),
    "google/gemma-3-1b-it": (
        sizes("Gemma3ForCausalLM", 262_144, 1152, 6912, 26, 4, 1, head_dim=256, sliding_window=512),
        1.0,
    ),
    "google/gemma-3-4b-it": (gemma3_text(2560, 10_240, 34, 8, 4, 256), 3.880),
    "google/gemma-3-12b-it": (gemma3_text(3840, 15_360, 48, 16, 8, 256), 11.766),
    "google/gemma-3-27b-it": (gemma3_text(5376, 21_504, 62, 32, 16, 128), 27.009),
    "microsoft/Phi-3-mini-4k-instruct": (sizes("Phi3ForCausalLM", 32_064, 3072, 8192, 32, 32, 32), 3.821),
    "microsoft/phi-4": (sizes("Phi3ForCausalLM", 100_352, 5120, 17_920, 40, 40, 10), 14.66),
    "microsoft/Phi-4-mini-instruct": (
        sizes("Phi3ForCausalLM", 200_064, 3072, 8192, 32, 24, 8, partial_rotary_factor=0.75, **TIED),
        3.836,
    ),
    "allenai/OLMo-2-0425-1B": (sizes("Olmo2ForCausalLM", 100_352, 2048, 8192, 16, 16, 16), 1.485),
    "allenai/OLMo-2-1124-7B": (sizes("Olmo2ForCausalLM", 100_352, 4096, 11_008, 32, 32, 32), 7.299),
    "allenai/OLMo-2-1124-13B": (sizes("Olmo2ForCausalLM", 100_352, 5120, 13_824, 40, 40, 40), 13.716),
    "allenai/Olmo-3-1025-7B": (sizes("Olmo3ForCausalLM", 100_278, 4096, 11_008, 32, 32, 32), 7.298),
    "HuggingFaceTB/SmolLM3-3B": (sizes("SmolLM3ForCausalLM", 128_256, 2048, 11_008, 36, 16, 4), 3.075),
    "ibm-granite/granite-3.3-2b-instruct": (sizes("GraniteForCausalLM", 49_159, 2048, 8192, 40, 32, 8, **TIED), 2.534),
    "ibm-granite/granite-3.3-8b-instruct": (
        sizes("GraniteForCausalLM", 49_159, 4096, 12_800, 40, 32, 8, **TIED),
        8.171,
    ),
    "LGAI-EXAONE/EXAONE-4.0-1.2B": (
        sizes("Exaone4ForCausalLM", 102_400, 2048, 4096, 30, 32, 8, sliding_window=None, **TIED),
        1.279,
    ),
    "LGAI-EXAONE/EXAONE-4.0-32B": (sizes("Exaone4ForCausalLM", 102_400, 5120, 27_392, 64, 40, 8), 32.003),
    "CohereLabs/c4ai-command-r-v01": (sizes("CohereForCausalLM", 256_000, 8192, 22_528, 40, 64, 64), 34.981),
    "CohereLabs/c4ai-command-r-plus": (  # its page claims 104B
        sizes("CohereForCausalLM", 256_000, 12_288, 33_792, 64, 96, 8, use_qk_norm=True, **TIED),
        103.811,
    ),
    "CohereLabs/c4ai-command-r7b-12-2024": (sizes("Cohere2ForCausalLM", 256_000, 4096, 14_336, 32, 32, 8), 8.028),
    "zai-org/glm-4-9b-chat-hf": (sizes("GlmForCausalLM", 151_552, 4096, 13_696, 40, 32, 2), 9.400),
    "zai-org/GLM-4-9B-0414": (sizes("Glm4ForCausalLM", 151_552, 4096, 13_696, 40, 32, 2), 9.400),
    "ByteDance-Seed/Seed-OSS-36B-Instruct": (sizes("SeedOssForCausalLM", 155_136, 5120, 27_648, 64, 80, 8), 36.151),
    "baidu/ERNIE-4.5-0.3B-PT": (sizes("Ernie4_5ForCausalLM", 103_424, 1024, 3072, 18, 16, 2), 0.361),
    "stabilityai/stablelm-3b-4e1t": (sizes("StableLmForCausalLM", 50_304, 2560, 6912, 32, 32, 32), 2.795),
    "stabilityai/stablelm-2-1_6b": (
        sizes("StableLmForCausalLM", 100_352, 2048, 5632, 24, 32, 32, use_qkv_bias=True),
        1.645,
    ),
    "stabilityai/stablelm-2-12b": (  # its page: 12.1B
        sizes("StableLmForCausalLM", 100_352, 5120, 13_824, 40, 32, 8, qk_layernorm=True, use_parallel_residual=True),
        12.143,
    ),
    "adept/persimmon-8b-base": (  # the announcement: 9.3B with both tables of 262,144 tokens
        sizes("PersimmonForCausalLM", 262_144, 4096, 16_384, 36, 64),
        9.397,
    ),
    "bigcode/starcoder2-3b": (sizes("Starcoder2ForCausalLM", 49_152, 3072, 12_288, 30, 24, 2), 3.030),
    "bigcode/starcoder2-7b": (sizes("Starcoder2ForCausalLM", 49_152, 4608, 18_432, 32, 36, 4), 7.174),
    "nvidia/Minitron-4B-Base": (
        sizes("NemotronForCausalLM", 256_000, 3072, 9216, 32, 24, 8, head_dim=128),
        4.191,
    ),
    "microsoft/phi-2": (sizes("PhiForCausalLM", 51_200, 2560, 10_240, 32, 32, 32), 2.780),
    "microsoft/phi-1_5": (sizes("PhiForCausalLM", 51_200, 2048, 8192, 24, 32), 1.418),
    "EleutherAI/pythia-70m": (sizes("GPTNeoXForCausalLM", 50_304, 512, 2048, 6, 8), 0.0704),
    "EleutherAI/pythia-6.9b": (sizes("GPTNeoXForCausalLM", 50_432, 4096, 16_384, 32, 32), 6.857),
    "EleutherAI/gpt-neox-20b": (sizes("GPTNeoXForCausalLM", 50_432, 6144, 24_576, 44, 64), 20.554),
    "EleutherAI/gpt-j-6b": (
        {"architectures": ["GPTJForCausalLM"], "vocab_size": 50_400, "n_embd": 4096, "n_layer": 28, "n_head": 16},
        6.051,
    ),
    "tiiuae/falcon-7b": (
        {**FALCON, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "multi_query": True},
        6.922,
    ),
    "tiiuae/falcon-40b": (
        {
            **FALCON,
            "hidden_size": 8192,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "new_decoder_architecture": True,
        },
        41.303,
    ),
    "bigscience/bloom-560m": (
        {"architectures": ["BloomForCausalLM"], "vocab_size": 250_880, "n_embed": 1024, "n_layer": 24, "n_head": 16},
        0.559,
    ),
    "bigscience/bloom": (
        {"architectures": ["BloomForCausalLM"], "vocab_size": 250_880, "n_embed": 14_336, "n_layer": 70, "n_head": 112},
        176.247,
    ),
    "mosaicml/mpt-7b": (
        {"architectures": ["MPTForCausalLM"], "vocab_size": 50_432, "d_model": 4096, "n_layers": 32, "n_heads": 32},
        6.649,
    ),
    "facebook/opt-125m": ({**OPT, "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12}, 0.1252),
    "facebook/opt-350m": (
        {
            **{**OPT, "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
            **{"word_embed_proj_dim": 512, "do_layer_norm_before": False},
        },
        0.3312,
    ),
    "facebook/opt-6.7b": (
        {**OPT, "hidden_size": 4096, "ffn_dim": 16_384, "num_hidden_layers": 32, "num_attention_heads": 32},
        6.658,
    ),
    "tencent/Hunyuan-7B-Instruct": (
        sizes("HunYuanDenseV1ForCausalLM", 128_167, 4096, 14_336, 32, 32, 8, head_dim=128, **TIED),
        7.505,
    ),
    "bigcode/starcoderbase": (  # the paper, Table 10: 15.5B
        {
            **{"architectures": ["GPTBigCodeForCausalLM"], "vocab_size": 49_152, "n_embd": 6144, "n_head": 48},
            **{"n_inner": 24_576, "n_layer": 40, "n_positions": 8192, "multi_query": True},
        },
        15.517,
    ),
    "Salesforce/codegen-350M-mono": (  # the files contain 356,712,448
        {
            **{"architectures": ["CodeGenForCausalLM"], "vocab_size": 51_200, "n_embd": 1024, "n_head": 16},
            **{"n_layer": 20, "rotary_dim": 32, "n_positions": 2048},
        },
        0.357,
    ),
    "EleutherAI/gpt-neo-1.3B": (  # the name gives 1.3B, and the files contain 1,315,575,808
        {**GPT_NEO, "hidden_size": 2048, "num_layers": 24, "num_heads": 16, "attention_types": neo_layers(12)},
        1.316,
    ),
    "EleutherAI/gpt-neo-2.7B": (  # the name gives 2.7B, and the files contain 2,651,307,520
        {**GPT_NEO, "hidden_size": 2560, "num_layers": 32, "num_heads": 20, "attention_types": neo_layers(16)},
        2.651,
    ),
    "microsoft/biogpt": (  # the paper: 347M
        sizes("BioGptForCausalLM", 42_384, 1024, 4096, 24, 16, max_position_embeddings=1024, **TIED),
        0.347,
    ),
    "karpathy/nanochat d20": (  # the announcement of the project: 561M
        sizes("NanoChatForCausalLM", 65_536, 1280, 5120, 20, 10, 10),
        0.561,
    ),
    "zai-org/GLM-4.1V-9B-Thinking": (  # its language model is GLM-4-9B-0414
        {
            **{"architectures": ["Glm4vForConditionalGeneration"], "model_type": "glm4v"},
            "text_config": sizes(
                "Glm4vForConditionalGeneration", 151_552, 4096, 13_696, 40, 32, 2, partial_rotary_factor=0.5
            ),
        },
        9.400,
    ),
    "meta-llama/Llama-3.2-11B-Vision": (  # without its layers that take images it is Llama 3.1 8B: 8.03B
        {
            **{"architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama"},
            "text_config": sizes("MllamaForConditionalGeneration", 128_256, 4096, 14_336, 40, 32, 8),
        },
        8.030,
    ),
    "jhu-clsp/ettin-decoder-150m": (  # the name gives 150m
        sizes("ModernBertDecoderForCausalLM", 50_368, 768, 1152, 22, 12),
        0.150,
    ),
    "microsoft/Phi-4-multimodal-instruct": (  # its language model is Phi-4-mini
        sizes("Phi4MultimodalForCausalLM", 200_064, 3072, 8192, 32, 24, 8, partial_rotary_factor=0.75, **TIED),
        3.836,
    ),
    "google/recurrentgemma-2b": (  # the paper: 2.68B
        sizes("RecurrentGemmaForCausalLM", 256_000, 2560, 15_360, 26, 10, 1, lru_width=2560, **GRIFFIN),
        2.683,
    ),
    "google/recurrentgemma-9b": (  # the paper: 8.58B
        sizes("RecurrentGemmaForCausalLM", 256_000, 4096, 24_576, 38, 16, 1, lru_width=4096, **GRIFFIN),
        8.580,
    ),
}

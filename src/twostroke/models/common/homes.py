"""Which file in `models/` registers an architecture, so that a start imports that one file and no other.

Written by tools/generate_docs.py from the model files; do not edit.

Knows: names.
Must not know: what a model file holds.
"""

from __future__ import annotations

_NAMES: dict[str, str] = {
    "classic.biogpt": "BioGptForCausalLM",
    "classic.bloom": "BloomForCausalLM",
    "classic.falcon": "FalconForCausalLM",
    "classic.gpt_bigcode": "GPTBigCodeForCausalLM",
    "classic.gpt_neo": "GPTNeoForCausalLM",
    "classic.gpt_neox": "GPTNeoXForCausalLM",
    "classic.gptj": "CodeGenForCausalLM GPTJForCausalLM",
    "classic.modernbert_decoder": "ModernBertDecoderForCausalLM",
    "classic.mpt": "MPTForCausalLM MptForCausalLM",
    "classic.nemotron": "NemotronForCausalLM",
    "classic.olmo": "OlmoForCausalLM",
    "classic.openai_gpt": "OpenAIGPTLMHeadModel",
    "classic.opt": "OPTForCausalLM",
    "classic.phi": "PhiForCausalLM",
    "classic.stablelm": "StableLmForCausalLM",
    "classic.starcoder2": "Starcoder2ForCausalLM",
    "dense.cohere": "Cohere2ForCausalLM CohereForCausalLM",
    "dense.ernie4_5": "Ernie4_5ForCausalLM PaddleOCRVLForConditionalGeneration",
    "dense.exaone4": "Exaone4ForCausalLM",
    "dense.gemma": "GemmaForCausalLM",
    "dense.gemma2": "Gemma2ForCausalLM VaultGemmaForCausalLM",
    "dense.gemma3": "Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3TextModel",
    "dense.gemma3n": "Gemma3nForCausalLM Gemma3nForConditionalGeneration",
    "dense.gemma4": (
        "Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForCausalLM "
        "Gemma4UnifiedForConditionalGeneration "
    ),
    "dense.glm4": (
        "Glm46VForConditionalGeneration Glm4ForCausalLM Glm4vForConditionalGeneration GlmForCausalLM "
        "GlmOcrForConditionalGeneration "
    ),
    "dense.granite": "GraniteForCausalLM",
    "dense.hunyuan": "HunYuanDenseV1ForCausalLM HunYuanVLForConditionalGeneration",
    "dense.ministral3": "Ministral3ForCausalLM",
    "dense.olmo2": "Olmo2ForCausalLM Olmo3ForCausalLM",
    "dense.phi3": "Phi3ForCausalLM Phi4MultimodalForCausalLM",
    "dense.seed_oss": "SeedOssForCausalLM",
    "dense.smollm3": "SmolLM3ForCausalLM",
    "encoders.bert": (
        "BertForMaskedLM BertForSequenceClassification BertModel ElectraForMaskedLM ElectraForPreTraining "
        "ElectraForSequenceClassification ElectraModel RobertaForMaskedLM RobertaForSequenceClassification "
        "RobertaModel XLMRobertaForMaskedLM XLMRobertaForSequenceClassification XLMRobertaModel "
    ),
    "encoders.distilbert": "DistilBertForMaskedLM DistilBertForSequenceClassification DistilBertModel",
    "encoders.eurobert": "EuroBertForMaskedLM EuroBertModel",
    "encoders.gte": "GteForMaskedLM GteForSequenceClassification GteModel",
    "encoders.jina_embeddings_v3": "JinaEmbeddingsV3ForMaskedLM JinaEmbeddingsV3Model",
    "encoders.modernbert": "ModernBertForMaskedLM ModernBertForSequenceClassification ModernBertModel",
    "encoders.neobert": "NeoBERT NeoBERTLMHead NeoBERTModel",
    "encoders.nomic_bert": "NomicBertModel",
    "experts.afmoe": "AfmoeForCausalLM",
    "experts.aria": "AriaForConditionalGeneration AriaTextForCausalLM",
    "experts.dots1": "Dots1ForCausalLM",
    "experts.ernie4_5_moe": (
        "Ernie4_5_MoeForCausalLM Ernie4_5_VLMoeForConditionalGeneration Ernie4_5_VL_MoeForConditionalGeneration "
    ),
    "experts.exaone_moe": "ExaoneMoeForCausalLM",
    "experts.glm4_moe": "Glm4MoeForCausalLM Glm4vMoeForConditionalGeneration",
    "experts.gpt_oss": "GptOssForCausalLM",
    "experts.granite_moe": "GraniteMoeForCausalLM GraniteMoeSharedForCausalLM",
    "experts.grok1": "Grok1ForCausalLM Grok1ModelForCausalLM",
    "experts.hunyuan_moe": "HunYuanMoEV1ForCausalLM",
    "experts.hy_v3": "HYV3ForCausalLM",
    "experts.llama4": "Llama4ForCausalLM Llama4ForConditionalGeneration",
    "experts.minimax_m2": "MiniMaxM2ForCausalLM",
    "experts.minimax_m3": "MiniMaxM3SparseForConditionalGeneration",
    "experts.olmoe": "FlexOlmoForCausalLM OlmoeForCausalLM",
    "experts.phimoe": "PhiMoEForCausalLM PhimoeForCausalLM",
    "experts.qwen2_moe": "Qwen2MoeForCausalLM",
    "experts.solar_open": "SolarOpenForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "latent.axk1": "AXK1ForCausalLM",
    "latent.deepseek_v2": "DeepseekV2ForCausalLM",
    "latent.deepseek_v3": "DeepseekV3ForCausalLM KimiK25ForConditionalGeneration Kimi_K25ForConditionalGeneration",
    "latent.deepseek_v32": "DeepseekV32ForCausalLM",
    "latent.deepseek_v4": "DeepseekV4ForCausalLM",
    "latent.glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "latent.glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "latent.minicpm3": "MiniCPM3ForCausalLM",
    "latent.mistral4": "Mistral4ForCausalLM",
    "latent.youtu": "YoutuForCausalLM",
    "llama": "LlamaForCausalLM",
    "llava": (
        "AudioFlamingo3ForConditionalGeneration AyaVisionForConditionalGeneration "
        "Cohere2VisionForConditionalGeneration DeepseekVLForConditionalGeneration "
        "Exaone4_5_ForConditionalGeneration GotOcr2ForConditionalGeneration "
        "GraniteSpeechForConditionalGeneration HyperCLOVAXVisionV2ForConditionalGeneration "
        "Idefics2ForConditionalGeneration Idefics3ForConditionalGeneration InternVLForConditionalGeneration "
        "JanusForConditionalGeneration Lfm2VlForConditionalGeneration Lfm3VlForConditionalGeneration "
        "LightOnOcrForConditionalGeneration LlavaForConditionalGeneration LlavaNextForConditionalGeneration "
        "LlavaNextVideoForConditionalGeneration LlavaOnevisionForConditionalGeneration "
        "MiniCPMV4_6ForConditionalGeneration Mistral3ForConditionalGeneration Ovis2ForConditionalGeneration "
        "QianfanOCRForConditionalGeneration Qwen2AudioForConditionalGeneration "
        "SmolVLMForConditionalGeneration VideoLlama3ForConditionalGeneration "
        "VideoLlavaForConditionalGeneration VipLlavaForConditionalGeneration VoxtralForConditionalGeneration "
    ),
    "mistral": "MinistralForCausalLM MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "near_llama.apertus": "ApertusForCausalLM",
    "near_llama.arcee": "ArceeForCausalLM",
    "near_llama.cwm": "CwmForCausalLM",
    "near_llama.granite_swa": "GraniteMoeSWAForCausalLM GraniteSWAForCausalLM",
    "near_llama.helium": "HeliumForCausalLM",
    "near_llama.hyperclovax": "HyperCLOVAXForCausalLM",
    "near_llama.jais2": "Jais2ForCausalLM",
    "near_llama.mllama": "MllamaForConditionalGeneration",
    "near_llama.muse_glimmer": "MuseGlimmerForConditionalGeneration",
    "near_llama.nanochat": "NanoChatForCausalLM",
    "qwen2": (
        "Qwen2ForCausalLM Qwen2VLForConditionalGeneration Qwen2_5OmniForConditionalGeneration "
        "Qwen2_5OmniModel Qwen2_5OmniThinkerForConditionalGeneration Qwen2_5_VLForConditionalGeneration "
    ),
    "qwen3": "Qwen3ForCausalLM Qwen3VLForConditionalGeneration",
    "qwen3_moe": (
        "Qwen3MoeForCausalLM Qwen3OmniMoeForConditionalGeneration Qwen3OmniMoeThinkerForConditionalGeneration "
        "Qwen3VLMoeForConditionalGeneration "
    ),
    "states.bamba": "BambaForCausalLM",
    "states.falcon_h1": "FalconH1ForCausalLM",
    "states.granite_hybrid": "GraniteMoeHybridForCausalLM",
    "states.jamba": "JambaForCausalLM",
    "states.kimi_linear": "KimiLinearForCausalLM",
    "states.lfm2": "Lfm2ForCausalLM Lfm2MoeForCausalLM",
    "states.lfm3": "Lfm3ForCausalLM",
    "states.mamba": "FalconMambaForCausalLM MambaForCausalLM",
    "states.mamba2": "Mamba2ForCausalLM",
    "states.minimax": "MiniMaxForCausalLM MiniMaxText01ForCausalLM",
    "states.nemotron_h": "NemotronHForCausalLM",
    "states.olmo_hybrid": "OlmoHybridForCausalLM",
    "states.qwen3_next": (
        "Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM "
        "Qwen3_5MoeForConditionalGeneration "
    ),
    "states.rwkv6": "Rwkv6ForCausalLM",
    "states.rwkv7": "RWKV7ForCausalLM",
    "states.zamba2": "Zamba2ForCausalLM",
    "windowed_experts.cohere2_moe": "Cohere2MoeForCausalLM",
    "windowed_experts.flint": "FlintForCausalLM",
    "windowed_experts.laguna": "LagunaForCausalLM",
    "windowed_experts.mellum": "MellumForCausalLM",
    "windowed_experts.mimo_v2_flash": "MiMoV2FlashForCausalLM",
}
"""Module below `twostroke.models` -> what config.json calls its models."""

_TYPES: dict[str, str] = {
    "AXK1ForCausalLM": "axk1",
    "AfmoeForCausalLM": "afmoe",
    "ApertusForCausalLM": "apertus",
    "ArceeForCausalLM": "arcee",
    "AriaForConditionalGeneration": "aria",
    "AriaTextForCausalLM": "aria_text",
    "BambaForCausalLM": "bamba",
    "BioGptForCausalLM": "biogpt",
    "BloomForCausalLM": "bloom",
    "CodeGenForCausalLM": "codegen",
    "Cohere2ForCausalLM": "cohere2",
    "Cohere2MoeForCausalLM": "cohere2_moe",
    "CohereForCausalLM": "cohere",
    "CwmForCausalLM": "cwm",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV3ForCausalLM": "deepseek_v3 kimi_k2",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "Dots1ForCausalLM": "dots1",
    "Ernie4_5ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5_moe",
    "Ernie4_5_VLMoeForConditionalGeneration": "ernie4_5_vl_moe",
    "Exaone4ForCausalLM": "exaone4",
    "ExaoneMoeForCausalLM": "exaone_moe",
    "FalconForCausalLM": "falcon",
    "FalconH1ForCausalLM": "falcon_h1",
    "FalconMambaForCausalLM": "falcon_mamba",
    "FlexOlmoForCausalLM": "flex_olmo",
    "FlintForCausalLM": "flint",
    "GPT2LMHeadModel": "gpt2",
    "GPTBigCodeForCausalLM": "gpt_bigcode",
    "GPTJForCausalLM": "gptj",
    "GPTNeoForCausalLM": "gpt_neo",
    "GPTNeoXForCausalLM": "gpt_neox",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma3ForConditionalGeneration": "gemma3",
    "Gemma3nForCausalLM": "gemma3n_text",
    "Gemma3nForConditionalGeneration": "gemma3n",
    "Gemma4ForCausalLM": "gemma4_text gemma4_unified_text",
    "Gemma4ForConditionalGeneration": "gemma4 gemma4_unified",
    "GemmaForCausalLM": "gemma",
    "Glm4ForCausalLM": "glm4",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "Glm4vForConditionalGeneration": "glm46v glm4v",
    "Glm4vMoeForConditionalGeneration": "glm4v_moe",
    "GlmForCausalLM": "glm",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "GlmOcrForConditionalGeneration": "glm_ocr",
    "GptOssForCausalLM": "gpt_oss",
    "GraniteForCausalLM": "granite",
    "GraniteMoeForCausalLM": "granitemoe",
    "GraniteMoeHybridForCausalLM": "granitemoehybrid",
    "GraniteMoeSWAForCausalLM": "granitemoe_swa",
    "GraniteMoeSharedForCausalLM": "granitemoeshared",
    "GraniteSWAForCausalLM": "granite_swa",
    "Grok1ModelForCausalLM": "grok-1",
    "HYV3ForCausalLM": "hy_v3",
    "HeliumForCausalLM": "helium",
    "HunYuanDenseV1ForCausalLM": "hunyuan_v1_dense",
    "HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe",
    "HunYuanVLForConditionalGeneration": "hunyuan_vl",
    "HyperCLOVAXForCausalLM": "hyperclovax",
    "Jais2ForCausalLM": "jais2",
    "JambaForCausalLM": "jamba",
    "KimiLinearForCausalLM": "kimi_linear",
    "Kimi_K25ForConditionalGeneration": "kimi_k25",
    "LagunaForCausalLM": "laguna",
    "Lfm2ForCausalLM": "lfm2",
    "Lfm2MoeForCausalLM": "lfm2_moe",
    "Lfm3ForCausalLM": "lfm3",
    "Llama4ForCausalLM": "llama4_text",
    "Llama4ForConditionalGeneration": "llama4",
    "LlamaForCausalLM": "llama",
    "LlavaForConditionalGeneration": (
        "aya_vision cohere2_vision deepseek_vl exaone4_5 got_ocr2 hyperclovax_vision_v2 idefics2 idefics3 "
        "internvl janus lfm2_vl lfm3_vl lighton_ocr llava llava_next llava_next_video llava_onevision "
        "minicpmv4_6 mistral3 ovis2 qianfan_ocr smolvlm video_llama_3 video_llava vipllava "
    ),
    "Mamba2ForCausalLM": "mamba2",
    "MambaForCausalLM": "mamba",
    "MellumForCausalLM": "mellum",
    "MiMoV2FlashForCausalLM": "mimo_v2_flash",
    "MiniCPM3ForCausalLM": "minicpm3",
    "MiniMaxForCausalLM": "minimax minimax_text_01",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "MiniMaxM3SparseForConditionalGeneration": "minimax_m3_vl",
    "Ministral3ForCausalLM": "ministral3",
    "MinistralForCausalLM": "ministral",
    "Mistral4ForCausalLM": "mistral4",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "MllamaForConditionalGeneration": "mllama",
    "ModernBertDecoderForCausalLM": "modernbert-decoder",
    "MptForCausalLM": "mpt",
    "MuseGlimmerForConditionalGeneration": "muse_glimmer",
    "NanoChatForCausalLM": "nanochat",
    "NemotronForCausalLM": "nemotron",
    "NemotronHForCausalLM": "nemotron_h",
    "OPTForCausalLM": "opt",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo3",
    "OlmoForCausalLM": "olmo",
    "OlmoHybridForCausalLM": "olmo_hybrid",
    "OlmoeForCausalLM": "olmoe",
    "OpenAIGPTLMHeadModel": "openai-gpt",
    "PaddleOCRVLForConditionalGeneration": "paddleocr_vl",
    "Phi3ForCausalLM": "phi3",
    "Phi4MultimodalForCausalLM": "phi4_multimodal",
    "PhiForCausalLM": "phi",
    "PhimoeForCausalLM": "phimoe",
    "Qwen2AudioForConditionalGeneration": "audioflamingo3 granite_speech qwen2_audio",
    "Qwen2ForCausalLM": "qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen2VLForConditionalGeneration": "qwen2_5_vl qwen2_vl",
    "Qwen2_5OmniForConditionalGeneration": "qwen2_5_omni qwen2_5_omni_thinker",
    "Qwen3ForCausalLM": "qwen3 qwen3_vl_text",
    "Qwen3MoeForCausalLM": "qwen3_moe qwen3_omni_moe_text",
    "Qwen3NextForCausalLM": "qwen3_next",
    "Qwen3OmniMoeForConditionalGeneration": "qwen3_omni_moe qwen3_omni_moe_thinker",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
    "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe",
    "Qwen3_5ForCausalLM": "qwen3_5_text",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
    "Qwen3_5MoeForCausalLM": "qwen3_5_moe_text",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe",
    "RWKV7ForCausalLM": "rwkv7",
    "Rwkv6ForCausalLM": "rwkv6",
    "SeedOssForCausalLM": "seed_oss",
    "SmolLM3ForCausalLM": "smollm3",
    "SolarOpenForCausalLM": "solar_open",
    "StableLmForCausalLM": "stablelm",
    "Starcoder2ForCausalLM": "starcoder2",
    "VaultGemmaForCausalLM": "vaultgemma",
    "VoxtralForConditionalGeneration": "voxtral",
    "YoutuForCausalLM": "youtu",
    "Zamba2ForCausalLM": "zamba2",
}
"""Name of an architecture that continues text -> its values of model_type."""

HOMES: dict[str, str] = {name: module for module, names in _NAMES.items() for name in names.split()}
"""Name of an architecture -> the module, below `twostroke.models`, that registers it."""
CAUSAL_OF_TYPE: dict[str, str] = {word: name for name, types in _TYPES.items() for word in types.split()}
"""model_type -> the architecture of models that continue text to which it belongs."""

"""LLaVA and models built like it: a tower for images or sounds before a language model of any family (Liu et al. 2023).
"""

from __future__ import annotations

from twostroke.models.common.fields.fields import with_silent
from twostroke.models.common.fields.nested import language_model_by_type
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture

MOSS = "moss_transcribe_diarize"
USUAL = {
    **{"aya_vision": "cohere2", "cohere2_vision": "cohere2", "idefics2": "mistral", "mistral3": "mistral"},
    **{"lfm2_vl": "lfm2", "lfm3_vl": "lfm3", "internvl": "qwen2"},
    **{"lighton_ocr": "qwen3", "qianfan_ocr": "qwen3", "llava_onevision": "qwen2"},
    **{"got_ocr2": "qwen2", "ovis2": "qwen2", "video_llama_3": "qwen2", "qwen2_audio": "qwen2"},
    **{"audioflamingo3": "qwen2", "granite_speech": "granite", "exaone4_5": "exaone4"},
    **{"musicflamingo": "qwen2", "granite_speech_plus": "granite"},
    **{"minicpmv4_6": "qwen3_5_text", "hyperclovax_vision_v2": "hyperclovax"},
    **{"fast_vlm": "qwen2", "granite_docling": "granite", "granite4_vision": "granite"},
    **{"minicpmv4_7": "qwen3_5_text", "minicpm_ocr": "qwen3_5_text"},
    MOSS: "qwen3",
}
"""Outer model_type -> model_type of the language model where its config does not have the field. Without an entry:
llama."""
SPEAKING = {
    **{"vocab_size": 131_072, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 30},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5},
    **{"rope_theta": 100_000_000.0, "head_dim": 128, "model_type": "llama"},
}
"""The defaults of Voxtral's language model for fields that its config does not have."""


@architecture(
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "LlavaNextVideoForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "VideoLlavaForConditionalGeneration",
    "VipLlavaForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "InternVLForConditionalGeneration",
    "Idefics2ForConditionalGeneration",
    "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
    "AyaVisionForConditionalGeneration",
    "Cohere2VisionForConditionalGeneration",
    "Lfm2VlForConditionalGeneration",
    "Lfm3VlForConditionalGeneration",
    "LightOnOcrForConditionalGeneration",
    "QianfanOCRForConditionalGeneration",
    "GotOcr2ForConditionalGeneration",
    "Ovis2ForConditionalGeneration",
    "VideoLlama3ForConditionalGeneration",
    "Exaone4_5_ForConditionalGeneration",
    "MiniCPMV4_6ForConditionalGeneration",
    "DeepseekVLForConditionalGeneration",
    "JanusForConditionalGeneration",
    "HyperCLOVAXVisionV2ForConditionalGeneration",
    "FastVlmForConditionalGeneration",
    "DeepseekVLHybridForConditionalGeneration",
    "GraniteDoclingForConditionalGeneration",
    "MiniCPMV4_7ForConditionalGeneration",
    "MiniCPMOcrForConditionalGeneration",
    "PerceptionLMForConditionalGeneration",
    "Granite4VisionForConditionalGeneration",
    model_type="llava",
    other_types=(
        *("llava_next", "llava_next_video", "llava_onevision", "video_llava", "vipllava", "mistral3", "internvl"),
        *("idefics2", "idefics3", "smolvlm", "aya_vision", "cohere2_vision", "lfm2_vl", "lighton_ocr", "qianfan_ocr"),
        "lfm3_vl",
        *("got_ocr2", "ovis2", "video_llama_3", "exaone4_5", "minicpmv4_6", "deepseek_vl", "janus"),
        *("hyperclovax_vision_v2", "fast_vlm", "deepseek_vl_hybrid"),
        *("granite_docling", "minicpmv4_7", "minicpm_ocr", "perception_lm", "granite4_vision"),
    ),
)
def llava(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also sees images. Pixtral is one of these models.

    Factors of logits (Cohere, Granite, HyperCLOVA X) are those of the language model; transformers 5 leaves them out.
    """
    return language_model_by_type(fields, USUAL.get(fields.text("model_type", ""), "llama"))


@architecture(
    "Qwen2AudioForConditionalGeneration",
    "AudioFlamingo3ForConditionalGeneration",
    "GraniteSpeechForConditionalGeneration",
    "GraniteSpeechPlusForConditionalGeneration",
    "MusicFlamingoForConditionalGeneration",
    "MossTranscribeDiarizeForConditionalGeneration",
    model_type="qwen2_audio",
    other_types=("audioflamingo3", "granite_speech", "granite_speech_plus", "musicflamingo", MOSS),
)
def listening(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also takes sounds, without adapters that only sounds need."""
    word = fields.text("model_type", "qwen2_audio")
    fields = with_silent(fields, {"tie_word_embeddings": True}) if word == MOSS else fields
    return language_model_by_type(fields, USUAL[word])


@architecture("VoxtralForConditionalGeneration", model_type="voxtral")
def voxtral(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also takes sounds. Its config may leave out every field."""
    text = fields.group("text_config")
    if text is None:
        return language_model_by_type(fields)
    inner = dict(with_silent(text, SPEAKING).values)
    return language_model_by_type(fields.changed({"text_config": inner}))

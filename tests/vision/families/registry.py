"""Families of models that see images, as tiny folders: random weights, a tokenizer of bytes, a template, a processor
file."""

from __future__ import annotations

from tests.vision.families.gemma3 import GEMMA3, GEMMA3_SLIDING
from tests.vision.families.gemma4 import GEMMA4
from tests.vision.families.glm import GLM
from tests.vision.families.internvl import INTERNVL
from tests.vision.families.kimi import KIMI
from tests.vision.families.lfm2 import LFM2_VL
from tests.vision.families.llama4 import LLAMA4, LLAMA4_USUAL
from tests.vision.families.llava import LLAVA
from tests.vision.families.minicpm import MINICPM
from tests.vision.families.paddleocr import PADDLEOCR_VL
from tests.vision.families.pixtral import PIXTRAL
from tests.vision.families.qwen import QWEN

_ALL = (*(*QWEN, *GEMMA3, PADDLEOCR_VL, *GLM, *PIXTRAL, *GEMMA4, *INTERNVL, LFM2_VL, *LLAVA, *MINICPM, *LLAMA4, *KIMI),)
FAMILIES = {family.name: family for family in _ALL}
WRITTEN = {**FAMILIES, LLAMA4_USUAL.name: LLAMA4_USUAL, "gemma3-sliding": GEMMA3_SLIDING}
"""Those whose folders `write_family` writes (tests/vision/folders.py)."""

"""Twostroke: an LLM inference engine that treats prefill and decode as two workloads.

    from twostroke import LLM, Grammar, SamplingParams
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["LLM", "AsyncEngine", "Grammar", "SamplingParams", "TwostrokeError", "__version__"]

if TYPE_CHECKING:
    from twostroke.engine.async_engine import AsyncEngine
    from twostroke.llm import LLM
    from twostroke.types.errors import TwostrokeError
    from twostroke.types.grammar import Grammar
    from twostroke.types.sampling.sampling_params import SamplingParams

_HOMES = {
    "LLM": "twostroke.llm",
    "AsyncEngine": "twostroke.engine.async_engine",
    "Grammar": "twostroke.types.grammar",
    "SamplingParams": "twostroke.types.sampling.sampling_params",
    "TwostrokeError": "twostroke.types.errors",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use. Raises AttributeError for others."""
    if name not in _HOMES:
        raise AttributeError(f"module 'twostroke' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)

"""Twostroke: an LLM inference engine that treats prefill and decode as two workloads."""

__version__ = "0.1.0"

"""The names that every model file imports."""

from __future__ import annotations

from twostroke.models.common.fields.defaults import defaults
from twostroke.models.common.registry import Architecture, CommonFacts, ProgramText, architecture
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.types.spec.fields import Fields

__all__ = ["Architecture", "CommonFacts", "Fields", "ProgramText", "Tracer", "Value", "architecture", "defaults"]

"""Rounding: makes packed weights from numbers, and holds the formats that this engine offers."""

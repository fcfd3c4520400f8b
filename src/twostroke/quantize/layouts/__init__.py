"""How the formats of the hub store codes and scales: functions from arrays to named arrays.

Knows: NumPy, the formats' members.
Must not know: models, files, the engine.
"""

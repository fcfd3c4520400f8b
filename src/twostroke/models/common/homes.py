"""Which file in `models/` registers an architecture, so that a start imports that one file and no other.

`make docs` writes homes.json from the model files.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

_TABLES: dict[str, dict[str, str]] = msgspec.json.decode(Path(__file__).with_name("homes.json").read_bytes())
HOMES = _TABLES["homes"]
"""Name of an architecture -> the module, below `twostroke.models`, that registers it."""
CAUSAL_OF_TYPE = _TABLES["causal_of_type"]
"""model_type -> the architecture that it belongs to. Only architectures of models that continue text are listed."""

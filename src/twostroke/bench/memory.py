"""Peak memory of this process.

Knows: getrusage.
Must not know: what took it.
"""

from __future__ import annotations

import resource
import sys


def peak_bytes() -> int:
    """The largest resident size so far, mapped files included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

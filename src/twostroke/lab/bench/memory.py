"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak_bytes() -> int:
    """The largest resident size so far, mapped files included."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux a process inherits that of the process that started it.
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(fields["VmHWM"].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

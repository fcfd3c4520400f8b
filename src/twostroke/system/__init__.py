"""The differences between operating systems: one module for each system, with the same names. `here` is the module of
this machine."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from twostroke.system import windows as here
elif sys.platform == "darwin":
    from twostroke.system import macos as here
else:
    from twostroke.system import linux as here

__all__ = ["here"]

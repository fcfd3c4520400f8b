"""Draws the seeds of requests that name none."""

from __future__ import annotations

import secrets
from functools import partial

from twostroke.engine.resources import Seeds
from twostroke.runner.sampling.random_draw import sibling_seed

SEEDS = Seeds(partial(secrets.randbits, 63), sibling_seed)

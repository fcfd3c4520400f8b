"""Predicts the points of a sweep: asks the planner about each point, with the kept measurement of this machine."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.cost.calibration import Calibration
    from twostroke.lab.bench.load.sweep import Prediction, Sweep

NO_MODEL = "none"


def is_here(url: str) -> bool:
    """Returns whether the server is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def prediction_model(asked: str | None, served: str, url: str) -> tuple[str | None, str]:
    """Returns the model to predict for, or None with the reason why nothing is predicted."""
    from twostroke.weights.hub.hub import EMBEDDED

    if asked == NO_MODEL:
        return None, ""
    if asked is not None:
        return asked, ""
    if not is_here(url):
        return None, "no prediction: the server is on another machine; --predict MODEL predicts for this one"
    if served == EMBEDDED:
        return served, ""
    return None, f"no prediction: --predict MODEL names the folder or hub id of {served}"


def kept_measurement(threads: int | None) -> Calibration | None:
    """Returns what `twostroke doctor` measured here with `threads` threads (None: one for each core); None where
    nothing is kept."""
    from twostroke.lab.planner.doctor.machine import ThisMachine

    return ThisMachine.read(threads).kept()


def predict(
    found: Sweep, model: str, weights: str | None, kv_format: str | None, calibration: Calibration
) -> Prediction:
    """Returns the prediction for the measured points. Raises ConfigError for an impossible format or length."""
    from twostroke.assembly.settings.env import read_machine
    from twostroke.lab.bench.load.sweep import Prediction, UsersPrediction
    from twostroke.lab.planner.ask import make_ask
    from twostroke.lab.planner.expect import expect
    from twostroke.lab.planner.model_config import read_model
    from twostroke.lab.planner.target import here_target

    spec = read_model(model).spec
    target = here_target(calibration, read_machine().available_bytes)
    asked = make_ask(spec, weights, kv_format)
    users, ttft, itl = [], [], []
    for point in found.users:
        ask = replace(
            asked,
            prompt_tokens=found.ask.prompt_tokens,
            output_tokens=found.ask.output_tokens,
            concurrency=point.users,
        )
        load = expect(spec, ask, target).load
        if load is not None:
            users.append(UsersPrediction(point.users, load.output_tokens_per_s, load.mean_itl_s, load.ttft_s))
    for each in found.lengths:
        output = round(2 * (each.context_tokens - each.prompt_tokens))
        ask = replace(asked, prompt_tokens=each.prompt_tokens, output_tokens=max(1, output))
        expectation = expect(spec, ask, target)
        ttft.append((float(each.prompt_tokens), expectation.ttft_alone_s))
        itl.append((each.context_tokens, expectation.decode_one.seconds))
    name = Path(model).name or model  # a picture must not contain a folder name of this machine
    words = (
        f"{name}, {asked.weights} weights, {asked.kv_format} K and V, {calibration.threads} threads of "
        f"{calibration.title.split(' avx')[0]}, as measured by doctor; HTTP and tokenizer cost nothing, "
        "users are spread evenly in time"
    )
    if calibration.disturbed:
        words += f"; other programs took {calibration.others_share:.0%} of the cores while doctor measured"
    return Prediction(words, tuple(users), tuple(ttft), tuple(itl))


def require_kept(calibration: Calibration | None, asked: str | None) -> str:
    """Returns "" where a measurement of this machine is kept, else the reason why nothing is predicted. asked: the
    value of --predict. Raises ConfigError where it is given and no measurement is kept."""
    if calibration is not None:
        return ""
    if asked is not None:
        raise ConfigError(
            "--predict needs this machine's measurement, and none is kept.", fix="Run `twostroke doctor` first."
        )
    return "no prediction: no measurement of this machine is kept; `twostroke doctor` makes one"

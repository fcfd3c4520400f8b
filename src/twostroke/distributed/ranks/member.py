"""A member of a group computes its part of each step that the leader sends. It ends when its connection to the leader
ends."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

import numpy as np

from twostroke.distributed.ranks.frames import Frame, RankAsk, RankGiven, RankHere, RankRows, RankStep, RankWaited
from twostroke.distributed.ranks.leader import MeetingPlace
from twostroke.distributed.ranks.line import RankLine, RankLineLost
from twostroke.distributed.ranks.step_changes import StepDecoder
from twostroke.distributed.ranks.step_rows import fill, mark
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.forward import Forward
from twostroke.runner.images.step_images import ImageInputs
from twostroke.runner.step_inputs import write_sequences
from twostroke.types.errors import BackendError, MeetingLost


class RankMember:
    """Computes one rank's part of each step. require_sound: a function that raises where the weights are damaged.
    inputs: writes image rows into a step's memory; None where the model reads no images."""

    def __init__(
        self,
        line: RankLine,
        memory: StepMemory,
        forward: Forward,
        meeting: MeetingPlace,
        require_sound: Callable[[], None],
        inputs: ImageInputs | None = None,
    ) -> None:
        self._inputs = inputs
        self._line, self._memory, self._forward, self._meeting = line, memory, forward, meeting
        self._require_sound = require_sound
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._left = False
        self._listening = threading.Thread(target=self._listen, name="leader", daemon=True)

    def follow(self) -> None:
        """Computes what the leader's frames ask for, until the leader ends. Raises BackendError where a kernel refuses,
        ValueError where a frame is not valid."""
        self._listening.start()
        decoder, sizes, passes = StepDecoder(), StepSizes(0, 0, 0), 0
        while (frame := self._frames.get()) is not None:
            if isinstance(frame, RankGiven):
                fill(frame, self._given())
                continue
            passes += 1
            self._require_sound()
            self._meeting.begin(passes)
            try:
                if isinstance(frame, RankStep):
                    sizes = self._write(frame, decoder)
                    self._forward(sizes)
                elif isinstance(frame, RankRows):
                    self._forward.logits(np.array(frame.rows, np.int32), sizes)
            except BackendError as error:
                if self._left:
                    return
                if isinstance(error, MeetingLost):
                    self._say(RankWaited())
                raise

    def _write(self, step: RankStep, decoder: StepDecoder) -> StepSizes:
        self._memory.copy_states(step.state_copies)
        self._memory.copy_pages(step.page_copies)
        sizes = write_sequences(decoder.sequences(step), self._memory)
        if self._inputs is not None:
            mark(step, self._inputs, sizes)
        return sizes

    def _given(self) -> ImageInputs:
        if self._inputs is None:
            raise ValueError("image rows for a model that reads no images")
        return self._inputs

    def _say(self, frame: Frame) -> None:
        with contextlib.suppress(RankLineLost):  # the leader has ended, so it needs no reason
            self._line.send(frame)

    def _listen(self) -> None:
        """Receives the leader's frames in a thread of its own. When the connection ends, it makes a step that waits in
        the exchange stop waiting."""
        try:
            while True:
                frame = self._line.receive()
                if isinstance(frame, RankAsk):
                    self._line.send(RankHere())
                else:
                    self._frames.put(frame)
        except RankLineLost:
            self._left = True
            self._frames.put(None)
            self._meeting.end()

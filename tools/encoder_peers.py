"""Other engines that encode images, each in a process of its own that encodes once for each line that it reads.

    with Peer(python, OPENVINO, folder, {"kind": "int8", ...}) as peer:
        seconds, rows = peer.encode(), peer.rows()
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from twostroke.ops.operands import F32Array

_BEGIN = """
import ctypes, json, sys, time
import numpy as np
asked = json.load(open(sys.argv[1]))
clock = time.process_time if asked["clock"] == "cpu" else time.perf_counter

def serve(encode):
    for count, _ in enumerate(sys.stdin):
        begin = clock()
        rows = encode()
        seconds = clock() - begin
        if count == 0:
            np.save(asked["rows"], rows)
        print("seconds", seconds, flush=True)
"""
OPENVINO = (
    _BEGIN
    + """
import openvino, torch, transformers
judge = transformers.AutoModelForImageTextToText.from_pretrained(asked["folder"], dtype=torch.float32).eval()
given = {name: torch.tensor(np.load(path)) for name, path in asked["given"].items()}
pixels = given.pop("pixel_values")

class Tower(torch.nn.Module):
    def forward(self, pixels):
        found = judge.model.get_image_features(pixel_values=pixels, **given)
        rows = found.pooler_output if found.pooler_output is not None else found.last_hidden_state
        every = [rows, *(getattr(found, "deepstack_features", None) or ())]
        flat = [torch.cat([part.reshape(-1, part.shape[-1]) for part in each]) for each in every]
        return torch.cat(flat, dim=1)

with torch.no_grad():
    try:
        model = openvino.convert_model(torch.export.export(Tower().eval(), (pixels,), strict=False))
    except Exception:  # sizes that follow from numbers of a tensor cannot be exported; a trace holds them as numbers
        model = openvino.convert_model(Tower().eval(), example_input=pixels)
settings = {"INFERENCE_NUM_THREADS": asked["threads"], "PERFORMANCE_HINT": "LATENCY"}
if asked["kind"] == "f32":
    settings["INFERENCE_PRECISION_HINT"] = "f32"
if asked["kind"] == "int8":
    import nncf
    model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()

def encode():
    request.infer([pixels.numpy()])
    return request.get_output_tensor(0).data

serve(encode)
"""
)
"""Kinds: usual (what OpenVINO chooses for this machine), f32, int8. Needs openvino, nncf, torch and transformers."""
LLAMA = (
    _BEGIN
    + """
import llama_cpp.llama_cpp as llama, llama_cpp.mtmd_cpp as mtmd
llama.llama_backend_init()
own = llama.llama_model_default_params()
own.n_gpu_layers = 0
model = llama.llama_model_load_from_file(asked["text"].encode(), own)
how = mtmd.mtmd_context_params_default()
how.use_gpu, how.n_threads, how.warmup, how.print_timings = False, asked["threads"], False, False
eyes = mtmd.mtmd_init_from_file(asked["encoder"].encode(), model, how)
picture = np.load(asked["picture"])
height, width, _ = picture.shape
bitmap = mtmd.mtmd_bitmap_init(width, height, (ctypes.c_uint8 * picture.size).from_buffer_copy(picture.tobytes()))
mark = mtmd.mtmd_default_marker()
said = mtmd.mtmd_input_text()
said.text, said.add_special, said.parse_special = mark, False, True
if hasattr(said, "text_len"):
    said.text_len = len(mark)
chunks = mtmd.mtmd_input_chunks_init()
status = mtmd.mtmd_tokenize(eyes, chunks, ctypes.byref(said), (ctypes.c_void_p * 1)(bitmap), 1)
assert status == 0, status
every = [mtmd.mtmd_input_chunks_get(chunks, place) for place in range(mtmd.mtmd_input_chunks_size(chunks))]
images = [each for each in every if mtmd.mtmd_input_chunk_get_type(each) == 1]
assert len(images) == 1, len(images)
count = mtmd.mtmd_input_chunk_get_n_tokens(images[0])
columns = llama.llama_model_n_embd_inp(model)

def encode():
    assert mtmd.mtmd_encode_chunk(eyes, images[0]) == 0
    return np.ctypeslib.as_array(mtmd.mtmd_get_output_embd(eyes), (count * columns,)).reshape(count, columns)

serve(encode)
"""
)
"""Kinds: F16, Q8_0, the formats of the mmproj file. Needs the package llama_cpp_python with its libraries."""


class Peer:
    """A running peer. python: the interpreter of its environment. folder: a folder for its files. asked: what the
    script reads. Raises RuntimeError with the end of its output where it ends early."""

    def __init__(self, python: Path, script: str, folder: Path, asked: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._rows, self._log = folder / "rows.npy", (folder / "log.txt").open("w+")
        (folder / "asked.json").write_text(json.dumps({**asked, "rows": str(self._rows)}))
        words, pipe = [str(python), "-c", script, str(folder / "asked.json")], subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=self._log, text=True)

    def encode(self) -> float:
        """Encodes the picture once. Returns the seconds."""
        given, made = self._process.stdin, self._process.stdout
        if given is None or made is None:
            raise RuntimeError("the peer has no pipes")
        try:
            given.write("again\n")
            given.flush()
        except BrokenPipeError:
            pass  # the peer has ended, and its output has the reason
        for line in made:
            if line.startswith("seconds "):
                return float(line.split()[1])
        self._log.seek(0)
        raise RuntimeError(f"a peer has ended:\n{self._log.read()[-2000:]}")

    def rows(self) -> F32Array:
        """Returns the image rows of the first encode."""
        found: F32Array = np.load(self._rows)
        return found

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # the peer has ended, and `encode` has said so
                self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

"""A server of OpenVINO GenAI's continuous batching, for measurements of load. It runs in the peer's own environment.

    python openvino_server.py FILE.gguf|FOLDER --port N --threads N

OpenVINO's own server, OVMS, is a program in C++ that no Python package contains. It puts HTTP before the same pipeline
in the same way: requests come in threads of their own, one thread runs the pipeline's steps, and each new token is sent
when its step is over. HTTP is written in Python here, which takes some tens of microseconds a token.

It has the routes that `twostroke bench serve` calls: /health, /v1/models, /v1/chat/completions and /v1/completions,
streamed, with usage.
"""

import argparse
import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy
import openvino
import openvino_genai

UNFINISHED = "\ufffd"
"""What a part of a character is decoded to."""


class Pipeline:
    """The pipeline and the thread that runs its steps."""

    def __init__(self, asked):
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.cache_size, scheduling.enable_prefix_caching = asked.cache_gib, True
        settings = {"INFERENCE_NUM_THREADS": asked.threads}
        self.pipe = openvino_genai.ContinuousBatchingPipeline(asked.model, scheduling, "CPU", settings)
        self.tokenizer = self.pipe.get_tokenizer()
        self.live, self.number = {}, 0
        self.changed = threading.Condition()
        threading.Thread(target=self._steps, daemon=True).start()

    def ask(self, text, special, most, exact):
        """Begins a request. special: whether the tokenizer adds its tokens. Returns its number, the number of tokens of
        its prompt, and the queue of its new tokens: (ids, whether these are the last)."""
        ids = self.tokenizer.encode(text, add_special_tokens=special).input_ids
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = most, exact, False
        config.set_eos_token_id(self.tokenizer.get_eos_token_id())
        found = queue.SimpleQueue()
        with self.changed:
            self.number += 1
            number = self.number
            self.live[number] = (self.pipe.add_request(number, ids, config), found)
            self.changed.notify()
        return number, int(numpy.prod(ids.shape)), found

    def stop(self, number):
        """Ends a request whose reader has left."""
        with self.changed:
            handle, _ = self.live.pop(number, (None, None))
            if handle is not None:
                handle.stop()

    def _steps(self):
        while True:
            with self.changed:
                while not self.live:
                    self.changed.wait()
            self.pipe.step()
            with self.changed:
                for number, (handle, found) in list(self.live.items()):
                    self._read(number, handle, found)

    def _read(self, number, handle, found):
        while handle.can_read():
            for output in handle.read().values():
                found.put((list(output.generated_ids), False))
        if handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
            del self.live[number]
            found.put(([], True))


class Handler(BaseHTTPRequestHandler):
    """One connection. pipeline, name: set by `main`."""

    pipeline, name = None, ""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Writes no log."""

    def do_GET(self):
        """Answers /health and /v1/models."""
        found = {"data": [{"id": self.name, "object": "model"}]} if self.path == "/v1/models" else {"status": "ok"}
        self._send(200, found)

    def do_POST(self):
        """Answers a completion, streamed."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            self._send(404, {"error": {"message": "There is nothing at this path."}})
            return
        text = body.get("prompt", "")
        if chat:
            text = self.pipeline.tokenizer.apply_chat_template(body["messages"], True)
        most = body.get("max_tokens") or 128
        number, prompt_tokens, found = self.pipeline.ask(text, not chat, most, body.get("ignore_eos", False))
        try:
            self._stream(found, prompt_tokens, chat)
        except OSError:
            self.pipeline.stop(number)
            self.close_connection = True

    def _stream(self, found, prompt_tokens, chat):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        held, count, last = [], 0, False
        while not last:
            ids, last = found.get()
            count, held = count + len(ids), held + ids
            piece = self.pipeline.tokenizer.decode(held) if held else ""
            if piece.endswith(UNFINISHED) and not last:
                continue
            held = []
            choice = {"index": 0, "finish_reason": "length" if last else None}
            choice |= {"delta": {"content": piece}} if chat else {"text": piece}
            if piece or last:
                self._event({"choices": [choice]})
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
        self._event({"choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, value):
        self._chunk(b"data: " + json.dumps({"model": self.name, **value}).encode() + b"\n\n")

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _send(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    """A server with room for all connections of a burst."""

    request_queue_size, daemon_threads = 512, True


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache-gib", type=int, default=4)
    asked = parser.parse_args()
    Handler.pipeline, Handler.name = Pipeline(asked), asked.model.rstrip("/").rpartition("/")[2]
    print(f"OpenVINO {openvino.__version__}", flush=True)
    Server(("127.0.0.1", asked.port), Handler).serve_forever()


if __name__ == "__main__":
    main()

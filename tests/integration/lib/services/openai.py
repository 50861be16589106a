"""A server of OpenAI's API, of our own, so that each fault is known.

Chat answers "echo: " and the last user's words; classes define faulty answers. Tokens are words.
"""
import base64
import contextlib
import json
import threading

import numpy

from lib.services import other

MODEL = "tiny"
WIDTH = 8


def vector(text):
    """What a text is embedded as."""
    seed = sum(text.encode()) + len(text)
    return numpy.random.default_rng(seed).standard_normal(WIDTH).astype(numpy.float32)


class Host(other.Handler):
    model = MODEL
    width = WIDTH
    key = None
    takes_base64 = True

    def do_GET(self):
        if self.key and self.headers["Authorization"] != f"Bearer {self.key}":
            self.say(401, {"error": {"message": f"Incorrect API key: {self.headers['Authorization']}"}})
        elif self.path == "/v1/models":
            self.say(200, {"object": "list", "data": [{"id": self.model, "object": "model"}]})
        else:
            self.say(200 if self.path == "/health" else 404, b"")

    def do_POST(self):
        request = json.loads(self.body())
        with self.server.lock:
            self.seen.append((self.path, request))
            number = len(self.seen)
        if self.key and self.headers["Authorization"] != f"Bearer {self.key}":
            self.say(401, {"error": {"message": f"Incorrect API key: {self.headers['Authorization']}"}})
        else:
            self.answer(number, request)

    def answer(self, number, request):
        answer = getattr(self, self.path.rsplit("/", 1)[1], None)
        if answer:
            answer(request)
        else:
            self.say(404, {"detail": "Not Found"})

    def usage(self, prompt, completion=0):
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def content(self, request):
        """The answer's text, and why it ended."""
        return "echo: " + request["messages"][-1]["content"], "stop"

    def chat(self, request, text, reason, **message):
        words = sum(len(m["content"].split()) for m in request["messages"])
        self.say(200, {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": self.model, "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": reason,
             "logprobs": None}], "usage": self.usage(words, len(text.split()) if text else 1)})

    def completions(self, request):
        if "messages" in request:
            self.chat(request, *self.content(request))
            return
        prompts = request["prompt"]
        self.say(200, {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": self.model, "choices": [
            {"index": i, "text": f"after {p}", "finish_reason": "stop", "logprobs": None} for i, p in
            self.order(list(enumerate(prompts)))], "usage": self.usage(sum(len(p.split()) for p in prompts), 2 * len(prompts))})

    def order(self, rows):
        return rows

    def embeddings(self, request):
        if request.get("encoding_format") == "base64" and not self.takes_base64:
            self.say(400, {"error": {"message": "encoding_format: unexpected"}})
            return
        rows = [(i, self.vector(t)) for i, t in enumerate(request["input"])]
        packed = request.get("encoding_format") == "base64"
        self.say(200, {"object": "list", "model": self.model, "data": [
            {"object": "embedding", "index": i,
             "embedding": base64.b64encode(v.tobytes()).decode() if packed else [float(x) for x in v]}
            for i, v in self.order(rows)], "usage": self.usage(sum(len(t.split()) for t in request["input"]))})

    def vector(self, text):
        return vector(text)[:self.width]


@contextlib.contextmanager
def hosts(*handlers):
    """Addresses; each handler is a class of its own, whose `seen` are the requests that it got."""
    with contextlib.ExitStack() as stack:
        made = [type(h.__name__, (h,), {"seen": [], "gate": threading.Event()}) for h in handlers]
        running = [stack.enter_context(other.serving(h)) for h in made]
        yield [f"127.0.0.1:{s.server_address[1]}" for s in running], made

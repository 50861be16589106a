"""Models of MLServer that the tests run."""
import asyncio
import ctypes
import os
import threading
from typing import List

import numpy as np
import pandas as pd
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec, decode_args
from mlserver.errors import MLServerError
from mlserver.types import InferenceResponse


class Sum(MLModel):
    """Each row's sum. Its name in the answer shows that `load` was called."""

    async def load(self):
        self.loaded = "loaded"
        return True

    async def predict(self, payload):
        array = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(model_name=self.name, model_version=self.version,
                                 outputs=[NumpyCodec.encode_output(self.loaded, array.sum(axis=1))])


class Commanded(MLModel):
    """Executes the command in its input."""

    async def predict(self, payload):
        word = self.decode(payload.inputs[0], default_codec=StringCodec)[0]
        if word == "mine":
            raise MLServerError("no such thing", 404)
        if word == "raise":
            raise ValueError("no good")
        if word == "none":
            return None
        if word == "crash":
            ctypes.string_at(0)
        if word == "header":
            word = payload.parameters.headers["x-word"]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("word", [word.upper()])])


class Tasks(MLModel):
    """Uses the event loop in the way that its input says."""

    async def load(self):
        self.turns, self.task = 0, asyncio.create_task(self.count())
        return True

    async def count(self):
        while True:
            self.turns += 1
            await asyncio.sleep(0.001)

    async def predict(self, payload):
        word = self.decode(payload.inputs[0], default_codec=StringCodec)[0]
        if word == "stop":
            self.task.cancel()
        if word == "wait":
            await asyncio.wait_for(asyncio.sleep(0.01), 100)
        if word == "thread":
            await asyncio.to_thread(str)
        if word == "late":
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        answer = str(self.turns) if word == "turns" else str(asyncio.current_task() in asyncio.all_tasks())
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("word", [answer])])


class Args(MLModel):
    @decode_args
    async def predict(self, array: np.ndarray, words: List[str]) -> List[str]:
        return [f"{w}{a}" for w, a in zip(words, array.ravel())]


class Frame(MLModel):
    @decode_args
    async def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        frame["total"] = frame.sum(axis=1, numeric_only=True)
        return frame


class Words(MLModel):
    """The words of a text, one answer each."""

    async def predict(self, payload):
        text = self.decode(payload.inputs[0], default_codec=StringCodec)[0]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("text", [text])])

    async def predict_stream(self, payloads):
        payload = [p async for p in payloads][0]
        for word in self.decode(payload.inputs[0], default_codec=StringCodec)[0].split():
            if word == "bad":
                raise ValueError("a bad word")
            yield InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("word", [word])])


class Talk(MLModel):
    """Answers each message of a stream by the sum of all so far, and the process; words that are commands do something else."""

    async def predict(self, payload):
        word = self.decode(payload.inputs[0], default_codec=StringCodec)[0]
        if word.startswith("block "):
            open(word[6:], "w").close()
            threading.Event().wait()
        return self._say(str(len(self.ended)))

    async def load(self):
        self.ended = []
        return True

    def _say(self, *words):
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("said", list(words))])

    async def predict_stream(self, payloads):
        total = 0
        try:
            async for payload in payloads:
                word = self.decode(payload.inputs[0], default_codec=StringCodec)[0]
                if word == "die":
                    os._exit(3)
                if word == "wait":
                    yield self._say("waits")
                    await asyncio.Event().wait()
                if word == "stop":
                    return
                if word == "fail":
                    raise ValueError("a bad word")
                if word == "mine":
                    raise MLServerError("no such thing", 404)
                if word == "many":
                    for i in range(10000):
                        yield self._say(str(i) * 1000)
                total += int(word) if word.isdigit() else 0
                if word != "quiet":
                    yield self._say(str(total), payload.id, *([] if self.name == "talk" else [str(os.getpid())]))
            yield self._say("end", str(total))
        finally:
            self.ended.append(total)

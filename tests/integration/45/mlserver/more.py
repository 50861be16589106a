"""Models of MLServer with metrics, handlers and batches of their own."""
import asyncio
import sys

import mlserver
import numpy as np
from fastapi import Body
from fastapi.responses import PlainTextResponse, StreamingResponse
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.errors import MLServerError
from mlserver.handlers import custom_handler
from mlserver.rest.requests import Request
from mlserver.rest.responses import Response
from mlserver.types import InferenceResponse, Parameters, ResponseOutput


class Counting(MLModel):
    async def load(self):
        mlserver.register("word_length", "Letters of a word")
        return True

    async def predict(self, payload):
        for length in self.decode(payload.inputs[0], default_codec=NumpyCodec).ravel().tolist():
            mlserver.log(word_length=length, other_length=length)
        return InferenceResponse(model_name=self.name, outputs=[])


class Handled(MLModel):
    """Handlers for paths of its own."""

    @custom_handler(rest_path="/sum")
    async def sum(self, request: Request) -> Response:
        return Response(content={"sum": sum(await request.json())}, headers={"x-model": self.name})

    @custom_handler(rest_path="/words/{word}", rest_method="GET")
    async def word(self, word: str, times: int = 1) -> PlainTextResponse:
        return PlainTextResponse(word * times)

    @custom_handler(rest_path="/typed", rest_method="PUT")
    async def typed(self, n: int = Body(embed=True)) -> dict:
        if n < 0:
            raise MLServerError("too small", 418)
        return {"n": n}

    @custom_handler(rest_path="/parts", rest_method="GET")
    async def parts(self) -> StreamingResponse:
        async def some():
            for i in range(3):
                yield await asyncio.to_thread("part {}\n".format, i)
        return StreamingResponse(some(), media_type="text/plain")

    @custom_handler(rest_path="/broken")
    async def broken(self) -> Response:
        raise ValueError("no answer")

    async def predict(self, payload):
        return InferenceResponse(model_name=self.name, outputs=[])


class Batched(MLModel):
    """Answers with each row's sum and the number of rows that it was given at once."""

    async def predict(self, payload):
        array = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        if (array < 0).any():
            raise MLServerError("a negative number")
        print("batch of", len(array), file=sys.stderr)
        outputs = [NumpyCodec.encode_output("sum", array.sum(axis=1)), NumpyCodec.encode_output("rows", np.full((len(array), 1), len(array)))]
        return InferenceResponse(model_name=self.name, outputs=outputs, parameters=Parameters(headers={"x-rows": str(len(array))}))


class Odd(Batched):
    """One answer, however many rows there are."""

    async def predict(self, payload):
        array = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(model_name=self.name, outputs=[ResponseOutput(name="all", shape=[1], datatype="FP64", data=[float(array.sum())])])


class Failing(MLModel):
    """Fails with the status that it is asked for."""

    async def predict(self, payload):
        await asyncio.sleep(0)
        raise MLServerError("as asked", int(payload.inputs[0].data[0]))


class Where(MLModel):
    """The interpreter's environment, and a module of it."""

    async def predict(self, payload):
        import millrace_testing

        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("where", [sys.prefix, millrace_testing.WORD])])

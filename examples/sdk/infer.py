"""python infer.py simple http://localhost:8000 [URL...]: one inference that waits, and ten at a time."""
import asyncio
import sys

import numpy

import millrace

model, *urls = sys.argv[1:]
numbers = numpy.arange(16, dtype=numpy.int32).reshape(1, 16)
inputs = {"INPUT0": numbers, "INPUT1": numbers}

with millrace.Client(*urls) as client:
    print(*client.infer(model, inputs, outputs=["OUTPUT0"])["OUTPUT0"][0])


async def many():
    async with millrace.AsyncClient(*urls) as client:
        results = await asyncio.gather(*(client.infer(model, inputs, id=str(i)) for i in range(10)))
    return [result.id for result in results if (result["OUTPUT1"] == 0).all()]


print(*asyncio.run(many()))

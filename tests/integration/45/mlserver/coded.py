"""Models of MLServer whose arguments and results are of types that have codecs."""
from datetime import timedelta
from typing import List

import pandas as pd
from mlserver import MLModel
from mlserver.codecs import DatetimeCodec, decode_args
from mlserver.types import InferenceResponse


class Reversed(MLModel):
    @decode_args
    async def predict(self, blobs: List[bytes]) -> List[bytes]:
        return [blob[::-1] for blob in blobs]


class Tomorrow(MLModel):
    async def predict(self, payload):
        times = [time + timedelta(days=1) for time in self.decode(payload.inputs[0])]
        return InferenceResponse(model_name=self.name, outputs=[DatetimeCodec.encode_output("output-0", times)])


class Objects(MLModel):
    """A column of objects: what is in them, and objects again."""

    @decode_args
    async def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [o["n"] for o in frame["object"]], "object": [{"seen": o, "row": i} for i, o in enumerate(frame["object"])]})

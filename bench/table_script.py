"""The job that `millrace batch run` is measured beside, as people write it by hand: pyarrow reads, aiohttp sends so many
calls at a time with binary tensors, pyarrow writes. No restart, no check of an answer, no second host.

    table_script.py IN OUT HOST MODEL ROWS_A_CALL [text]
"""
import asyncio
import json
import struct
import sys
from pathlib import Path

import aiohttp
import numpy
import pyarrow as pa
import pyarrow.parquet as pq

IN_FLIGHT = 16
folder, out, host, model, rows = Path(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
is_text = len(sys.argv) > 6


def batches():
    for path in sorted(folder.iterdir()):
        if is_text:
            lines = [json.loads(line) for line in path.read_bytes().splitlines()]
            for i in range(0, len(lines), rows):
                some = lines[i:i + rows]
                yield [line["id"] for line in some], [line["text"].encode() for line in some]
        else:
            for batch in pq.ParquetFile(path).iter_batches(rows, columns=["id", "x"]):
                yield batch["id"], batch["x"].flatten().to_numpy().reshape(-1, 64)


def packed(values):
    return b"".join(struct.pack("<I", len(v)) + v for v in values) if is_text else values.tobytes()


def unpacked(data):
    if not is_text:
        return pa.FixedSizeListArray.from_arrays(pa.array(numpy.frombuffer(data, "<f4")), 10)
    found, at = [], 0
    while at < len(data):
        size, = struct.unpack_from("<I", data, at)
        found.append(data[at + 4:at + 4 + size])
        at += 4 + size
    return pa.array(found, pa.binary())


async def ask(session, key, values):
    body, shape, kind = packed(values), [len(key), 1 if is_text else 64], "BYTES" if is_text else "FP32"
    head = json.dumps({"inputs": [{"name": "INPUT0", "shape": shape, "datatype": kind, "parameters": {"binary_data_size": len(body)}}],
                       "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    async with session.post(f"http://{host}/v2/models/{model}/infer", data=head + body, headers=headers) as answer:
        answer.raise_for_status()
        said = await answer.read()
        return key, unpacked(said[int(answer.headers["Inference-Header-Content-Length"]):])


async def main():
    schema = pa.schema([("id", pa.int64()), ("y", pa.binary() if is_text else pa.list_(pa.float32(), 10))])
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as session:
        with pq.ParquetWriter(out, schema, compression="none", use_dictionary=False) as writer:
            waiting, held = set(), []

            def put(least):
                nonlocal held
                if sum(len(h[0]) for h in held) >= least and held:
                    tables = [pa.table([pa.array(k, pa.int64()), v], schema=schema) for k, v in held]
                    writer.write_table(pa.concat_tables(tables).combine_chunks())
                    held = []
            for key, values in batches():
                waiting.add(asyncio.create_task(ask(session, key, values)))
                if len(waiting) == IN_FLIGHT:
                    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    held += [d.result() for d in done]
                    put(100000)
            held += await asyncio.gather(*waiting)
            put(1)


asyncio.run(main())

"""What `millrace batch run --local` is measured beside: a table through ONNX Runtime in one process, as people write it
by hand. No restart, no check of an answer.

    table_local.py script|duckdb|spark IN OUT MODEL.onnx ROWS_A_CALL
"""
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WAY, FOLDER, OUT, MODEL, ROWS = sys.argv[1], *sys.argv[2:5], int(sys.argv[5])
CPUS = 2


def session():
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the threads of the worker are enough
    return onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])


def answers(net, column):
    """Lists of 64 floats to lists of 10, both as Arrow has them."""
    import pyarrow as pa
    flat = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, 64)
    return pa.FixedSizeListArray.from_arrays(pa.array(net.run(None, {"INPUT0": flat})[0].reshape(-1)), 10)


def script():
    """pyarrow reads and writes, a thread for each CPU runs the model."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    net = session()

    def batches():
        for path in sorted(Path(FOLDER).iterdir()):
            yield from pq.ParquetFile(path).iter_batches(ROWS, columns=["id", "x"])

    def one(batch):
        return pa.record_batch({"id": batch["id"], "y": answers(net, batch["x"])})
    schema = pa.schema([("id", pa.int64()), ("y", pa.list_(pa.float32(), 10))])
    with ThreadPoolExecutor(CPUS) as pool, pq.ParquetWriter(OUT, schema, compression="none", use_dictionary=False) as writer:
        waiting, held = [], []
        for batch in batches():
            waiting.append(pool.submit(one, batch))
            if len(waiting) > 4 * CPUS:
                held.append(waiting.pop(0).result())
            if len(held) == 100:
                writer.write_table(pa.Table.from_batches(held).combine_chunks())
                held = []
        held += [w.result() for w in waiting]
        if held:
            writer.write_table(pa.Table.from_batches(held).combine_chunks())


def duckdb():
    """A vectorized function of Python in SQL."""
    import duckdb as db
    net = session()
    con = db.connect(config={"threads": CPUS, "preserve_insertion_order": False})
    con.execute("set enable_progress_bar = false")

    def function(x):
        import pyarrow as pa
        x = x.combine_chunks() if isinstance(x, pa.ChunkedArray) else x
        return answers(net, x)
    con.create_function("net", function, ["FLOAT[64]"], "FLOAT[10]", type="arrow")
    con.execute(f"copy (select id, net(cast(x as float[64])) as y from '{FOLDER}/*.parquet') to '{OUT}' "
                "(format parquet, compression uncompressed)")


def spark():
    """mapInArrow."""
    from pyspark.sql import SparkSession
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the workers
    con = (SparkSession.builder.master(f"local[{CPUS}]").config("spark.ui.enabled", False)
           .config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS).getOrCreate())

    def function(batches):
        import pyarrow as pa
        net = session()
        for batch in batches:
            y = answers(net, batch["x"]).cast(pa.list_(pa.float32()))
            yield pa.record_batch({"id": batch["id"], "y": y})
    table = con.read.parquet(FOLDER).select("id", "x")
    table.mapInArrow(function, "id long, y array<float>").write.option("compression", "none").parquet(OUT)
    con.stop()


{"script": script, "duckdb": duckdb, "spark": spark}[WAY]()

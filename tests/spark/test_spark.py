"""python/millrace.py in a real Spark: DataFrame in, DataFrame out. `make spark` runs it; without pyspark it is skipped.

The jobs run in this process's Java machine, their tasks in Python workers of it, the filters below those.
"""
import collections
import glob
import os
import sys

import numpy
import pytest

from lib.batch import WIDTH, Host, Poisoned, hosts
from lib.repo import TOP
from lib.server import BIN

pytest.importorskip("pyspark")
from pyspark import TaskContext  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

sys.path.insert(0, str(TOP / "python"))
import millrace  # noqa: E402

PARTS = 8
ROWS = 24000
X = numpy.random.default_rng(5).integers(-100, 100, (ROWS, WIDTH)).astype(numpy.float32)
SCHEMA = "id long, name string, y float, z array<long>"


@pytest.fixture(scope="module")
def spark():
    os.environ.update(PYSPARK_PYTHON=sys.executable, MILLRACE=str(BIN), SPARK_LOCAL_IP="127.0.0.1")
    session = (SparkSession.builder.master("local[2,4]")  # four failures of a task end a job
               .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
               .config("spark.sql.execution.arrow.maxRecordsPerBatch", "700").getOrCreate())
    session.sparkContext.addPyFile(str(TOP / "python/millrace.py"))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def frame(spark):
    rows = [(k, X[k].tolist(), None if k % 7 == 0 else f"row {k}") for k in range(ROWS)]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, PARTS), "id long, x array<float>, name string").cache()


def noted(run, folder):
    """The same, with a file for each attempt of each partition. The first one of partition 3 loses its filter."""
    def dying(items):  # when some of them have been taken: it has not seen all then
        for i, item in enumerate(items):
            if i == 3:
                for children in glob.glob("/proc/self/task/*/children"):
                    for child in open(children).read().split():
                        os.kill(int(child), 9)
            yield item

    def task(items):
        context = TaskContext.get()
        open(f"{folder}/{context.partitionId()}-{context.attemptNumber()}", "w").close()
        dies = context.partitionId() == 3 and context.attemptNumber() == 0
        yield from run(dying(items) if dies else items)
    return task


def check_attempts(folder):
    assert {f.name for f in folder.iterdir()} == {f"{part}-0" for part in range(PARTS)} | {"3-1"}


def check(found):
    """Each row once, with its own answer."""
    assert collections.Counter(row["id"] for row in found) == collections.Counter(range(ROWS))
    assert all(row["y"] == X[row["id"]].sum() and list(row["z"]) == [row["id"] * 10, row["id"] * 10 + 1] and
               row["name"] == (None if row["id"] % 7 == 0 else f"row {row['id']}") for row in found)


def test_map_in_arrow(spark, frame, tmp_path):
    """Eight partitions; a task whose filter was killed is run again, and nothing is lost or doubled."""
    assert frame.rdd.getNumPartitions() == PARTS
    with hosts(Host, Host) as (addresses, made):
        predict = millrace.map_arrow("m", hosts=addresses, keep=["id", "name"], batch_rows=500)
        out = frame.mapInArrow(noted(predict, str(tmp_path)), SCHEMA)
        check(out.collect())
        assert all(h.calls for h in made)
    check_attempts(tmp_path)


def test_written_by_spark(spark, frame, tmp_path):
    """What was committed by a job with a task that was run again."""
    (tmp_path / "notes").mkdir()
    with hosts(Host) as (addresses, _):
        predict = millrace.map_arrow("m", hosts=addresses, keep=["id", "name"])
        frame.mapInArrow(noted(predict, str(tmp_path / "notes")), SCHEMA).write.parquet(str(tmp_path / "out"))
    check(spark.read.parquet(str(tmp_path / "out")).collect())
    check_attempts(tmp_path / "notes")


def test_empty_partitions(spark, frame):
    with hosts(Host) as (addresses, _):
        predict = millrace.map_arrow("m", hosts=addresses, keep=["id", "name"])
        few = frame.where("id in (5, 23999)").mapInArrow(predict, SCHEMA)
        assert sorted(row["id"] for row in few.collect()) == [5, 23999]
        assert frame.where("id < 0").mapInArrow(predict, SCHEMA).collect() == []


def test_a_row_that_is_refused(spark, frame):
    """Ends the job, after four attempts, with its cause."""
    with hosts(Poisoned) as (addresses, _):
        predict = millrace.map_arrow("m", hosts=addresses, keep=["id", "name"])
        with pytest.raises(Exception, match=r"row 777 \(rejected\): .*ill will"):
            frame.mapInArrow(predict, SCHEMA).collect()


def test_rows_of_an_rdd(spark, frame, tmp_path):
    with hosts(Host) as (addresses, _):
        predict = millrace.map_rows("m", hosts=addresses, keep=["id", "name"])
        check(frame.rdd.map(lambda row: row.asDict()).mapPartitions(noted(predict, str(tmp_path))).collect())
    check_attempts(tmp_path)

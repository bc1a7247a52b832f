"""The reader in the JVM beside the one in Python: the same rows, the same errors, less read."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark import InheritableThread
from pyspark.errors import PySparkException

import rmqstore
from rmqstore import Message
from rmqstore import spark as rmq
from rmqstore.message import SysFlag
from rmqstore.spark.failures import own_error
from rmqstore.spark.jvm import jar_path
from tests.golden import NAMES, GoldenCases
from tests.spark.clocked import CLOCK_MS, write_clocked
from tests.spark.reading import read, rows_of
from tests.support.effort import rounds
from tests.support.native_store import set_clock
from tests.support.waiting import spin_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(
    jar_path() is None, reason="the jar was not built: needs a JDK and pyspark"
)

COUNT = 600
TAGS = (None, "eu", "us")
TOPICS = ("orders", "audit", "rare")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store: three topics, one of them rare, tags and keys."""

    def put(number: int) -> dict[str, Any]:
        return {
            "topic": TOPICS[2] if number % 50 == 7 else TOPICS[number % 2],
            "queue": number % 4,
            "tags": TAGS[number % 3],
            "keys": [f"k{number % 7}"],
        }

    root = tmp_path_factory.mktemp("jvm") / "broker-a"
    return write_clocked(root, put, count=COUNT, step_ms=10, file_bytes=16384)


ODD_TAGS = (None, "eu", "EU", " eu", "a || b", "it's", "é", "日本", "q?")
ODD_KEYS = ((), ("k1",), ("k1", "k6"), ("ключ",), ("k%",), ("K1",))
SYS_FLAGS = (0, 0, 0, int(SysFlag.COMPRESSED), int(SysFlag.TRANSACTION_PREPARED))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of texts of all kinds, some not UTF-8, with marks and inner batches."""
    root = tmp_path_factory.mktemp("jvm") / "odd"

    def message(number: int, topic: str) -> Message:
        return Message(
            topic,
            b"body %d" % number,
            queue=number % 4,
            tags=ODD_TAGS[number % len(ODD_TAGS)],
            keys=ODD_KEYS[number % len(ODD_KEYS)],
            sys_flag=0 if topic == "batches" else SYS_FLAGS[number % len(SYS_FLAGS)],
        )

    with rmqstore.open(root, commit_log_file_size_bytes=16384) as store:
        store.create_topic("batches", attributes={"queue.type": "BatchCQ"})
        for number in range(COUNT // 3):
            set_clock(store, CLOCK_MS + 30 * number)
            store.put(message(number, TOPICS[number % 2]))
            if number % 20 == 7:
                inner = [message(each, "batches") for each in range(number, number + 8)]
                store.put_batch([replace(each, queue=0) for each in inner])
    for file in (root / "commitlog").iterdir():
        file.write_bytes(file.read_bytes().replace(b"TAGS\1q?", b"TAGS\1q\xff"))
    return root


def load(spark: SparkSession, root: Path | list[str], **options: object) -> DataFrame:
    """Return what the reader in the JVM is asked for."""
    reader = spark.read.format("rmqstore").option("reader", "jvm")
    for name, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        reader = reader.option(name, text)
    return reader.load(root if isinstance(root, list) else str(root))


def jvm_rows(spark: SparkSession, root: Path, **options: object) -> list[dict[str, Any]]:
    """Return its rows, maps as dicts."""
    return rows_of(load(spark, root, **options).toArrow())


def plan_of(frame: DataFrame) -> str:
    """Return what explain() prints."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def held(spark: SparkSession) -> int:
    """Return how many segments and batches the reader holds outside of the heap."""
    return int(spark._jvm.org.rmqstore.spark.NativeSegment.held())  # type: ignore[union-attr]


def by_place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["path"], row["physicalOffset"], row["queueOffset"]


# ---- the same rows ----


def test_every_golden_store_has_the_same_rows(
    golden_cases: GoldenCases, spark: SparkSession, tmp_path: Path
) -> None:
    columns = (
        "topic,queueId,queueOffset,physicalOffset,size,storeTimestamp,bornTimestamp,bornHost,"
        "storeHost,tags,keys,uniqKey,properties,body,bodyCrc,bodyCrcOk,sysFlag,flag,"
        "reconsumeTimes,preparedTransactionOffset,msgId,version,path,tagsCode,record"
    )
    for release in ("5.3.3", "5.5.0"):
        roots = [str(golden_cases.copy(release, name, into=tmp_path).root) for name in NAMES]
        options = {"columns": columns, "onCorrupt": "skip", "upTo": "max"}
        expected = [row for each in roots for row in read(each, **options)]
        found = rows_of(load(spark, roots, maxPartitionBytes=300_000, **options).toArrow())
        assert len(expected) > 1000
        assert sorted(found, key=by_place) == sorted(expected, key=by_place)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"topic": "rare"}, id="by-queues"),
        pytest.param({"topic": "rare,orders", "tags": "eu"}, id="by-log"),
        pytest.param({"assign": '{"rare": [1]}'}, id="assign"),
        pytest.param({"startingOffsets": '{"orders": {"0": 7, "1": -2}}'}, id="offsets"),
        pytest.param(
            {"startingTimestamp": CLOCK_MS + 1000, "endingTimestamp": CLOCK_MS + 3000}, id="times"
        ),
        pytest.param({"columns": "path"}, id="made-here"),
        pytest.param({"batchBytes": 1, "maxPartitionBytes": 5000}, id="small"),
        pytest.param(
            {"columnNames": "kafka", "includeHeaders": True, "topic": "audit"}, id="kafka"
        ),
    ],
)
def test_options_choose_the_same_rows(
    options: dict[str, Any], root: Path, spark: SparkSession
) -> None:
    expected = read(root, **options)
    assert expected
    assert jvm_rows(spark, root, **options) == expected


def test_inner_batches_are_a_row_for_each_message(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root) as store:
        store.create_topic("orders", attributes={"queue.type": "BatchCQ"})
        for number in range(1, 10):
            store.put_batch([Message("orders", b"%d" % at, tags=f"t{at}") for at in range(number)])
    frame = load(spark, root)
    assert rows_of(frame.toArrow()) == read(root)
    rows = frame.where("tags = 't5'").select("body").collect()
    assert [row.body for row in rows] == [b"5"] * 4


def test_nothing_is_read_of_an_empty_store(spark: SparkSession, tmp_path: Path) -> None:
    rmqstore.open(tmp_path / "store").close()
    assert load(spark, tmp_path / "store").collect() == []


# ---- push-down ----


def _by_python(spark: SparkSession, root: Path) -> Iterator[DataFrame]:
    frame = spark.read.format("rmqstore").option("reader", "python").load(str(root)).cache()
    yield frame
    frame.unpersist()


@pytest.fixture(scope="module")
def everything(root: Path, spark: SparkSession) -> Iterator[DataFrame]:
    """Yield all rows by Python, kept in memory, so that Spark alone evaluates conditions."""
    yield from _by_python(spark, root)


@pytest.fixture(scope="module")
def everything_odd(odd: Path, spark: SparkSession) -> Iterator[DataFrame]:
    """Yield the same of the odd store."""
    yield from _by_python(spark, odd)


def _one_of(name: str, values: list[str]) -> st.SearchStrategy[str]:
    comparison = st.sampled_from(["=", "<>", "<=>"])
    equal = st.builds(lambda op, value: f"{name} {op} {value}", comparison, st.sampled_from(values))
    chosen = st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
    return equal | chosen.map(lambda some: f"{name} IN ({', '.join(some)})")


def _texts(*values: str) -> list[str]:
    """Return literals of SQL, and NULL."""
    return [*("'" + value.replace("'", "\\'") + "'" for value in values), "NULL"]


def _bounded(name: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    comparison = st.sampled_from(["<", "<=", "=", ">", ">="])
    return st.builds(lambda op, value: f"{name} {op} {value}", comparison, values)


ATOMS = st.one_of(
    _one_of("topic", _texts("orders", "audit", "rare", "batches", "none")),
    _one_of("queueId", ["0", "1", "3", "-1", "9"]),
    _one_of("tags", _texts("us", "xx", "", "q", "q\ufffd", *filter(None, ODD_TAGS))),
    _one_of("keys", _texts("", "k6", *(" ".join(each) for each in ODD_KEYS if each))),
    _one_of("sysFlag", ["0", "1", "4", "8", "128", "NULL"]),
    _bounded("queueOffset", st.integers(-1, 160).map(str)),
    _bounded("physicalOffset", st.integers(-1, 120_000).map(str)),
    *(
        _bounded(
            name,
            st.integers(CLOCK_MS * 1000 - 500, CLOCK_MS * 1000 + 10_500 * COUNT).map(
                lambda micros: f"timestamp_micros({micros})"
            ),
        )
        for name in ("storeTimestamp", "bornTimestamp")
    ),
    st.sampled_from(["tags IS NULL", "tags IS NOT NULL", "keys IS NULL", "keys IS NOT NULL"]),
    st.sampled_from(["topic LIKE 'or%'", "tags LIKE 'q_'", "sysFlag & 4 = 4", "keys > 'k1'"]),
)
CONDITIONS = st.lists(st.lists(ATOMS, min_size=1, max_size=2), min_size=1, max_size=3)


@pytest.mark.parametrize("kind", ["usual", "odd"])
@settings(
    max_examples=rounds(3, 40),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(many=st.lists(CONDITIONS, min_size=8, max_size=8))
def test_pushed_conditions_leave_the_rows_that_spark_would(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession, many: list[list[list[str]]]
) -> None:
    root = request.getfixturevalue("root" if kind == "usual" else "odd")
    everything = request.getfixturevalue("everything" if kind == "usual" else "everything_odd")
    texts = [" AND ".join(f"({' OR '.join(any_)})" for any_ in each) for each in many]
    frame = load(spark, root, maxPartitionBytes=60_000)
    places = []
    for source in (frame, everything):
        parts = [
            source.where(text).selectExpr(f"{number} AS query", "physicalOffset", "queueOffset")
            for number, text in enumerate(texts)
        ]
        union = parts[0]
        for each in parts[1:]:
            union = union.union(each)
        places.append(sorted(tuple(row) for row in union.collect()))
    assert places[0] == places[1], texts


def test_explain_shows_what_is_pushed_and_which_columns_are_read(
    root: Path, spark: SparkSession
) -> None:
    frame = load(spark, root).where("topic = 'orders' AND uniqKey = 'u1'").select("body")
    plan = plan_of(frame)
    assert "rmqstore (JVM)" in plan
    assert "topic = 'orders'" in plan.split("PushedFilters")[1]
    assert "uniqKey =" not in plan.split("PushedFilters")[1]
    read_columns = plan.split("BatchScan rmqstore[")[1].split("]")[0]
    assert {name.split("#")[0] for name in read_columns.split(", ")} == {"body", "uniqKey"}


def test_one_frame_has_a_scan_of_its_own_for_each_use(root: Path, spark: SparkSession) -> None:
    frame = load(spark, root)
    rare, rest = frame.where("topic = 'rare'"), frame.where("topic <> 'rare'")
    assert (rare.count(), rest.count(), frame.count()) == (12, COUNT - 12, COUNT)
    assert rare.union(rest).count() == COUNT


def test_a_limit_ends_each_task_early(root: Path, spark: SparkSession) -> None:
    frame = load(spark, root).where("topic = 'orders'").limit(3)
    assert "PushedLimit: 3" in plan_of(frame)
    assert len(frame.collect()) == 3


# ---- errors ----


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, int]:
    """Return a store and where the magic of one of its records was overwritten."""
    root = tmp_path / "damaged"
    with rmqstore.open(root, commit_log_file_size_bytes=4096) as store:
        places = [store.put("orders", bytes(100)).physical_offset for _ in range(50)]
    bad = places[30]
    file = root / "commitlog" / f"{bad // 4096 * 4096:020d}"
    with file.open("r+b") as opened:
        opened.seek(bad % 4096 + 4)
        opened.write(b"\xff")
    return root, bad


def test_damage_is_told_in_the_same_words(
    damaged: tuple[Path, int], spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    root, bad = damaged
    with pytest.raises(rmqstore.CorruptionError) as told:
        read(root)
    with pytest.raises(Exception, match="CorruptionError") as found:
        load(spark, root).collect()
    assert str(told.value) in str(found.value)
    assert str(bad) in str(told.value)
    assert held(spark) == 0


@pytest.mark.parametrize("options", [{"onCorrupt": "skip"}, {"onCorrupt": "row"}], ids=str)
def test_damage_is_passed_over_or_a_row(
    options: dict[str, str], damaged: tuple[Path, int], spark: SparkSession
) -> None:
    root, _ = damaged
    rows = jvm_rows(spark, root, maxPartitionBytes=8192, **options)
    assert rows == read(root, maxPartitionBytes=8192, **options)
    assert len(rows) == (49 if options["onCorrupt"] == "skip" else 50)


def test_a_row_for_damage_fits_no_condition(damaged: tuple[Path, int], spark: SparkSession) -> None:
    frame = load(spark, damaged[0], onCorrupt="row")
    assert frame.where("topic = 'orders'").count() == 49
    assert frame.where("error IS NOT NULL").count() == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_file_that_goes_after_planning_is_data_loss(
    fails: bool, spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=4096) as store:
        for _ in range(60):
            store.put("orders", bytes(100))
    frame = load(spark, root, failOnDataLoss=fails, columns="path")
    planned = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert planned > 60 * 100
    first = min((root / "commitlog").iterdir())
    count = sum(row["path"] != str(first) for row in read(root, columns="path"))
    first.unlink()
    if fails:
        with pytest.raises(Exception, match="failOnDataLoss false") as found:
            frame.collect()
        assert f"{first} does not exist" in str(found.value)
    else:
        assert len(frame.collect()) == count


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"topik": "x"}, "did you mean topic"),
        ({"topic": "none"}, "there is no topic none"),
        ({"decompress": "true"}, "cannot read with decompress"),
        ({"path": "/nowhere/at/all"}, "/nowhere/at/all"),
    ],
    ids=str,
)
def test_mistakes_are_named_as_by_the_reader_in_python(
    options: dict[str, str], named: str, root: Path, spark: SparkSession
) -> None:
    reader = spark.read.format("rmqstore").option("reader", "jvm").options(**options)
    with pytest.raises(Exception, match=named):
        (reader.load() if "path" in options else reader.load(str(root))).collect()


# ---- choice and memory ----


def test_python_reads_where_the_option_or_the_session_says_so(
    root: Path, spark: SparkSession
) -> None:
    by_option = spark.read.format("rmqstore").option("reader", "python").load(str(root))
    assert "(Python)" in plan_of(by_option)
    spark.conf.set("spark.datasource.rmqstore.reader", "python")
    try:
        by_session = spark.read.format("rmqstore").load(str(root))
        assert "(Python)" in plan_of(by_session)
    finally:
        spark.conf.unset("spark.datasource.rmqstore.reader")
    by_default = spark.read.format("rmqstore").load(str(root))
    assert "(JVM)" in plan_of(by_default)
    pattern = spark.read.format("rmqstore").option("subscribePattern", "or.*").load(str(root))
    assert "(Python)" in plan_of(pattern)
    assert pattern.count() == by_default.where("topic = 'orders'").count()


def test_scan_is_read_in_the_jvm(root: Path, spark: SparkSession) -> None:
    frame = rmq.scan(spark, str(root), topic="rare", columns=["body"])
    assert "(JVM)" in plan_of(frame)


def test_a_table_keeps_its_options_and_a_statement_goes_over_them(
    root: Path, spark: SparkSession
) -> None:
    spark.sql(
        "CREATE TABLE kept USING rmqstore "
        f"OPTIONS (path '{root}', topic 'rare', columns 'queueId,physicalOffset')"
    )
    spark.sql(f"CREATE TABLE placed USING rmqstore LOCATION '{root}'")
    try:
        assert spark.table("kept").columns == ["queueId", "physicalOffset"]
        assert "(JVM)" in plan_of(spark.table("kept"))
        both = "SELECT count(*) FROM kept JOIN placed USING (physicalOffset) WHERE topic = 'rare'"
        (row,) = spark.sql(
            f"SELECT count(*), ({both}), (SELECT count(*) FROM placed), "
            "(SELECT count(*) FROM kept WITH ('Topic' = 'orders')) FROM kept"
        ).collect()
        assert tuple(row) == (12, 12, COUNT, COUNT // 2)
        assert "(Python)" in plan_of(spark.sql("SELECT * FROM kept WITH ('reader' = 'python')"))
    finally:
        spark.sql("DROP TABLE kept")
        spark.sql("DROP TABLE placed")


def test_rows_are_inserted_with_the_columns_that_a_statement_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with rmqstore.open(path) as store:
        last = store.put("orders", b"old").store_timestamp
    spark.sql(f"CREATE TABLE filled USING rmqstore OPTIONS (path '{path}')")
    try:
        spark.sql("INSERT INTO filled (topic, body) VALUES ('orders', X'01'), ('orders', X'02')")
        spark.sql("INSERT INTO filled (body, topic, tags, queueId) SELECT X'03', 'audit', 'eu', 2")
    finally:
        spark.sql("DROP TABLE filled")
    rows = read(path)
    assert [row["body"] for row in rows] == [b"old", b"\x01", b"\x02", b"\x03"]
    assert (rows[3]["topic"], rows[3]["queueId"], rows[3]["tags"]) == ("audit", 2, "eu")
    assert all(row["storeTimestamp"].timestamp() * 1000 >= last for row in rows[1:])


def test_memory_is_given_back_when_a_limit_or_an_error_ends_a_task(
    root: Path, spark: SparkSession
) -> None:
    frame = load(spark, root, batchBytes=1000)
    assert len(frame.select("body").take(random.Random(1).randint(2, 9))) > 1
    assert held(spark) == 0
    with pytest.raises(Exception, match="stop here"):
        frame.selectExpr(
            "CASE WHEN queueOffset > 40 THEN raise_error('stop here') ELSE body END"
        ).collect()
    assert held(spark) == 0


def test_memory_is_given_back_when_a_task_is_killed(root: Path, spark: SparkSession) -> None:
    slow = load(spark, root, batchBytes=1000).selectExpr(
        "java_method('java.lang.Thread', 'sleep', 50L)", "body"
    )
    context = spark.sparkContext
    ended = threading.Event()

    def run() -> None:
        context.setJobGroup("killed", "is cancelled", interruptOnCancel=True)
        with suppress(Exception):
            slow.write.format("noop").mode("overwrite").save()
        ended.set()

    thread = InheritableThread(run)
    thread.start()
    spin_until(lambda: held(spark) > 0, "a task reads")
    context.cancelJobGroup("killed")
    spin_until(lambda: ended.is_set() and held(spark) == 0, "the task lets go")
    thread.join()


def test_a_library_of_another_release_is_refused_where_it_is_loaded(
    spark: SparkSession, tmp_path: Path
) -> None:
    named = tmp_path / "org" / "rmqstore" / "spark" / "release.txt"
    named.parent.mkdir(parents=True)
    named.write_text("0.0.1")
    jar = jar_path()
    assert jar is not None
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.jvm.java
    path = gateway.new_array(java.net.URL, 2)
    path[0], path[1] = java.net.URL(f"{tmp_path.as_uri()}/"), java.net.URL(jar.as_uri())
    # It finds nothing of the session's, and needs nothing of Spark.
    loader = java.net.URLClassLoader(path, None)
    release = metadata.version("rmqstore")
    reason = f"the jar of rmqstore is of release 0.0.1, its library of {release}; install"
    with pytest.raises(
        Exception, match=f"UnsatisfiedLinkError: {re.escape(reason)} rmqstore again"
    ):
        java.lang.Class.forName("org.rmqstore.spark.NativeSegment", True, loader)


# ---- sums ----


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM log",
        "SELECT topic, queueId, count(*), min(queueOffset), max(queueOffset) FROM log GROUP BY ALL",
        "SELECT queueId, min(storeTimestamp), max(physicalOffset), count(body) FROM log"
        " WHERE topic = 'orders' AND tags IN ('eu', 'us') GROUP BY queueId",
        "SELECT count(*), max(storeTimestamp) FROM log WHERE topic = 'none'",
        "SELECT topic, count(*) FROM log WHERE queueOffset < 20 GROUP BY topic HAVING count(*) > 9",
        "SELECT tags, topic, count(*), max(queueOffset) FROM log WHERE keys = 'k1' GROUP BY ALL",
    ],
)
def test_sums_are_made_where_the_rows_are(
    query: str, root: Path, everything: DataFrame, spark: SparkSession
) -> None:
    load(spark, root, maxPartitionBytes=20_000).createOrReplaceTempView("log")
    pushed = spark.sql(query)
    assert "PushedAggregates" in plan_of(pushed)
    everything.createOrReplaceTempView("log")
    expected = spark.sql(query)
    assert sorted(map(repr, pushed.collect())) == sorted(map(repr, expected.collect()))
    assert held(spark) == 0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT keys, count(*) FROM log GROUP BY keys",
        "SELECT count(tags) FROM log",
        "SELECT count(DISTINCT topic) FROM log",
        "SELECT count(*) FROM log WHERE uniqKey = 'k1'",
        "SELECT sum(size) FROM log",
    ],
)
def test_other_sums_are_left_to_spark(
    query: str, root: Path, everything: DataFrame, spark: SparkSession
) -> None:
    load(spark, root).createOrReplaceTempView("log")
    found = spark.sql(query)
    assert "PushedAggregates" not in plan_of(found)
    everything.createOrReplaceTempView("log")
    assert sorted(map(repr, found.collect())) == sorted(map(repr, spark.sql(query).collect()))


def test_an_empty_store_has_a_count(spark: SparkSession, tmp_path: Path) -> None:
    rmqstore.open(tmp_path / "store").close()
    assert load(spark, tmp_path / "store").count() == 0


def test_damage_is_no_part_of_a_sum(damaged: tuple[Path, int], spark: SparkSession) -> None:
    root, _ = damaged
    assert load(spark, root, onCorrupt="skip").count() == 49
    assert load(spark, root, onCorrupt="row").count() == 50
    with pytest.raises(Exception, match="CorruptionError"):
        load(spark, root).count()


def test_an_error_of_planning_is_one_of_pyspark_and_of_this_package(
    root: Path, spark: SparkSession
) -> None:
    with pytest.raises(PySparkException) as found:
        load(spark, root, topic="none").collect()
    told = own_error(found.value)
    assert isinstance(told, rmqstore.NotFoundError)
    assert str(told).endswith("there is no topic none; there are audit, orders, rare")

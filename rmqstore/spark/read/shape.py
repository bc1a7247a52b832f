"""The core's columns turned into batches of exactly the schema that Spark requested.

Most columns pass through as they are. Made here are the path, the Kafka source's names where they
need another type, plain bodies of compressed ones, and the rows for damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore._native import core
from rmqstore.compression import decompress
from rmqstore.errors import ArgumentError, CorruptionError
from rmqstore.message import SysFlag
from rmqstore.spark import texts
from rmqstore.spark.options import Options
from rmqstore.spark.read.sizes import BATCH_ROWS

__all__ = ["Damage", "Shape"]

_FOR_DECOMPRESSION = ("body", "sys_flag", "physical_offset", "size")

_Maker = Callable[[pa.RecordBatch, str], Any]
"""Makes one column from a native batch and the path of its file."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A place whose bytes are not a readable message."""

    path: str
    physical_offset: int
    size: int
    error: CorruptionError


class Shape:
    """Knows which native columns the columns of a schema need, and how to make these of those."""

    def __init__(self, natives: dict[str, str | None], schema: pa.Schema, options: Options) -> None:
        """*natives* names the core's column for each of Spark's, None for one made here."""
        self._schema = schema
        self._makers = [_maker(name, native, schema) for name, native in natives.items()]
        self._decompresses = options.decompress and "body" in natives.values()
        self._plain_bytes_max = options.batch_bytes
        needed = [native for native in natives.values() if native is not None]
        if self._decompresses:
            needed += _FOR_DECOMPRESSION
        # A batch without columns would have no number of rows.
        self._selected = tuple(dict.fromkeys(needed)) or ("physical_offset",)
        self._batch_bytes = options.batch_bytes

    def selection(self) -> core.ArrowSelection:
        """Return what the core is to fill."""
        return core.ArrowSelection(
            self._selected,
            batch_rows=BATCH_ROWS,
            batch_bytes=self._batch_bytes,
            large_binary=False,
            microseconds=True,
            all_nullable=True,
        )

    def rows(
        self, filled: object, path: str, broken: Callable[[Damage], None]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches for what a scan of the file *path* filled.

        *broken* is called for each body that cannot be decompressed; its row is left out. A message
        may grow a thousand times, so one native batch can become several.
        """
        native = pa.record_batch(filled)
        parts = self._plain(native, path, broken) if self._decompresses else (native,)
        for part in parts:
            if part.num_rows:
                columns = [make(part, path) for make in self._makers]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def error_rows(self, damages: Sequence[Damage]) -> pa.RecordBatch:
        """Return a row for each damage: path, physicalOffset, size and error, all else null.

        Raises ArgumentError when another column of the schema may not be null.
        """
        answer = {
            "path": [damage.path for damage in damages],
            "physicalOffset": [damage.physical_offset for damage in damages],
            "size": [damage.size for damage in damages],
            "error": [str(damage.error) for damage in damages],
        }

        columns = []
        for field in self._schema:
            if field.name in answer:
                columns.append(pa.array(answer[field.name], field.type))
            elif field.nullable:
                columns.append(pa.nulls(len(damages), field.type))
            else:
                raise ArgumentError(texts.NOT_NULL.format(column=field.name))

        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _plain(
        self, native: pa.RecordBatch, path: str, broken: Callable[[Damage], None]
    ) -> Iterator[pa.RecordBatch]:
        flags = native.column("sys_flag")
        is_compressed = pc.not_equal(pc.bit_wise_and(flags, int(SysFlag.COMPRESSED)), 0)
        if not pc.any(is_compressed).as_py():
            yield native
            return

        bodies = native.column("body")
        kept: list[int] = []
        plain: list[bytes] = []
        size = 0

        for row, flag in enumerate(flags.to_pylist()):
            stored: bytes = bodies[row].as_py()
            try:
                body = decompress(stored, flag) if flag & SysFlag.COMPRESSED else stored
            except (CorruptionError, ArgumentError) as error:
                broken(_broken_body(native, row, path, error))
                continue

            if kept and size + len(body) > self._plain_bytes_max:
                yield _with_bodies(native, kept, plain)
                kept, plain, size = [], [], 0
            kept.append(row)
            plain.append(body)
            size += len(body)

        yield _with_bodies(native, kept, plain)


def _with_bodies(native: pa.RecordBatch, kept: list[int], plain: list[bytes]) -> pa.RecordBatch:
    taken = native.take(pa.array(kept, pa.int32()))
    bodies = pa.array(plain, pa.binary())
    return taken.set_column(taken.schema.get_field_index("body"), "body", bodies)


def _broken_body(native: pa.RecordBatch, row: int, path: str, error: Exception) -> Damage:
    place = native.column("physical_offset")[row].as_py()
    answer = CorruptionError(
        f"{path}: {error} (record at physical offset {place})",
        path=path,
        physical_offset=place,
        kind="compressed body",
    )
    return Damage(path, place, native.column("size")[row].as_py(), answer)


def _maker(name: str, native: str | None, schema: pa.Schema) -> _Maker:
    wanted = schema.field(name).type
    if name == "path":
        return _paths
    if name == "timestampType":
        return lambda batch, path: pa.repeat(pa.scalar(0, wanted), batch.num_rows)
    if native is None:
        return lambda batch, path: pa.nulls(batch.num_rows, wanted)
    if name == "headers":
        return lambda batch, path: _headers(batch.column(native), wanted)
    if name == "key":
        return lambda batch, path: batch.column(native).cast(wanted)
    return lambda batch, path: batch.column(native)


def _paths(batch: pa.RecordBatch, path: str) -> Any:
    return pa.repeat(pa.scalar(path, pa.string()), batch.num_rows)


def _headers(properties: Any, wanted: pa.DataType) -> Any:
    """Return a map of text to text as a list of (key, value) with binary values, without a copy."""
    values = properties.items.cast(pa.binary())
    pairs = pa.StructArray.from_arrays([properties.keys, values], fields=list(wanted.value_type))
    return pa.Array.from_buffers(
        wanted,
        len(properties),
        properties.buffers()[:2],
        offset=properties.offset,
        children=[pairs],
    )

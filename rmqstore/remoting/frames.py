"""Frames of the remoting protocol: one request or one response.

    at  size  field                    (integers are big-endian)
    0   4     bytes that follow this field
    4   1     type of the header: 0 JSON, 1 ROCKETMQ (binary)
    5   3     size of the header
    8   n     header
    8+n rest  body

Binary header: code (2), language (1), version (2), opaque (4), flag (4), size (4) and text of the
remark, size (4) and entries of the extFields. An entry is size (2) and text of a key, size (4) and
text of its value. Integers are signed, texts are UTF-8, and an empty text means a missing one.

Layout and leniency are those of RocketMQ 5.3.3 (`RemotingCommand`, `RocketMQSerializable`). A
decoder holds at most one incomplete frame, so the memory of a connection is bounded by its limit.

Plain headers are read in C (`csrc/format/remoting_header.h`). `read_json_header` and
`read_binary_header` read every header, and raise the errors that describe a fault.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from json.encoder import encode_basestring

from rmqstore import arguments
from rmqstore._native.core import read_remoting_header
from rmqstore.errors import RemotingError, RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.codes import VERSION, LanguageCode, RequestCode, ResponseCode

__all__ = [
    "FLAG_ONE_WAY",
    "FLAG_RESPONSE",
    "FRAME_SIZE_MAX",
    "HEADER_SIZE_MAX",
    "Frame",
    "FrameDecoder",
    "SerializeType",
    "encode",
    "name_of_request",
    "name_of_response",
    "read_binary_header",
    "read_json_header",
]

FRAME_SIZE_MAX = 16 * 1024 * 1024
"""Bytes of the largest frame that RocketMQ reads, its length field included."""
HEADER_SIZE_MAX = 1024 * 1024
"""Bytes of the largest header that is parsed. RocketMQ itself sets no limit below the frame's."""

FLAG_RESPONSE = 1
FLAG_ONE_WAY = 2

_WORDS = struct.Struct(">II")
_FIXED = struct.Struct(">hbhiii")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_DEPTH_MAX = 16
_DIALECT_SIZE_MAX = 64 * 1024

_JSON = (
    '{"code":%d%s,"flag":%d,"language":"%s","opaque":%d%s,'
    '"serializeTypeCurrentRPC":"JSON","version":%d}'
)
"""A JSON header with the keys in alphabetical order, as Java writes them; extFields and remark may
be missing. Filling it in takes half as long as an encoder of JSON."""
_LANGUAGES: Mapping[object, LanguageCode] = {
    **{code.name: code for code in LanguageCode},
    **{code.value: code for code in LanguageCode},
}


class SerializeType(IntEnum):
    """How the header of a frame is written."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class Frame:
    """A request or a response."""

    code: int
    """A `RequestCode` or a `ResponseCode`, or a number that neither lists."""
    flag: int = 0
    opaque: int = 0
    """Number of the request on its connection; the response repeats it."""
    language: LanguageCode = LanguageCode.PYTHON
    version: int = VERSION
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON
    has_ext_fields: bool = False
    """Whether a JSON header shows the extFields even when they are empty. Java clients read the
    extFields of some responses unconditionally, so a response with a header class shows them."""

    @classmethod
    def request(
        cls, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        """Return a request; the connection that sends it chooses the opaque."""
        arguments.integer("code", code, low=0, high=arguments.INT32_MAX)
        arguments.buffer("body", body)
        if fields is not None:
            for name, value in arguments.mapping("fields", fields, "a dict of texts").items():
                arguments.utf8("a name of fields", name)
                arguments.utf8(f"fields[{name!r}]", value)
        return cls(
            code, ext_fields=dict(fields or ()), body=body, has_ext_fields=fields is not None
        )

    def respond(
        self,
        code: int,
        remark: str | None = None,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Frame:
        """Return a response to this request, with its opaque and its type of header."""
        return Frame(
            code,
            flag=FLAG_RESPONSE,
            opaque=self.opaque,
            remark=remark,
            ext_fields=dict(fields or ()),
            body=body,
            serialize_type=self.serialize_type,
            has_ext_fields=fields is not None,
        )

    @property
    def is_response(self) -> bool:
        """Whether this frame answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether this is a request that is never answered."""
        return bool(self.flag & FLAG_ONE_WAY)

    def with_opaque(self, opaque: int, *, is_one_way: bool = False) -> Frame:
        """Return a copy to be sent as request number *opaque* of a connection."""
        flag = self.flag | FLAG_ONE_WAY if is_one_way else self.flag & ~FLAG_ONE_WAY
        return replace(self, opaque=opaque, flag=flag)

    def raise_for_code(self, *accepted: int) -> Frame:
        """Return this response. Raises RemotingError with its code and remark unless the code is
        one of *accepted*, by default SUCCESS alone."""
        if self.code in (accepted or (ResponseCode.SUCCESS,)):
            return self
        remark = self.remark or ""
        raise RemotingError(
            f"the peer answered {name_of_response(self.code)}: {remark or 'no remark'}",
            code=self.code,
            remark=remark,
        )


def name_of_request(code: int) -> str:
    """Return *code* with its name, for messages."""
    return _name_of(RequestCode, code)


def name_of_response(code: int) -> str:
    """Return *code* with its name, for messages."""
    return _name_of(ResponseCode, code)


def _name_of(codes: type[IntEnum], code: int) -> str:
    try:
        return f"{codes(code).name} ({code})"
    except ValueError:
        return str(code)


def encode(frame: Frame) -> bytes:
    """Return the bytes of *frame*, its length field included.

    Raises RemotingFrameError where a value does not fit; the message names the value.
    """
    kind = frame.serialize_type
    try:
        header = _binary_header(frame) if kind == SerializeType.ROCKETMQ else _json_header(frame)
    except UnicodeEncodeError as error:
        raise RemotingFrameError(
            f"the header of {_named(frame)} has text that is not valid Unicode: {error}"
        ) from error

    length = 4 + len(header) + len(frame.body)
    if len(header) > HEADER_SIZE_MAX or length + 4 > FRAME_SIZE_MAX:
        raise RemotingFrameError(
            f"the frame of {_named(frame)} has {length + 4} bytes, {len(header)} of them header; "
            f"the limits are {FRAME_SIZE_MAX} and {HEADER_SIZE_MAX}; send less at once"
        )
    return b"".join((_WORDS.pack(length, kind << 24 | len(header)), header, frame.body))


def _named(frame: Frame) -> str:
    return (
        f"a response {name_of_response(frame.code)}"
        if frame.is_response
        else f"a request {name_of_request(frame.code)}"
    )


def _json_header(frame: Frame) -> bytes:
    fields = remark = ""
    if frame.ext_fields or frame.has_ext_fields:
        quoted = encode_basestring
        entries = [f"{quoted(name)}:{quoted(value)}" for name, value in frame.ext_fields.items()]
        fields = f',"extFields":{{{",".join(entries)}}}'
    if frame.remark is not None:
        remark = f',"remark":{encode_basestring(frame.remark)}'

    language = frame.language.name
    values = (frame.code, fields, frame.flag, language, frame.opaque, remark, frame.version)
    return (_JSON % values).encode()


def _binary_header(frame: Frame) -> bytes:
    remark = (frame.remark or "").encode()
    try:
        entries = b"".join(_entries(frame.ext_fields))
        fixed = _FIXED.pack(
            frame.code, frame.language, frame.version, frame.opaque, frame.flag, len(remark)
        )
    except struct.error as error:
        raise RemotingFrameError(
            f"{_named(frame)} does not fit in a binary header ({error}): codes and sizes of keys "
            "are at most 32767; use the JSON header"
        ) from error
    return b"".join((fixed, remark, _INT.pack(len(entries)), entries))


def _entries(fields: Mapping[str, str]) -> Iterator[bytes]:
    for key, value in fields.items():
        name = key.encode()
        text = value.encode()
        yield _SHORT.pack(len(name))
        yield name
        yield _INT.pack(len(text))
        yield text


class FrameDecoder:
    """Cuts the bytes of one direction of a connection into frames."""

    def __init__(self, limit: int = FRAME_SIZE_MAX) -> None:
        """*limit* is the size in bytes of the largest frame, its length field included."""
        self._limit = limit
        self._held = bytearray()
        """The beginning of a frame; and all bytes that came since, where frames wait."""
        self._rest: bytes | None = None
        """The bytes of the last call, where they have frames that wait, from *_at* on."""
        self._at = 0
        self.failure: RemotingFrameError | None = None
        """The error that ended the stream, None while it can be read."""
        self.has_more = False
        """Whether `feed` without further bytes may return frames."""

    @property
    def held_bytes(self) -> int:
        """Bytes that are held, of frames that were not returned yet."""
        return len(self._held) + (0 if self._rest is None else len(self._rest) - self._at)

    def feed(self, data: bytes, *, frames_max: int | None = None) -> list[Frame]:
        """Return the frames that *data* completes, at most *frames_max* of them: the rest stays for
        later calls.

        Bytes that are not a frame end the stream. When frames before them are returned, only
        `failure` shows the end; otherwise this call, and each later one, raises RemotingFrameError.
        """
        if self.failure is not None:
            raise self.failure
        held = self._held
        source: bytes | bytearray = data
        at = 0
        if self._rest is not None:
            source, at, self._rest = self._rest, self._at, None
            if data:
                held += memoryview(source)[at:]
                at = 0
        if held:
            held += data
            source = held

        frames: list[Frame] = []
        try:
            while len(source) - at >= 4 and len(frames) != frames_max:
                end = at + self._frame_size(source, at)
                if end > len(source):
                    break
                frames.append(_decode(source, at, end))
                at = end
        except RemotingFrameError as error:
            self.failure, self.has_more = error, False
            held.clear()
            if not frames:
                raise
            return frames

        self.has_more = len(frames) == frames_max and len(source) - at >= 4
        if isinstance(source, bytearray):
            del held[:at]
        elif self.has_more:
            self._rest, self._at = source, at
        elif at < len(source):
            held += memoryview(source)[at:]
        return frames

    def _frame_size(self, source: bytes | bytearray, at: int) -> int:
        size = int.from_bytes(source[at : at + 4], "big") + 4
        if size > self._limit:
            raise RemotingFrameError(
                f"a frame announces {size} bytes, the limit is {self._limit}; "
                "the peer uses another protocol, or its frameMaxLength is larger"
            )
        if size < 8:
            raise RemotingFrameError(f"a frame announces {size} bytes, it has at least 8")
        if len(source) - at < 8:
            return size

        # Refused before the whole frame is in memory.
        _check_word(int.from_bytes(source[at + 4 : at + 8], "big"), size)
        return size


def _check_word(word: int, frame_size: int) -> None:
    kind, header_size = word >> 24, word & 0xFFFFFF
    if kind > SerializeType.ROCKETMQ:
        raise RemotingFrameError(
            f"a frame has a header of type {kind}, known are 0 (JSON), 1 (ROCKETMQ)"
        )
    if header_size > frame_size - 8:
        raise RemotingFrameError(
            f"a frame of {frame_size} bytes announces a header of {header_size}, "
            f"{frame_size - 8} are left for it"
        )
    if header_size > HEADER_SIZE_MAX:
        raise RemotingFrameError(
            f"a frame announces a header of {header_size} bytes, the limit is {HEADER_SIZE_MAX}"
        )


def _decode(source: bytes | bytearray, at: int, end: int) -> Frame:
    word = int.from_bytes(source[at + 4 : at + 8], "big")
    body_at = at + 8 + (word & 0xFFFFFF)
    is_binary = word > 0xFFFFFF
    header = bytes(source[at + 8 : body_at])
    body = bytes(source[body_at:end])
    plain = read_remoting_header(header, is_binary)
    if plain is None:
        frame = read_binary_header(header) if is_binary else read_json_header(header)
        frame.body = body
        return frame

    code, flag, opaque, language, version, remark, fields, has_fields = plain
    return Frame(
        code,
        flag,
        opaque,
        _LANGUAGES.get(language, LanguageCode.OTHER),
        version,
        remark,
        fields,
        body,
        SerializeType.ROCKETMQ if is_binary else SerializeType.JSON,
        has_fields,
    )


def read_json_header(header: bytes) -> Frame:
    """Return the frame, without its body, that a JSON *header* begins, in every form that Java
    reads. Raises RemotingFrameError."""
    found = fastjson.loads(header, dialect_size_max=_DIALECT_SIZE_MAX, depth_max=_DEPTH_MAX)
    if not isinstance(found, dict):
        raise RemotingFrameError(f"the JSON header of a frame is not an object: {header[:80]!r}")
    fields = found.get("extFields")
    remark = found.get("remark")
    return Frame(
        _integer(found, "code"),
        _integer(found, "flag"),
        _integer(found, "opaque"),
        _language(found.get("language", "JAVA")),
        _integer(found, "version"),
        remark if remark is None or type(remark) is str else _text(remark),
        _texts(fields),
        has_ext_fields=fields is not None,
    )


def _language(value: object) -> LanguageCode:
    # A name or a number; Java reads an unknown name as null.
    return _LANGUAGES.get(value if isinstance(value, str | int) else "", LanguageCode.OTHER)


def _integer(header: Mapping[str, object], key: str) -> int:
    value = header.get(key, 0)
    if type(value) is not int:
        value = _integer_of(value, key)
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise RemotingFrameError(
            f"field {key} of a frame's header is not a 32-bit integer: {value}"
        )
    return value


def _integer_of(value: object, key: str) -> int:
    if value is None:
        return 0
    # Java takes numbers in quotes too.
    if isinstance(value, str) and len(value) <= 11:
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdecimal():
            return int(value)
    raise RemotingFrameError(
        f"field {key} of a frame's header is not an integer: {str(value)[:40]!r}"
    )


def _texts(fields: object) -> dict[str, str]:
    if fields is None:
        return {}
    if type(fields) is not dict:
        raise RemotingFrameError(
            f"extFields of a frame's header is not an object: {str(fields)[:40]!r}"
        )
    for value in fields.values():
        if type(value) is not str:
            return {key: _text(each) for key, each in fields.items() if each is not None}
    return fields


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else fastjson.dumps(value).decode()


def read_binary_header(header: bytes) -> Frame:
    """Return the frame, without its body, that a binary *header* begins. Raises
    RemotingFrameError."""
    try:
        code, language, version, opaque, flag, size = _FIXED.unpack_from(header)
        at = _FIXED.size
        remark, at = _piece(header, at, size)
        (size,) = _INT.unpack_from(header, at)
        at += 4
        if size < 0 or size != len(header) - at:
            raise RemotingFrameError(
                f"a binary header announces {size} bytes of extFields, {len(header) - at} follow"
            )
        fields = _fields(header, at)
    except struct.error as error:
        raise RemotingFrameError(
            f"a binary header of {len(header)} bytes ends inside a field: {error}"
        ) from error
    except UnicodeDecodeError as error:
        raise RemotingFrameError(f"a binary header has text that is not UTF-8: {error}") from error

    return Frame(
        code,
        flag,
        opaque,
        _LANGUAGES.get(language, LanguageCode.OTHER),
        version,
        remark or None,
        fields,
        serialize_type=SerializeType.ROCKETMQ,
        has_ext_fields=bool(fields),
    )


def _piece(header: bytes, at: int, size: int) -> tuple[str, int]:
    if not 0 <= size <= len(header) - at:
        raise RemotingFrameError(
            f"a binary header announces a text of {size} bytes, {len(header) - at} left"
        )
    return header[at : at + size].decode(), at + size


def _fields(header: bytes, at: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    end = len(header)
    while at < end:
        key_end = at + 2 + _SHORT.unpack_from(header, at)[0]
        value_at = key_end + 4
        value_end = value_at + _INT.unpack_from(header, key_end)[0]
        if not at + 2 <= key_end < value_at <= value_end <= end:
            raise RemotingFrameError(f"an entry of a binary header ends outside it, at byte {at}")
        # Of a key that occurs twice, Java keeps the last value.
        fields[header[at + 2 : key_end].decode()] = header[value_at:value_end].decode()
        at = value_end
    return fields

"""JSON as fastjson writes it is read, hostile text is refused, and strict JSON is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{0:"a",-1:"b",1.5:2}', {"0": "a", "-1": "b", "1.5": 2}),
        ("{true:1,null:2,name:3,$x:4}", {"true": 1, "null": 2, "name": 3, "$x": 4}),
        ("{ 'a' : 'it\\'s' }", {"a": "it's"}),
        ('{{"b":"x","q":0}:5,[1,2]:6}', {'{"b":"x","q":0}': 5, "[1,2]": 6}),
        ('{{0:{"é":1}}:1}', {'{"0":{"é":1}}': 1}),
        ("[1L,2S,3B,4F,5D,-6]", [1, 2, 3, 4.0, 5.0, -6]),
        ("Set[1,]", [1]),
        ("TreeSet[]", []),
        ("[1,,2,]", [1, 2]),
        ('{"a":1,,"b":undefined,}', {"a": 1, "b": None}),
        ('"\\x41\\u0042\\7\\v\\/\\é"', "AB\x07\v/é"),
        ('"\\ud83d\\ude00"', "😀"),
        ('["\\ud83d","\\ude00x"]', ["\ufffd", "\ufffdx"]),
        ('"Größe"', "Größe"),
        ("\ufeff {0:1} \n", {"0": 1}),
        ("9223372036854775807", 9223372036854775807),
        ('{"a":9223372036854775807,0:1}', {"a": 9223372036854775807, "0": 1}),
        ("[1e3,-0.5,+2,007]", [1000.0, -0.5, 2, 7]),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{0:1,"0":2}', {"0": 2}),
        ('{"a":"{0:1,","b":{0:1}}', {"a": "{0:1,", "b": {"0": 1}}),
    ],
)
def test_the_dialect_is_read(text: str, expected: Any) -> None:
    assert fastjson.loads(text) == expected
    assert fastjson.loads(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":{"x":[1]},"b":{"$ref":"$.a"}}', {"a": {"x": [1]}, "b": {"x": [1]}}),
        ('[{"x":1},{"$ref":"$[0]"}]', [{"x": 1}, {"x": 1}]),
        ('{"a":[[2],[3]],"b":{"$ref":"$.a[1]"}}', {"a": [[2], [3]], "b": [3]}),
        ('{"a":{0:{"x":1},1:{"$ref":"$.a[0]"}}}', {"a": {"0": {"x": 1}, "1": {"x": 1}}}),
        (r'{"a-b":{"x":1},"c":{"$ref":"$.a\\-b"}}', {"a-b": {"x": 1}, "c": {"x": 1}}),
        ("""{"a.b":{"x":1},"c":{"$ref":"$['a.b']"}}""", {"a.b": {"x": 1}, "c": {"x": 1}}),
        ('{"a":{"b":{},"c":{"$ref":"$.a.b"}}}', {"a": {"b": {}, "c": {}}}),
        ('{"$ref":1}', {"$ref": 1}),
        ('{"$ref":"$.a","x":1}', {"$ref": "$.a", "x": 1}),
        ('{"text":"$ref"}', {"text": "$ref"}),
        ('{"a":{"k":1},{"q":{"z":0}}:2,"b":{"$ref":"$.a"}}', None),
    ],
)
def test_references_to_what_was_read_are_followed(text: str, expected: Any) -> None:
    if expected is None:
        expected = {"a": {"k": 1}, '{"q":{"z":0}}': 2, "b": {"k": 1}}
    assert fastjson.loads(text) == expected


@pytest.mark.parametrize(
    "path", ["$", "..", "@", "$.a", "$.missing", "$.a[0", "$.n.x", "$.n[7]", "", "nonsense"]
)
def test_references_to_nothing_and_to_what_is_around_them_are_refused(path: str) -> None:
    text = json.dumps({"n": [1], "a": {"b": {"$ref": path}}})
    with pytest.raises(RemotingFrameError, match="names no object that ends before it"):
        fastjson.loads(text)


def test_references_that_multiply_are_bounded() -> None:
    parts = ['"a0":[1,1,1,1,1,1,1,1]']
    parts += [f'"a{n}":[' + ",".join([f'{{"$ref":"$.a{n - 1}"}}'] * 8) + "]" for n in range(1, 20)]
    with pytest.raises(RemotingFrameError, match="repeat more than 4000000 values"):
        fastjson.loads("{" + ",".join(parts) + "}")


def test_references_that_nest_are_bounded() -> None:
    parts = ['"a0":[]'] + [f'"a{n}":[{{"$ref":"$.a{n - 1}"}}]' for n in range(1, 200)]
    with pytest.raises(RemotingFrameError, match="deeper than 64 levels"):
        fastjson.loads("{" + ",".join(parts) + "}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at character 0: a value is expected"),
        ("{", "a key is expected"),
        ('{"a"', "':' is expected"),
        ('{"a":', "a value is expected"),
        ('{"a":1', "',' or '}' is expected"),
        ("[1 2]", "',' or ']' is expected"),
        ('{"a":1}x', "more text after the value: 'x'"),
        ('"abc', "a text without its end"),
        ('{"a":"b\\', "a text without its end"),
        ("NaN", "a value is expected"),
        ("[Infinity]", "a value is expected"),
        ("[1e999]", "beyond the range of a double"),
        ("{0:1e999}", "beyond the range of a double"),
        ("1" * 5000, "4300 digits"),
        ("{0:" + "1" * 5000 + "}", "4300 digits"),
        ("nul", "a value is expected"),
        ("1.2.3", "a value is expected"),
        ("[" * 65 + "]" * 65, "deeper than 64 levels"),
        ("{0:" * 65 + "1" + "}" * 65, "deeper than 64 levels"),
        ("[" * 100_000, "deeper than 64 levels"),
        ('{"a":' * 100_000, "deeper than 64 levels"),
        ("{" * 100_000, "deeper than 64 levels"),
        (b"\xff", "not UTF-8"),
        ('"\x01"'.encode("utf-16"), "not UTF-8"),
    ],
)
def test_other_text_is_refused_with_its_place(text: str | bytes, message: str) -> None:
    with pytest.raises(RemotingFrameError, match=message):
        fastjson.loads(text)


def test_depth_is_the_same_limit_for_both_ways_of_reading() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}"), ("{0:", "}")):
        at_limit = opening * 64 + "1" + closing * 64
        assert fastjson.loads(at_limit) is not None
        with pytest.raises(RemotingFrameError, match="deeper"):
            fastjson.loads(at_limit, depth_max=63)


def test_size_is_bounded_for_either_way_of_reading() -> None:
    with pytest.raises(RemotingFrameError, match="JSON of 6 bytes, the limit is 5"):
        fastjson.loads(b'"abcd"', size_max=5)
    numbers = b"{" + b",".join(b"%d:[%d]" % (n, n) for n in range(400_000)) + b"}"
    assert len(numbers) > fastjson.DIALECT_SIZE_MAX
    assert fastjson.loads(numbers)["399999"] == [399_999]
    strict = b"[" + b"1," * (fastjson.DIALECT_SIZE_MAX // 2) + b"1]"
    assert len(fastjson.loads(strict)) > 500_000
    with pytest.raises(RemotingFrameError, match="not strict, the limit is 1048576"):
        fastjson.loads(strict[:-1] + b",]")


def test_strict_json_is_written() -> None:
    value = {"b": [1, 2.5, None, True], "a": {0: "é\u0001😀"}, "i": 9223372036854775807}
    text = fastjson.dumps(value)
    assert text == (
        '{"b":[1,2.5,null,true],"a":{"0":"é\\u0001😀"},"i":9223372036854775807}'.encode()
    )
    assert fastjson.loads(text) == {**value, "a": {"0": "é\u0001😀"}}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"a": "\udfff"}])
def test_what_no_reader_could_read_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogates"):
        fastjson.dumps(value)

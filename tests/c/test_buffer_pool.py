"""Memory of column buffers that goes round."""

from __future__ import annotations

from typing import Any

LARGE = 1 << 20


def take(core: Any, pool: Any, size: int) -> tuple[Any, int]:
    ffi, lib = core
    capacity = ffi.new("size_t *")
    data = lib.rmq_buffer_take(pool, size, capacity)
    assert data != ffi.NULL
    assert int(ffi.cast("uintptr_t", data)) % lib.RMQ_BUFFER_ALIGNMENT == 0
    assert capacity[0] >= size
    ffi.memmove(data, b"\xff" * size, size)
    return data, capacity[0]


def test_large_buffer_given_back_is_taken_again_where_it_fits(core: Any) -> None:
    _, lib = core
    pool = lib.rmq_buffer_pool_new()
    first, capacity = take(core, pool, LARGE)
    lib.rmq_buffer_give(first)
    assert take(core, pool, LARGE // 2) == (first, capacity)
    other, _ = take(core, pool, LARGE // 2)
    assert other != first
    lib.rmq_buffer_give(first)
    larger, _ = take(core, pool, 2 * LARGE)
    assert larger != first
    much_smaller, _ = take(core, pool, LARGE // 10)
    assert much_smaller != first
    for data in (other, larger, much_smaller):
        lib.rmq_buffer_give(data)
    lib.rmq_buffer_pool_close(pool)


def test_buffers_outlive_their_pool(core: Any) -> None:
    ffi, lib = core
    pool = lib.rmq_buffer_pool_new()
    taken = [take(core, pool, size)[0] for size in (10, LARGE, LARGE, 3 * LARGE)]
    lib.rmq_buffer_give(taken.pop())
    lib.rmq_buffer_pool_close(pool)
    for data in taken:
        ffi.memmove(data, b"x", 1)
        lib.rmq_buffer_give(data)


def test_more_than_a_pool_keeps_is_let_go_of(core: Any) -> None:
    _, lib = core
    pool = lib.rmq_buffer_pool_new()
    for data in [take(core, pool, LARGE)[0] for _ in range(20)]:
        lib.rmq_buffer_give(data)
    lib.rmq_buffer_pool_close(pool)


def test_without_a_pool_there_is_memory_all_the_same(core: Any) -> None:
    ffi, lib = core
    data, _ = take(core, ffi.NULL, LARGE)
    lib.rmq_buffer_give(data)
    lib.rmq_buffer_give(ffi.NULL)

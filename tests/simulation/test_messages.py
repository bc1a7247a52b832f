"""Messages of the simulator survive their bytes, and the network loses, doubles and keeps them."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from rmqstore.sim.clock import Timeline
from rmqstore.sim.messages import Answer, Ask, Heartbeat, Message, Order, decode, encode
from rmqstore.sim.network import Network

MESSAGES: tuple[Message, ...] = (
    Heartbeat(1, 2, -1, 123_456),
    Order(-1, 7, 2, 99, 3),
    Order(6, 0, 0, -1, 0),
    Ask(2, 8, True),
    Answer(3, 2, 8, -1, 0, False),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_is_the_same_after_its_bytes(message: Message) -> None:
    assert decode(encode(message)) == message


def delivered(*, count: int, rates: dict[str, float], is_once: bool = False) -> list[int]:
    """Return the numbers of the messages that arrive, in order, of *count* sent 1 ms apart."""
    timeline = Timeline()
    network = Network(timeline, Random(1))
    arrived: list[int] = []

    def take(source: int, data: bytes) -> None:
        message = decode(data)
        assert source == 1
        assert isinstance(message, Heartbeat)
        arrived.append(message.epoch)

    network.receive(0, take)
    for name, rate in rates.items():
        setattr(network, name, rate)
    for call in range(count):
        data = encode(Heartbeat(1, 1, call, 1))
        timeline.at(call * 1000, partial(network.send, 1, 0, data, is_once=is_once))
    timeline.run(60_000_000)
    return arrived


def test_messages_are_lost_doubled_and_overtaken_as_the_rates_say() -> None:
    assert sorted(delivered(count=50, rates={})) == list(range(50))
    assert 5 < len(delivered(count=50, rates={"loss_rate": 0.5})) < 45
    assert sorted(delivered(count=50, rates={"double_rate": 1.0})) == sorted([*range(50)] * 2)
    once = delivered(count=50, rates={"double_rate": 1.0}, is_once=True)
    assert sorted(once) == list(range(50))
    kept = delivered(count=50, rates={"keep_rate": 0.5})
    assert sorted(kept) == list(range(50))
    assert kept != sorted(kept)

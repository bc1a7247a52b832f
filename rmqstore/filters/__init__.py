"""Filters of consumers in SQL92, as RocketMQ's broker reads them; pure.

tokens      the words of an expression
tree        what an expression says
parser      a tree of an expression, or where it is wrong
evaluation  a function of a message's properties
java_values numbers and truth values as Java reads them from a text
bloom       the bits that stand for a subscription in a consume queue extension
"""

from __future__ import annotations

from rmqstore.filters.bloom import Bloom
from rmqstore.filters.evaluation import SQL92, Selector, selector_of
from rmqstore.filters.tokens import SqlError

__all__ = ["SQL92", "Bloom", "Selector", "SqlError", "selector_of"]

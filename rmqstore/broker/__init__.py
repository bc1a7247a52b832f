"""A broker: one store and its replica, served to clients by the remoting protocol."""

from rmqstore.broker.node import Broker, BrokerStatus
from rmqstore.broker.roles import Role

__all__ = ["Broker", "BrokerStatus", "Role"]

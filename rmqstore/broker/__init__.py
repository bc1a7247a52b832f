"""A broker: one store and its replica, served to clients by the remoting protocol."""

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker, BrokerStatus

__all__ = ["Broker", "BrokerStatus", "Role"]

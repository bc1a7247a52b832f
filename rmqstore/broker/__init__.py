"""A broker: one store and its replica, served to clients by the remoting protocol."""

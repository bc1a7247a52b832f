"""The remoting protocol of RocketMQ: frames, codes, headers, JSON bodies, a server and a client."""

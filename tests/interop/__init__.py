"""The real Java store beside rmqstore: each judges what the other wrote."""

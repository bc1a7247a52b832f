"""What a broker does by itself while it has a standing in its group; see `service.Service`."""

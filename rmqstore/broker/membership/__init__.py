"""How a broker gets its role in its group: by its file, or from controllers."""

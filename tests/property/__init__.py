"""Stores against plain models, over histories nobody thought of."""

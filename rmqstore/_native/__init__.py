"""The binding of the C core: one extension module, `core`."""

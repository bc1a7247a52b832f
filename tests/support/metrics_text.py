"""Metrics as Prometheus gets them."""

from __future__ import annotations


def value_of(text: str, name: str, **labels: str) -> float:
    """Return the value of the one sample of *name* that has these labels."""
    found = [
        line
        for line in text.splitlines()
        if line.startswith((f"{name}{{", f"{name} "))
        and all(f'{key}="{value}"' in line for key, value in labels.items())
    ]
    assert len(found) == 1, (name, labels, found)
    return float(found[0].split()[-1])

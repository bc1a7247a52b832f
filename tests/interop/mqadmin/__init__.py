"""Commands of the released mqadmin over a broker of ours and one of Java with the same history.

`table.toml` has each command with its state.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["HERE"]

HERE = Path(__file__).parent

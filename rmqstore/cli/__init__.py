"""The command line, `rmqstore`; needs the extra `cli` (typer and rich)."""

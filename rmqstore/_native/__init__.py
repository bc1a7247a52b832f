"""The binding of the C core: one extension module, `core`."""

from importlib.util import find_spec

if find_spec("rmqstore._native.core") is None:
    raise ImportError(
        f"{__path__[0]} holds source code without the extension `core` for this Python. To use an "
        "installed package, start Python in another folder; to use this source code, run "
        "`pip install -e .` beside setup.py"
    )

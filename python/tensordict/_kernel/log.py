"""The logger of the package, `logging.getLogger("tensordict")`."""

from __future__ import annotations

import logging
import os

LOGGING_LEVEL = os.environ.get("TD_LOGGING_LEVEL", "INFO")


def _set_up() -> logging.Logger:
    """Lines from the level of `TD_LOGGING_LEVEL` on go to the standard error, unless the program has set the logger up."""
    found = logging.getLogger("tensordict")
    if not found.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s [%(name)s][%(levelname)s] %(message)s"))
        found.addHandler(handler)
        found.setLevel(LOGGING_LEVEL.upper())
        found.propagate = False
    return found


logger = _set_up()

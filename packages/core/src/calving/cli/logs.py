"""The log of the command, and tracebacks of errors that nobody expects: neither shows a secret of the configuration."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from types import TracebackType

from calving.errors import ConfigError
from calving.model.text import printable_lines
from calving.secrets import MaskingFormatter, masked

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_QUIET = {"py4j": logging.ERROR, "pyiceberg": logging.ERROR, "httpx": logging.ERROR, "httpx2": logging.ERROR}
_QUIET["calving.librdkafka"] = logging.CRITICAL  # important messages come back as errors


def set_up_logs() -> None:
    """Log to the standard error, at the level of CALVING_LOG_LEVEL.

    :raises ConfigError: there is no such level.
    """
    level = os.environ.get("CALVING_LOG_LEVEL", "INFO")
    if level.upper() not in _LEVELS:
        raise ConfigError(f"CALVING_LOG_LEVEL: '{level}' is no level: it is {', '.join(_LEVELS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(MaskingFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    sys.excepthook = _print
    threading.excepthook = _print_of_thread


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(printable_lines(masked("".join(traceback.format_exception(kind, error, trace)))) + "\n")


def _print_of_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_type is not SystemExit and arguments.exc_value is not None:
        _print(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)

from . import ipc as ipc
from . import types as types
from .lib import *  # noqa: F403

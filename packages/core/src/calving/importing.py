"""One thread at a time imports what takes long.

The modules of pyiceberg import each other in a circle. Where two threads begin to import them at different ends, Python
finds that each waits for the other, and raises an error in one of them.
"""

from __future__ import annotations

import threading

IMPORTING = threading.Lock()
"""Held by each thread that imports an engine or a catalog, which a start does side by side."""

"""Lets only one thread at a time import slow modules.

The modules of pyiceberg import each other in a circle. If two threads begin to import different modules of the circle,
Python finds that each thread waits for the other, and raises an error in one of them.
"""

from __future__ import annotations

import threading

IMPORTING = threading.Lock()
"""Held by each thread that imports an engine or a catalog. A start imports both at the same time."""

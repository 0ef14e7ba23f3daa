"""A cache for functions of texts that anybody may have written: it is bounded by the length of the texts together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
V = TypeVar("V")


def cached_by_length(most: int) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Keep the results of a function whose texts and bytes have at most ``most`` characters together. Those that were
    used longest ago go first, but never the last one. A bound on their number would let a few long texts take all
    memory, because what is made of a text takes a multiple of it. An error is not kept.
    """

    def cached(function: Callable[P, V]) -> Callable[P, V]:
        kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        lock, size = threading.Lock(), 0

        def keep(key: Hashable, value: V, length: int) -> None:
            nonlocal size
            if key not in kept:  # another thread may have been faster
                kept[key], size = (value, length), size + length
            while len(kept) > 1 and size > most:
                size -= kept.popitem(last=False)[1][1]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> V:
            key = (args, tuple(kwargs.items()))
            with lock:
                if key in kept:
                    kept.move_to_end(key)
                    return kept[key][0]
            value = function(*args, **kwargs)
            with lock:
                keep(key, value, sum(len(each) for each in args if isinstance(each, str | bytes)))
            return value

        return call

    return cached

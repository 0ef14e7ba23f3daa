"""Bounded caches for functions without side effects: of texts that anybody may have written, and of large values that
many callers share.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
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


def cached_by_identity(most: int) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Keep the results of a function of collections that nobody changes any more. Two calls are alike if they have the
    same objects, so no large collection is compared. The arguments that are kept have at most ``most`` items together.
    Those that were used longest ago go first, but never the last ones. An error is not kept.
    """

    def cached(function: Callable[P, V]) -> Callable[P, V]:
        kept: OrderedDict[Hashable, tuple[V, tuple[object, ...], int]] = OrderedDict()
        lock, size = threading.RLock(), 0

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> V:
            nonlocal size
            given = (*args, *kwargs.values())
            key = (len(args), *kwargs, *map(id, given))
            # Also while it is computed: the threads that commit tables would all compute the same.
            with lock:
                if key in kept:
                    kept.move_to_end(key)
                    return kept[key][0]
                value = function(*args, **kwargs)
                length = sum(len(each) for each in given if isinstance(each, Sized))
                # With its arguments: as long as they are there, no other object has their ids.
                kept[key], size = (value, given, length), size + length
                while len(kept) > 1 and size > most:
                    size -= kept.popitem(last=False)[1][2]
                return value

        return call

    return cached

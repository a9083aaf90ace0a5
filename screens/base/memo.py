"""Memo of the last computed value, reused while its inputs are the same.

A screen is refreshed on every cursor move, when little has changed: sorting and measuring ten
thousand rows again would be wasted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_PLAIN: Final = (str, int, float, bool, type(None))
"""Types compared by value; all others by identity, which takes no time."""


class Memo(Generic[T]):
    """``memo(compute, a, b)``: ``compute()``, cached while ``a`` and ``b`` are the same.

    The inputs are kept alive, so that no other object can get their identity.
    """

    def __init__(self) -> None:
        self._inputs: tuple[Any, ...] | None = None
        self._value: T

    def __call__(self, compute: Callable[[], T], *inputs: Any) -> T:
        if self._inputs is None or not _are_same(self._inputs, inputs):
            self._value = compute()
            self._inputs = inputs
        return self._value


def _are_same(previous: tuple[Any, ...], current: tuple[Any, ...]) -> bool:
    return len(previous) == len(current) and all(
        a is b or (isinstance(a, _PLAIN) and isinstance(b, _PLAIN) and a == b)
        for a, b in zip(previous, current, strict=True)
    )

"""What was computed last, kept while it is asked for of the same things.

A screen shows its picture again whenever the cursor moves, and then little of it differs: of ten
thousand rows none was sorted anew, and none got another width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_PLAIN: Final = (str, int, float, bool, type(None))
"""Compared by value; all else by being the same object, which takes no time."""


class Memo(Generic[T]):
    """``once(make, a, b)`` is ``make()``, or what that was the last time, if ``a`` and ``b``
    were the same then. They are kept alive, so that no other thing can be taken for them."""

    def __init__(self) -> None:
        self._of: tuple[Any, ...] | None = None
        self._made: T

    def __call__(self, make: Callable[[], T], *of: Any) -> T:
        if self._of is None or not _same(self._of, of):
            self._made = make()
            self._of = of
        return self._made


def _same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return len(before) == len(now) and all(
        a is b or (isinstance(a, _PLAIN) and isinstance(b, _PLAIN) and a == b)
        for a, b in zip(before, now, strict=True)
    )

"""Values that are computed when they are needed, and kept while their inputs are the same.

A screen is refreshed on every cursor move, when little has changed: sorting and measuring ten
thousand rows again would be wasted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, overload

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


class LazySequence(Sequence[T]):
    """A sequence of ``length`` items; ``make`` takes an index, from 0."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length, self._make = length, make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        indices = range(self._length)[index]
        if isinstance(indices, range):
            return [self._make(each) for each in indices]
        return self._make(indices)

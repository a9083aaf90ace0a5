"""Records: slotted dataclasses that are frozen, and cost little to define and to make.

``@frozen`` is for the type checker what ``@dataclass(frozen=True, slots=True)`` is, and the same
when it runs but for one thing: an assignment is refused by the checker only. Python 3.11 compiles
six methods for every frozen dataclass, half a millisecond each; of the two hundred records of this
program one command needs a hundred and fifty, before it can read its first file. And a frozen
``__init__`` sets every field through ``object.__setattr__``: a row of twenty fields takes 3.6 µs to
make, and 0.4 µs here. To compare two of them takes 1.5 µs instead of 0.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A slotted dataclass with equality, a hash and a ``repr`` by its fields."""
    # Without a docstring dataclass() inspects a signature to make one.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
    values = _getter([each.name for each in fields(made) if each.compare])

    def equals(self: Any, other: object) -> Any:
        if other is self:
            return True
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    made.__eq__ = equals
    made.__hash__ = lambda self: hash(values(self))
    made.__repr__ = _told
    return made  # type: ignore[no-any-return]


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Gives the values of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _told(self: Any) -> str:
    told = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(told)})"

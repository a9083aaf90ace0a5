"""Records: what the type checker takes for a frozen dataclass is one in all that code can see,
except that nothing refuses an assignment while the program runs."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, fields, replace

import pytest

from metlmon.frozen import frozen


@frozen
class Site:
    """Where a job ran."""

    name: str
    gpus: int = 1
    seen: dict[str, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Usual:
    name: str
    gpus: int = 1


@frozen
class Pool(Site):
    schedd: str | None = None


@frozen
class Host:
    name: str


@frozen
class Nothing:
    """No fields."""


def test_equal_fields_make_equal_records() -> None:
    assert Site("Delta", 2) == Site("Delta", 2, {"a": 1})
    assert Site("Delta", 2) != Site("Delta")
    assert hash(Site("Delta", 2)) == hash(Site("Delta", 2, {"a": 1}))
    assert len({Host("a"), Host("a"), Host("b")}) == 2
    assert Nothing() == Nothing()


def test_records_of_two_kinds_are_never_equal() -> None:
    assert Site("Delta") != Pool("Delta")
    assert Site("Delta") != Usual("Delta")
    assert Host("a") != ("a",)


def test_it_says_what_is_in_it() -> None:
    assert repr(Pool("Delta")) == "Pool(name='Delta', gpus=1, seen={}, schedd=None)"
    assert repr(Nothing()) == "Nothing()"


def test_it_is_a_dataclass() -> None:
    assert [each.name for each in fields(Pool)] == ["name", "gpus", "seen", "schedd"]
    assert replace(Pool("Delta"), gpus=4) == Pool("Delta", 4)
    assert not hasattr(Pool("Delta"), "__dict__")
    match Site("Delta", 3):
        case Site(name, gpus):
            assert (name, gpus) == ("Delta", 3)
    with pytest.raises(TypeError):
        Site()  # type: ignore[call-arg]


def test_what_cannot_be_hashed_is_not() -> None:
    @frozen
    class Listing:
        names: list[str]

    with pytest.raises(TypeError, match="unhashable"):
        hash(Listing(["a"]))


def test_it_can_be_kept_in_a_file() -> None:
    assert pickle.loads(pickle.dumps(Pool("Delta", schedd="ap"))) == Pool("Delta", schedd="ap")

"""Jinja templates of the report, which lie beside this module."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template


def load_template(name: str, autoescape: bool = False, **filters: Any) -> Template:
    """The template ``name``; ``autoescape``: for HTML; ``filters``: functions by name."""
    environment = Environment(
        autoescape=autoescape, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters.update(filters)
    return environment.from_string((files(__package__) / name).read_text("utf-8"))

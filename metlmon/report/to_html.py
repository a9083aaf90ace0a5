"""Formats a report as one self-contained HTML file.

The template ``page.html.j2`` includes style and figures, for light, dark and narrow screens and
for print. It escapes all text; in case any is missed, the page's content security policy forbids
scripts and network access.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from markupsafe import Markup

from metlmon import __version__
from metlmon.report.document import (
    Raw,
    Report,
    ReportColumn,
    ReportFigure,
    ValueKind,
    format_value,
    load_template,
    sanitize,
)
from metlmon.report.svg import render_svg

MARK: Final = '<meta name="generator" content="metlmon '
"""Identifies a file as a report, within its first lines."""


def render_html(report: Report) -> str:
    """The HTML file of a report."""

    def format_cell(kind: ValueKind, value: Raw) -> str:
        return format_value(kind, value, report.hours_digits)

    template = load_template(
        "page.html.j2", autoescape=True, sanitize=sanitize, unbroken=_unbroken, svg=_svg
    )
    return template.render(
        report=report,
        version=__version__,
        format=format_cell,
        heading_groups=_heading_groups,
        is_text=lambda column: column.kind is ValueKind.TEXT,
        zip=zip,
    )


def _svg(figure: ReportFigure) -> Markup:
    # It escapes its text itself.
    return Markup(render_svg(figure))


def _unbroken(heading: str) -> str:
    """A sanitised heading without line breaks within GPU-hours."""
    return sanitize(heading).replace("GPU-", "GPU\u2011")


def _heading_groups(
    columns: Sequence[ReportColumn],
) -> list[tuple[str | None, list[ReportColumn]]]:
    """Adjacent columns with the same group heading (None: without)."""
    return [(group, list(members)) for group, members in groupby(columns, lambda c: c.group)]

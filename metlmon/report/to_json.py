"""Converts a report to JSON values: raw numbers, with rows as objects."""

from __future__ import annotations

from typing import Any, Final

from metlmon.report.document import (
    Facts,
    Raw,
    Report,
    ReportColumn,
    ReportFigure,
    ReportRow,
    ReportTable,
    ValueKind,
)

DIGITS: Final = {ValueKind.HOURS: 6, ValueKind.SHARE: 6, ValueKind.SECONDS: 3}
"""Decimals: a millionth of an hour is below the resolution of time stamps, a second."""


def tables_json(report: Report) -> dict[str, Any]:
    """Return rows and ``total`` of each table by its key; facts as one object."""
    result: dict[str, Any] = {}
    for block in report.blocks():
        if isinstance(block, Facts):
            result[block.key] = {fact.key: _value(fact.kind, fact.value) for fact in block.facts}
        elif not isinstance(block, ReportFigure):
            result[block.key] = {
                "rows": _rows(block),
                "total": _row(block.columns, block.total) if block.total else None,
            }
    return result


def _rows(table: ReportTable) -> list[dict[str, Any]]:
    """Return the rows, with part rows as ``parts`` of the row above them."""
    rows: list[dict[str, Any]] = []
    for row in table.rows:
        if row.is_detail:
            rows[-1].setdefault("parts", []).append(_row(table.columns, row))
        else:
            rows.append(_row(table.columns, row))
    return rows


def _row(columns: tuple[ReportColumn, ...], row: ReportRow) -> dict[str, Any]:
    return {
        column.key: _value(column.kind, value)
        for column, value in zip(columns, row.cells, strict=True)
        if value != ""
    }


def _value(kind: ValueKind, value: Raw) -> Raw:
    if isinstance(value, float) and kind in DIGITS:
        return round(value, DIGITS[kind])
    return value

"""The Markdown of a report: tables that a wiki draws, the same numbers as in HTML."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from metlmon.report.document import ReportTable
from metlmon.report.to_html import render_html
from metlmon.report.to_markdown import render_markdown
from metlmon.snapshot.records import HourUnit
from tests.support.sample_reports import EMPTY, report_of, report_of_log

NAMES = ["metl-aws", "trainer", "first-round"]


def cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


def tables(text: str) -> list[list[list[str]]]:
    """Every pipe table, by its rows' cells."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            found[-1].append([cell.strip() for cell in cells(line)])
        inside = line.startswith("|")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_as_many_cells_as_its_table(name: str) -> None:
    found = tables(render_markdown(report_of(name)))
    assert len(found) >= 7
    for table in found:
        assert len({len(row) for row in table}) == 1
        assert all(re.fullmatch(r"-+:?", cell) for cell in table[1])


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_numbers_of_the_html(name: str) -> None:
    report = report_of(name)
    text, html = render_markdown(report), render_html(report)
    for block in report.blocks():
        if isinstance(block, ReportTable):
            for row, _ in block.lines():
                for column in block.columns:
                    if column.alignment == "right" and column.name in row:
                        shown = report.text(column, row)
                        assert shown in text
                        assert f">{shown}</td>" in html.replace("&lt;", "<")


@pytest.mark.parametrize(
    ("table", "value", "shown"),
    [
        ("periods", "2025-11-03 to 2025-11-09", "3 Nov 2025 to 9 Nov 2025"),
        ("periods", "2025-11-03", "3 Nov 2025"),
        ("periods", "November 2025", "November 2025"),
        ("causes", "34/102", "34/102 JobOutOfResources"),
        ("causes", "1007/–", "1007/– StarterError"),
        ("causes", "9999/0", "9999/0"),
        ("causes", "return value 1", "return value 1"),
    ],
)
def test_periods_and_codes_are_readable(table: str, value: str, shown: str) -> None:
    report = report_of("metl-aws")
    tables = {block.key: block for block in report.blocks() if isinstance(block, ReportTable)}
    column = tables[table].columns[0]
    assert report.text(column, {column.name: value}) == shown


@pytest.mark.parametrize("name", NAMES)
def test_every_note_is_there_and_referred_to(name: str) -> None:
    text = render_markdown(report_of(name))
    defined = set(re.findall(r"^\[\^(\d+)\]: ", text, re.MULTILINE))
    assert set(re.findall(r"\[\^(\d+)\](?!:)", text)) == defined


def test_sentences_have_the_words_of_the_ensemble_and_names_their_own() -> None:
    report = replace(report_of("metl-aws"), item="shard", measure=HourUnit.CPU)
    report = replace(report, metadata=(("DAG", "an-epoch.dag"),))
    html = re.sub("<[^>]*>", "", render_html(report)).replace("\u2011", "-")
    for page in (render_markdown(report), html):
        for words in ("Shards completed", "shards per day", "CPU-hours of badput by", "A shard is"):
            assert words in page, words
        assert re.findall("GPU-hours|[Ee]pochs", page) == []
        assert "an-epoch.dag" in page.replace("\\", "")


def test_nothing_was_logged() -> None:
    for render in (render_markdown, render_html):
        text = render(report_of_log(EMPTY))
        assert "Nothing ran: the logs have no execution in this window." in text
        assert "<svg" not in text

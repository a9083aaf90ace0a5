"""Numbers as people see them: cells of the screens' tables, and of printed reports' tables."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from metlmon.config.files import load_settings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.text.spans import text
from screens.app import AppOptions, MetlmonApp
from screens.overview.screen import OverviewScreen
from screens.run.screen import RunScreen
from screens.sites.executions_screen import ExecutionsScreen
from screens.sites.screen import SitesScreen
from screens.widgets.table import Table
from tests.stats.said import Said, What, named

PATIENCE: Final = 30.0
"""Seconds for what is to be on the screen: far more than reading and adding up take."""

HOUR: Final = 3600.0
GAPS: Final = re.compile(r"[\s\u2009\u202f\u00a0,]")


# --- values -----------------------------------------------------------------------------------


def count(told: str) -> int | None:
    digits = GAPS.sub("", told)
    return int(digits) if digits.isdecimal() else None


def hours(told: str, units: float = 0.5) -> tuple[float, float] | None:
    """Seconds, and by how many they may be off: ``units`` of the last digit shown."""
    digits = GAPS.sub("", told)
    if digits.startswith("<"):
        least = float(digits[1:]) * HOUR
        return least / 2, least / 2
    if not re.fullmatch(r"\d+(\.\d+)?", digits):
        return None
    decimals = len(digits.partition(".")[2])
    # Nought is nothing at all: what is less than shown has a "<".
    return float(digits) * HOUR, 0.0 if digits == "0" else units * HOUR / 10**decimals


def duration(told: str) -> tuple[float, float] | None:
    """Whole seconds; minutes beyond a day, days beyond a hundred."""
    if found := re.fullmatch(r"(\d+) s", told):
        return float(found[1]), 1.0
    if found := re.fullmatch(r"(\d+):(\d\d):(\d\d)", told):
        return int(found[1]) * HOUR + int(found[2]) * 60 + int(found[3]), 1.0
    if found := re.fullmatch(r"(\d+) d (\d+):(\d\d)", told):
        return int(found[1]) * 86400 + int(found[2]) * HOUR + int(found[3]) * 60, 60.0
    return None


# --- printed status ---------------------------------------------------------------------------


def hours_line(told: str) -> Iterator[Said]:
    """``GPU-hours: 0.116 = 0.092 good + 0.024 lost (21 % of ended) + 0 in flight``."""
    found = re.search(r"GPU-hours: \S+ = (\S+) good \+ (\S+) lost.* \+ (\S+) in flight", told)
    assert found, told
    for kind, amount in zip(("good", "bad", "in_flight"), found.groups(), strict=True):
        yield from said_hours(("GPU-seconds", kind), amount)


# --- printed reports --------------------------------------------------------------------------


@dataclass(slots=True)
class Printed:
    """A table: its headings, and its rows' cells."""

    heads: list[str]
    rows: list[list[str]]

    def records(self) -> Iterator[dict[str, str]]:
        for row in self.rows:
            if len(row) == len(self.heads):
                yield dict(zip(self.heads, row, strict=True))


def markdown_tables(told: str) -> list[Printed]:
    tables: list[Printed] = []
    before = ""
    for line in told.splitlines():
        if line.startswith("|"):
            cells = [_bare(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not before.startswith("|"):
                tables.append(Printed(cells, []))
            elif not re.fullmatch(r"[|:\- ]+", line):
                tables[-1].rows.append(cells)
        before = line
    return tables


def _bare(cell: str) -> str:
    """Without notes, emphasis and escapes."""
    return re.sub(r"\[\^\d+\]|\*\*|\\(?=[^\w\s])", "", cell).strip()


class _Tables(HTMLParser):
    """Headings may stand in two lines: ``GPU-hours`` over ``good``, ``bad``."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Printed] = []
        self._groups: list[int] = []
        self._row: list[str] = []
        self._cell: list[str] | None = None
        self._across = 1
        self._quiet = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append(Printed([], []))
            self._groups = []
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th"):
            self._cell = []
            self._across = int(dict(attrs).get("colspan") or 1)
        elif tag == "sup":
            self._quiet += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            told = " ".join("".join(self._cell).split())
            if self._across > 1 and not self.tables[-1].heads:
                self._groups += range(len(self._row), len(self._row) + self._across)
            self._row += [told] * self._across
            self._cell = None
        elif tag == "tr":
            self._end_row(self.tables[-1])
        elif tag == "sup":
            self._quiet -= 1

    def _end_row(self, table: Printed) -> None:
        if not table.heads:
            table.heads = self._row
        elif self._groups:
            for at, head in zip(self._groups, self._row, strict=True):
                table.heads[at] += f", {head}"
            self._groups = []
        else:
            table.rows.append(self._row)

    def handle_data(self, data: str) -> None:
        if self._cell is not None and not self._quiet:
            self._cell.append(data)


def html_tables(told: str) -> list[Printed]:
    reader = _Tables()
    reader.feed(told)
    return reader.tables


HOURS_HEADS: Final = {
    "GPU-hours, good": "good",
    "GPU-hours, bad": "bad",
    "GPU-hours, in flight": "in_flight",
}


def report(tables: Sequence[Printed]) -> Iterator[Said]:
    """Tables that have GPU-hours by kind: of GPU models, resources, labels."""
    families = {"GPU model": "model", "Resource": "site", "Label": "label"}
    for table in tables:
        family = families.get(table.heads[0] if table.heads else "")
        if family is None or not HOURS_HEADS.keys() & set(table.heads):
            continue
        for row in table.records():
            name = row[table.heads[0]]
            if name == "Total":
                for head, kind in HOURS_HEADS.items():
                    yield from said_hours(("GPU-seconds", kind), row.get(head, ""))
            elif count(row.get("Executions", "")) is not None:
                who = _who(name)
                yield Said((f"executions by {family}", who), count(row["Executions"]))
                for head, kind in HOURS_HEADS.items():
                    yield from said_hours(
                        (f"GPU-seconds by {family}", who, kind), row.get(head, "")
                    )


def _who(name: str) -> object:
    return None if name in ("unknown", "not known", "no label") else named(name)


def said_hours(what: What, told: str, units: float = 0.5) -> Iterator[Said]:
    if (found := hours(told, units)) is not None:
        yield Said(what, *found)


def said_duration(what: What, told: str) -> Iterator[Said]:
    if (found := duration(told)) is not None:
        yield Said(what, *found)


# --- screens ----------------------------------------------------------------------------------

Rows = list[dict[str, str]]
"""A table's rows: text by heading, and the row's key."""


def screen_tables(path: Path, as_of: datetime | None = None) -> dict[str, Rows]:
    """What stands in the tables of the dashboard over ``path``, on a wide screen."""
    return asyncio.run(_looked(path, as_of))


async def _looked(path: Path, as_of: datetime | None) -> dict[str, Rows]:
    reader = DagdirReader(path, load_settings(path), as_of=as_of, live=False)
    reader.open()
    reader.read_all()  # so that the first picture is whole
    session = Session(reader)
    app = MetlmonApp(session, AppOptions())
    found: dict[str, Rows] = {}
    async with app.run_test(size=(320, 120)) as pilot:

        async def see(what: str, there: Callable[[], bool]) -> None:
            deadline = time.monotonic() + PATIENCE
            while not there():
                assert time.monotonic() < deadline, f"{what} never came to the screen"
                await pilot.pause(0.02)
            found[what] = _rows(app.screen.query_one(Table))

        def has_rows() -> bool:
            return bool(app.screen.query_one(Table).rows)

        try:
            await see("overview", lambda: isinstance(app.screen, OverviewScreen) and has_rows())
            await pilot.press("enter")
            await see("run", lambda: isinstance(app.screen, RunScreen))
            await pilot.press("escape", "w")
            for view in range(4):
                await see(VIEWS[view], lambda view=view: _on_view(app, view))  # type: ignore[misc]
                await pilot.press("tab")
            first = app.screen.query_one(Table).cursor
            await pilot.press("enter")
            await see(BEHIND, lambda: isinstance(app.screen, ExecutionsScreen) and has_rows())
            for row in found[BEHIND]:
                row["site"] = str(first)
        finally:
            session.stop()
    return found


VIEWS: Final = ("sites", "GPUs", "pairs", "causes")

BEHIND: Final = "executions"
"""Those behind the first site: what ``enter`` opens there."""


def _on_view(app: MetlmonApp, view: int) -> bool:
    screen = app.screen
    if not isinstance(screen, SitesScreen) or screen.view != view:
        return False
    table = screen.query_one(Table)
    titles = {"sites": "TARGETS", "GPUs": "TARGETS", "pairs": "SAME GPU", "causes": "CAUSE"}
    shown = titles[VIEWS[view]] in [column.title for column in table.columns]
    return shown or (not table.rows and screen.context.stats is not None and view == 3)


def _rows(table: Table) -> Rows:
    titles = [column.title for column in table.columns]
    rows = []
    for row in table.rows:
        if row.key is not None:
            cells = [text(cell).strip() for cell in row.cells()]
            rows.append({"key": row.key, **dict(zip(titles, cells, strict=True))})
    return rows


def screens(tables: Mapping[str, Rows], runs: Mapping[str, Any]) -> Iterator[Said]:
    """``runs``: by key, with uuid, run_name and dag."""
    for row in tables["overview"]:
        run = runs[row["key"]]
        what = (named(run.uuid), run.run_name, run.dag)
        yield from said_hours(("GPU-seconds by run", *what, "good"), row["GOOD h"])
        yield from said_hours(("GPU-seconds by run", *what, "bad"), row["LOST h"])
        if done := re.search(r"(\d+)/(\d+)", row["PROGRESS"]):
            yield Said(("run's epochs_done", *what), int(done[1]))
            yield Said(("run's epochs_total", *what), int(done[2]))
    for family, view in (("site", "sites"), ("GPU", "GPUs")):
        for row in tables[view]:
            who = None if row["key"] == "None" else row["key"]
            for head, kind in (("GOOD h", "good"), ("LOST h", "bad"), ("IN FLIGHT h", "in_flight")):
                yield from said_hours((f"GPU-seconds by {family}", who, kind), row.get(head, ""))
            if (epochs := count(row["EPOCHS"])) is not None:
                yield Said((f"completed epochs by {family}", who), epochs)
            yield from said_duration((f"median epoch by {family}", who), row["EPOCH TIME"])
            yield from said_duration((f"median wait by {family}", who), row.get("WAIT", ""))
    for row in tables["pairs"]:
        gpu, number, site = (None if part == "None" else part for part in row["key"].split("\n"))
        cell = (gpu, None if number is None else int(number), site)
        for head, kind in (("GOOD h", "good"), ("LOST h", "bad")):
            what = ("GPU-seconds by GPU, number and site", *cell, kind)
            yield from said_hours(what, row.get(head, ""))
    for row in tables["run"]:
        dag, node = row["key"].split("\n")
        what = (named(dag), named(node))
        yield from said_hours(("GPU-seconds by node", *what, "good"), row["GOOD h"])
        yield from said_hours(("GPU-seconds by node", *what, "bad"), row["LOST h"])
        if (tries := count(row["TRIES"])) is not None:
            yield Said(("tries by node", *what), tries)
    yield from _causes(tables["causes"])
    yield from _executions(tables[BEHIND])


def _causes(rows: Rows) -> Iterator[Said]:
    """Added up by code, like other sources' causes: what has none goes together."""
    lost: defaultdict[What, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        code = re.fullmatch(r"(-?\d+)(?:/(-?\d+))?", row["CODE"])
        key = (int(code[1]), int(code[2]) if code[2] else None) if code else (None, None)
        seconds, off = hours(row["LOST h"]) or (0.0, 0.0)
        lost[key][0] += seconds
        lost[key][1] += off
    for key, (seconds, off) in lost.items():
        yield Said(("GPU-seconds by code", *key, "bad"), seconds, off)


def _executions(rows: Rows) -> Iterator[Said]:
    """As many as the site says, and each job's among them."""
    site = None if rows[0]["site"] == "None" else rows[0]["site"]
    yield Said(("executions by site", site), len(rows))
    for row in rows:
        job, _, attempt = row["key"].partition("/")
        what = (*map(int, job.split(".")), int(attempt))
        yield from said_duration(("seconds by attempt", *what), row["TIME"])
        yield from said_hours(("GPU-seconds by attempt", *what), row["GPU-h"])

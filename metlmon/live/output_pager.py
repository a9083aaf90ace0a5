"""Rows of a job's output file by byte offset, so that a file of any size opens at once.

A row is a line, or a part of a line that is longer than :data:`ROW_BYTES`. Whether a row begins at
an offset depends only on the bytes before it, so that reading forward and backward agree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.live.file_access import as_displayed, open_output
from metlmon.remote.filesystem import OpenFile

ROW_BYTES: Final = 4096
"""A line is divided at each multiple of this that has no line end in as many bytes before it."""

SEARCH_BYTES: Final = 1 << 20
"""Bytes that a search reads at once; between two such reads it can be cancelled."""


class OutputRow(Struct, frozen=True):
    """One row: its bytes from ``start`` to ``end``, and its text as a terminal shows it.

    ``text`` may have control characters: a screen makes it safe.
    """

    start: int
    end: int
    text: str


def output_size(path: Path) -> int:
    """The size of an output file in bytes. Raises UnreadableFile."""
    with open_output(path) as (_, size):
        return size


def rows_from(path: Path, start: int, count: int) -> list[OutputRow]:
    """At most ``count`` rows from ``start``, the beginning of a row. Raises UnreadableFile."""
    rows: list[OutputRow] = []
    with open_output(path) as (file, size):
        while start < size and len(rows) < count:
            end = _row_end(file, start, size)
            rows.append(_row(file, start, end))
            start = end
    return rows


def rows_before(path: Path, end: int, count: int) -> list[OutputRow]:
    """At most ``count`` rows that end at ``end`` or before it. Raises UnreadableFile."""
    rows: list[OutputRow] = []
    with open_output(path) as (file, size):
        end = min(end, size)
        while end > 0 and len(rows) < count:
            start = _row_start(file, end - 1)
            rows.append(_row(file, start, end))
            end = start
    return rows[::-1]


def row_start(path: Path, offset: int) -> int:
    """Where the row with the byte at ``offset`` begins. Raises UnreadableFile."""
    with open_output(path) as (file, size):
        return _row_start(file, min(offset, size - 1)) if size and offset > 0 else 0


def _row(file: OpenFile, start: int, end: int) -> OutputRow:
    data = file.pread(end - start, start).removesuffix(b"\n")
    return OutputRow(start, end, as_displayed(data.decode("utf-8", "replace"), 2 * ROW_BYTES))


def _row_start(file: OpenFile, offset: int) -> int:
    """The last beginning of a row at ``offset`` or before it."""
    multiple = offset - offset % ROW_BYTES
    line_end = file.pread(offset - multiple, multiple).rfind(b"\n")
    if line_end >= 0:
        return multiple + line_end + 1
    if multiple == 0:
        return 0
    previous = multiple - ROW_BYTES
    line_end = file.pread(ROW_BYTES, previous).rfind(b"\n")
    return multiple if line_end < 0 else previous + line_end + 1


def _row_end(file: OpenFile, start: int, size: int) -> int:
    """The end of the row that begins at ``start``."""
    multiple = start - start % ROW_BYTES
    # The multiple after the next divides every line that does not end before it.
    limit = multiple + 2 * ROW_BYTES
    data = file.pread(limit - start, start)
    line_end = data.find(b"\n")
    if line_end >= 0 and start + line_end + 1 <= multiple + ROW_BYTES:
        return start + line_end + 1
    if start == multiple and len(data) > ROW_BYTES:
        # No line end in a whole block: a row begins at the next multiple.
        return start + ROW_BYTES
    return start + line_end + 1 if line_end >= 0 else min(size, limit)


PAGE_ROWS: Final = 500
"""Rows that are read at a time."""

KEPT_ROWS: Final = 3000
"""Maximum number of rows in memory: those far from the view are read again when needed."""


class OutputPage(Struct, frozen=True):
    """Adjacent rows of a file of ``size`` bytes; the row at offset ``top`` is to be shown first, or
    the last rows if ``top`` is ``size``.
    """

    rows: tuple[OutputRow, ...]
    size: int
    top: int

    @property
    def reaches_end(self) -> bool:
        """Whether the last row is the last one of the file."""
        return not self.rows or self.rows[-1].end >= self.size


def page_at_end(path: Path) -> OutputPage:
    """The last rows. Raises UnreadableFile, like all of these functions."""
    size = output_size(path)
    return OutputPage(tuple(rows_before(path, size, PAGE_ROWS)), size, size)


def page_around(path: Path, offset: int) -> OutputPage:
    """The rows before and after an offset, whose row is the top one."""
    start = row_start(path, offset)
    before = rows_before(path, start, PAGE_ROWS // 2)
    return OutputPage((*before, *rows_from(path, start, PAGE_ROWS)), output_size(path), start)


def page_below(path: Path, page: OutputPage, top: int) -> OutputPage:
    """The page with further rows below; the file may have grown, or been replaced."""
    size = output_size(path)
    if not page.rows or size < page.rows[-1].end:
        return page_at_end(path)
    # Read the last row again, since it may have been incomplete.
    more = rows_from(path, page.rows[-1].start, PAGE_ROWS)
    return OutputPage((*page.rows[:-1], *more)[-KEPT_ROWS:], size, top)


def page_above(path: Path, page: OutputPage, top: int) -> OutputPage:
    """The page with further rows above."""
    before = rows_before(path, page.rows[0].start, PAGE_ROWS)
    return OutputPage((*before, *page.rows)[:KEPT_ROWS], page.size, top)


def page_if_changed(path: Path, page: OutputPage) -> OutputPage | None:
    """The page up to the new end of the file; None if its size is unchanged."""
    size = output_size(path)
    return None if size == page.size else page_below(path, page, size)


# --- searching ----------------------------------------------------------------------------------


class Search(Struct):
    """A search for a text in an output file. It is case-sensitive only if the text has a capital
    letter. ``done``: the fraction that was searched, from 0 to 1."""

    text: str
    cancelled: bool = False
    done: float = 0.0

    def find(self, path: Path, offset: int, backward: bool = False) -> int | None:
        """The offset of the next match after the row at ``offset``, or before ``offset``.

        Without one there, the search continues from the other end. None without any match, or if
        cancelled. Raises UnreadableFile.
        """
        after = rows_from(path, row_start(path, offset), 1)
        split = min(offset, output_size(path)), after[0].end if after else offset
        with open_output(path) as (file, size):
            spans = [(0, split[0]), (split[1], size), (split[0], split[1])]
            if not backward:
                spans = [spans[1], spans[0], spans[2]]
            for low, high in spans:
                found = self._find_within(file, low, high, size, backward)
                if found is not None or self.cancelled:
                    return found
        return None

    def _find_within(
        self, file: OpenFile, low: int, high: int, size: int, backward: bool
    ) -> int | None:
        """The first match that begins in a span, the last one if ``backward``."""
        needle = self.text.encode("utf-8", "replace")
        folded = needle == needle.lower()
        chunks = range(low, high, SEARCH_BYTES)
        for start in reversed(chunks) if backward else chunks:
            if self.cancelled:
                return None
            end = min(high, start + SEARCH_BYTES)
            data = file.pread(end - start + len(needle) - 1, start)
            if folded:
                data = data.lower()
            at = data.rfind(needle) if backward else data.find(needle)
            if at >= 0:
                return start + at
            self.done += (end - start) / max(1, size)
        return None

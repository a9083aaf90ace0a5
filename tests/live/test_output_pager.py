"""Rows of an output file by offset, in which reading forward and backward agree."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from metlmon.live import output_pager
from metlmon.live.file_access import LINE_CHARACTERS, UnreadableFile, output_file, read_tail
from metlmon.live.output_pager import (
    KEPT_ROWS,
    PAGE_ROWS,
    ROW_BYTES,
    OutputRow,
    Search,
    page_above,
    page_around,
    page_at_end,
    page_below,
    page_if_changed,
    row_start,
    rows_before,
    rows_from,
)


def boundaries(data: bytes) -> list[int]:
    """The starts of rows: after line ends, and at multiples after a block without one."""
    found = {0} | {at + 1 for at, byte in enumerate(data) if byte == 10}
    for multiple in range(ROW_BYTES, len(data), ROW_BYTES):
        if b"\n" not in data[multiple - ROW_BYTES : multiple]:
            found.add(multiple)
    return sorted(at for at in found if at < len(data))


def contents(seed: int) -> bytes:
    """Lines of any length, some longer than several blocks."""
    dice = random.Random(seed)
    lengths = [0, 1, 80, ROW_BYTES - 1, ROW_BYTES, ROW_BYTES + 1, 2 * ROW_BYTES, 5 * ROW_BYTES + 7]
    lines = [b"x" * dice.choice([*lengths, dice.randrange(3 * ROW_BYTES)]) for _ in range(30)]
    return b"\n".join(lines) + b"\n" * dice.randrange(2)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "job.out"
    path.write_bytes(content)
    return path


def numbered(folder: Path, count: int) -> Path:
    return written(folder, b"".join(b"line %d\n" % number for number in range(count)))


@pytest.mark.parametrize("seed", range(4))
def test_both_directions_give_the_same_rows(tmp_path: Path, seed: int) -> None:
    data = contents(seed)
    path = written(tmp_path, data)
    starts = boundaries(data)
    expected = list(zip(starts, [*starts[1:], len(data)], strict=True))
    forward = rows_from(path, 0, len(data))
    assert [(row.start, row.end) for row in forward] == expected
    assert rows_before(path, len(data), len(data)) == forward
    for offset in random.Random(seed).sample(range(len(data)), 50):
        assert row_start(path, offset) == max(at for at in starts if at <= offset)


def test_text_equals_that_of_a_terminal(tmp_path: Path) -> None:
    path = written(tmp_path, b"10 %\r50 %\r100 %\n\x1b[31mred\x1b[0m\nlast")
    assert [row.text for row in rows_from(path, 0, 9)] == ["100 %", "red", "last"]


def test_huge_file_opens_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    with open(path, "wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(b"\n" + b"".join(b"line %d\n" % number for number in range(2000)))
    page = page_at_end(path)
    assert len(page.rows) == PAGE_ROWS
    assert page.rows[-1].text == "line 1999"
    assert page.reaches_end
    assert page_around(path, 0).rows[0].start == 0


def texts(rows: tuple[OutputRow, ...]) -> list[str]:
    return [row.text for row in rows]


def test_pages_join_without_a_gap(tmp_path: Path) -> None:
    path = numbered(tmp_path, 6000)
    page = page_around(path, 0)
    while not page.reaches_end:
        page = page_below(path, page, 0)
    assert len(page.rows) == KEPT_ROWS
    assert texts(page.rows) == [f"line {n}" for n in range(6000 - KEPT_ROWS, 6000)]
    page = page_above(path, page, 0)
    first = 6000 - KEPT_ROWS - PAGE_ROWS
    assert texts(page.rows) == [f"line {n}" for n in range(first, first + KEPT_ROWS)]


def test_growing_file_is_followed_within_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"one\ntw")
    page = page_at_end(path)
    assert page_if_changed(path, page) is None
    with open(path, "a") as file:
        file.write("o\nthree\n")
    grown = page_if_changed(path, page)
    assert texts(grown.rows) == ["one", "two", "three"]
    path.write_text("new\n")
    replaced = page_if_changed(path, grown)
    assert texts(replaced.rows) == ["new"]


@pytest.mark.parametrize("chunk", [7, 64, 1 << 20])
def test_every_match_is_found_in_both_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(output_pager, "SEARCH_BYTES", chunk)
    data = "\n".join(f"line {n} {'Error' if n % 7 == 3 else 'fine'}" for n in range(50))
    path = written(tmp_path, data.encode())
    expected = [at for at in range(len(data)) if data.startswith("Error", at)]

    def visited(text: str, backward: bool) -> list[int]:
        offset = data.index("line 20")
        found = []
        for _ in expected:
            at = Search(text).find(path, offset, backward)
            assert at is not None
            found.append(at)
            offset = row_start(path, at)
        return found

    later = [at for at in expected if at > data.index("line 20")]
    earlier = [at for at in expected if at < data.index("line 20")]
    assert visited("error", False) == later + earlier
    assert visited("Error", True) == earlier[::-1] + later[::-1]
    assert Search("ERROR").find(path, 0) is None


def test_cancelled_search_ends(tmp_path: Path) -> None:
    path = numbered(tmp_path, 100)
    assert Search("line 99", cancelled=True).find(path, 0) is None


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntorn", ["one", "torn"]),
        (b"dos\r\nlines\r\n", ["dos", "lines"]),
        (b"\n\nblank\n", ["", "", "blank"]),
        (b" 10%\r 20%\r100%\ndone\n", ["100%", "done"]),
        (b"long line here\rshort\n", ["shortline here"]),
        (b"\x1b[32mgreen\x1b[0m \x1b]0;title\x07x\x1b(B\n", ["green x"]),
        (b"\xff\xfe caf\xc3\xa9\n", ["\ufffd\ufffd café"]),
    ],
)
def test_lines_equal_those_of_a_terminal(tmp_path: Path, content: bytes, left: list[str]) -> None:
    assert read_tail(written(tmp_path, content)) == left


def test_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(10_000)]
    path = written(tmp_path, "\n".join(lines).encode() + b"\n")
    tail = read_tail(path, limit=1000)
    assert tail == lines[-len(tail) :]
    assert 1000 - 10 <= sum(len(line) + 1 for line in tail) <= 1000


def test_line_at_the_start_of_the_tail_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path, b"aaaa\nbbbb\ncccc\n")
    assert read_tail(path, limit=10) == ["bbbb", "cccc"]
    assert read_tail(path, limit=9) == ["cccc"]


def test_endless_line_is_bounded(tmp_path: Path) -> None:
    path = written(tmp_path, b"x" * 300_000)
    assert [len(line) for line in read_tail(path)] == [LINE_CHARACTERS]
    path = written(tmp_path, b"".join(b"\r%d %%" % n for n in range(100_000)))
    assert read_tail(path) == ["99999 %"]


def test_file_inside_the_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    inner = tmp_path / "logs" / "a.out"
    inner.write_text("x")
    (tmp_path / "link.out").symlink_to(inner)
    assert output_file(tmp_path, "logs/a.out") == inner.resolve()
    assert output_file(tmp_path, "logs/../logs/a.out") == inner.resolve()
    assert output_file(tmp_path, "link.out") == inner.resolve()


@pytest.mark.parametrize(
    "name",
    [*"../.secret ../../secret link folder/secret loop pipe sub absent .".split(), "", "a\0b"],
)
def test_outside_and_special_files_are_not_read(tmp_path: Path, name: str) -> None:
    dagdir = tmp_path / "dagdir"
    (dagdir / "sub").mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / ".secret").write_text("secret")
    (dagdir / "link").symlink_to(secret)
    (dagdir / "folder").symlink_to(tmp_path)
    (dagdir / "loop").symlink_to(dagdir / "loop")
    os.mkfifo(dagdir / "pipe")
    with pytest.raises(UnreadableFile):
        output_file(dagdir, name)
    with pytest.raises(UnreadableFile, match="outside"):
        output_file(dagdir, str(secret))


def test_too_long_name_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile):
        output_file(tmp_path, "x" * 5000)


def test_file_swapped_for_a_pipe_or_link_is_not_waited_for(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(written(tmp_path, b"x"))
    for path in (pipe, link, tmp_path / "absent"):
        with pytest.raises(UnreadableFile):
            read_tail(path)

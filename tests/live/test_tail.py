"""The ends of output files: what a terminal would have left, and nothing from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metlmon.live.file_access import LINE_CHARACTERS, UnreadableFile, output_file, read_tail


def written(folder: Path, content: bytes) -> Path:
    path = folder / "job.out"
    path.write_bytes(content)
    return path


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
def test_lines_are_as_a_terminal_left_them(tmp_path: Path, content: bytes, left: list[str]) -> None:
    assert read_tail(written(tmp_path, content)) == left


def test_only_the_tail_is_read_and_begins_with_a_whole_line(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(10_000)]
    path = written(tmp_path, "\n".join(lines).encode() + b"\n")
    tail = read_tail(path, limit=1000)
    assert tail == lines[-len(tail) :]
    assert 1000 - 10 <= sum(len(line) + 1 for line in tail) <= 1000


def test_a_line_that_begins_where_the_tail_does_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path, b"aaaa\nbbbb\ncccc\n")
    assert read_tail(path, limit=10) == ["bbbb", "cccc"]
    assert read_tail(path, limit=9) == ["cccc"]


def test_one_endless_line_is_bounded(tmp_path: Path) -> None:
    path = written(tmp_path, b"x" * 300_000)
    assert [len(line) for line in read_tail(path)] == [LINE_CHARACTERS]
    path = written(tmp_path, b"".join(b"\r%d %%" % n for n in range(100_000)))
    assert read_tail(path) == ["99999 %"]


def test_a_file_inside_the_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    inner = tmp_path / "logs" / "a.out"
    inner.write_text("x")
    (tmp_path / "link.out").symlink_to(inner)
    assert output_file(tmp_path, "logs/a.out") == inner.resolve()
    assert output_file(tmp_path, "logs/../logs/a.out") == inner.resolve()
    assert output_file(tmp_path, "link.out") == inner.resolve()


@pytest.mark.parametrize(
    "name",
    [
        "../.secret",
        "../../secret",
        "link",
        "folder/secret",
        "loop",
        "pipe",
        "sub",
        "absent",
        "",
        "a\0b",
        ".",
    ],
)
def test_whatever_lies_elsewhere_or_is_no_file_is_not_read(tmp_path: Path, name: str) -> None:
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


def test_a_name_too_long_for_the_system_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile):
        output_file(tmp_path, "x" * 5000)


def test_a_file_swapped_for_a_pipe_or_a_link_is_not_waited_for(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(written(tmp_path, b"x"))
    for path in (pipe, link, tmp_path / "absent"):
        with pytest.raises(UnreadableFile):
            read_tail(path)

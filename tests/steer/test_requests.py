"""Files with requests to a gate: complete or absent, never written through a link, and read back by
the gate."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from metlmon.pool import gate_requests
from tests.support.gate_rows import UUID

STOP = gate_requests.request_file("ens.dag", UUID, "stop")


def all_names(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


def test_files_are_named_by_dag_and_uuid() -> None:
    assert f"gate/ens/{UUID}.stop" == STOP
    assert gate_requests.request_file("sub/two.dag", UUID, "pause") == f"gate/two/{UUID}.pause"
    assert gate_requests.gate_rules("sub/two.dag") == "two.gate.json"
    placed = gate_requests.placement_file("sub/two.dag", "run0-train_epoch3")
    assert placed == "placement/two/run0-train_epoch3.inc"


def test_existing_files_are_kept_and_no_other_is_left(tmp_path: Path) -> None:
    assert gate_requests.write_file(tmp_path, STOP, b"by anna\n", keep=True)
    assert not gate_requests.write_file(tmp_path, STOP, b"by ben\n", keep=True)
    assert (tmp_path / STOP).read_bytes() == b"by anna\n"
    assert gate_requests.write_file(tmp_path, STOP, b"by ben\n")
    assert not gate_requests.write_file(tmp_path, STOP, b"by ben\n")
    assert gate_requests.read_file(tmp_path, STOP) == b"by ben\n"
    assert all_names(tmp_path) == [STOP]
    assert gate_requests.delete_file(tmp_path, STOP)
    assert not gate_requests.delete_file(tmp_path, STOP)
    assert gate_requests.read_file(tmp_path, STOP) is None
    assert all_names(tmp_path) == []


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_dagmans_user_can_read_and_write(tmp_path: Path, umask: int) -> None:
    home = tmp_path / "ens"
    home.mkdir()
    home.chmod(0o2770)
    before = os.umask(umask)
    try:
        gate_requests.write_file(home, STOP, b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((home / STOP).stat().st_mode) == 0o644
    for folder in ("gate", "gate/ens"):
        assert stat.S_IMODE((home / folder).stat().st_mode) & 0o777 == 0o770


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write for others")
def test_files_of_root_belong_to_the_dags_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    gate_requests.write_file(tmp_path, STOP, b"")
    assert (tmp_path / "gate/ens").stat().st_uid == 12345


@pytest.mark.parametrize("link", ["gate", "gate/ens", STOP])
def test_links_are_not_followed(tmp_path: Path, link: str) -> None:
    home, elsewhere = tmp_path / "ens", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    place = home / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(elsewhere if link != STOP else elsewhere / "precious")
    for change in (
        lambda: gate_requests.write_file(home, STOP, b"x"),
        lambda: gate_requests.delete_file(home, STOP),
        lambda: gate_requests.read_file(home, STOP),
    ):
        with pytest.raises(OSError, match=r"Not a directory|symbolic links|not a regular file"):
            change()
    assert all_names(elsewhere) == ["precious"]
    assert (elsewhere / "precious").read_text() == "precious"


def test_folder_in_place_of_a_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / STOP).mkdir(parents=True)
    with pytest.raises(gate_requests.NoFile, match="not a regular file"):
        gate_requests.write_file(tmp_path, STOP, b"")
    with pytest.raises(gate_requests.NoFile):
        gate_requests.delete_file(tmp_path, STOP)
    assert (tmp_path / STOP).is_dir()


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", 'a"b', "a'b", "$(HOME)", "a\\", "a\nqueue 5", "a\rb", "a\tb", "a\x1b[2J"),
        *("a" * 201, "x\u202ey", "x\x00", "x\u2028y"),
    ],
)
def test_invalid_site_is_refused(text: str) -> None:
    assert gate_requests.site_of(text) is None


def test_stop_file_names_its_author() -> None:
    result = gate_requests.author_line().decode("ascii")
    assert result.startswith("by ")
    assert result.endswith(" with metlmon\n")
    assert result.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"reason": "patience"}', "patience"),
        (b'{"reason": 5}', ""),
        (b"[]", ""),
        (b"{", ""),
        (b"\xff", ""),
        (b"[" * 60000, ""),
    ],
)
def test_any_file_of_the_gate_is_read(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x").write_bytes(content)
    assert gate_requests.stop_reason(tmp_path, "x") == why

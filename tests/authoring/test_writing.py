"""Files are written all or none, and existing ones are replaced only on request."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import Plan, PlanError
from metlmon.authoring.write_files import write_plan
from tests.support.sample_requests import NAP_SH, a_request

NAMES = ["ensemble.dag", "ensemble.sub", "nap.sh", "nap.template", "ensemble.toml"]


def listing(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def contents(plan: Plan) -> dict[str, bytes]:
    return {file.name: (plan.request.directory / file.name).read_bytes() for file in plan.files}


def planned(plan: Plan) -> dict[str, bytes]:
    return {file.name: file.data for file in plan.files}


@pytest.fixture(name="plan")
def _plan(tmp_path: Path) -> Plan:
    return make_plan(a_request(tmp_path))


def again(plan: Plan) -> Plan:
    return make_plan(plan.request)


def refusal(plan: Plan, overwrite: bool = False) -> str:
    with pytest.raises(PlanError) as caught:
        write_plan(plan, overwrite=overwrite)
    return str(caught.value)


def test_new_directory_has_exactly_these_files(plan: Plan) -> None:
    old = os.umask(0o022)
    try:
        paths = write_plan(plan)
    finally:
        os.umask(old)
    directory = plan.request.directory
    assert paths == tuple(directory / name for name in NAMES)
    assert listing(directory) == sorted(NAMES)
    assert contents(plan) == planned(plan)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in paths]
    assert modes == [0o644, 0o644, 0o755, 0o644, 0o644]
    assert [path.stat().st_nlink for path in paths] == [1] * len(NAMES)


@pytest.mark.parametrize(
    ("name", "kind"), zip(NAMES, ["file", "link", "dangling", "directory", "fifo"], strict=True)
)
def test_nothing_is_overwritten(tmp_path: Path, plan: Plan, name: str, kind: str) -> None:
    directory = plan.request.directory
    directory.mkdir()
    aim = tmp_path / "precious"
    aim.write_text("precious")
    there = directory / name
    if kind == "file":
        there.write_text("precious")
    elif kind == "directory":
        there.mkdir()
    elif kind == "fifo":
        os.mkfifo(there)
    else:
        there.symlink_to(aim if kind == "link" else tmp_path / "nowhere")
    before = os.lstat(there)
    assert again(plan).existing_files == (name,)
    assert f"{there}: is there already; choose another name or directory" in refusal(plan)
    assert listing(directory) == [name]
    assert os.lstat(there) == before
    assert aim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_overwriting_replaces_a_link_not_its_target(tmp_path: Path, plan: Plan) -> None:
    directory = plan.request.directory
    directory.mkdir()
    aim = tmp_path / "precious"
    aim.write_text("precious")
    (directory / "ensemble.dag").symlink_to(aim)
    (directory / "ensemble.sub").write_text("old")
    write_plan(plan, overwrite=True)
    assert contents(plan) == planned(plan)
    assert not (directory / "ensemble.dag").is_symlink()
    assert aim.read_text() == "precious"
    assert listing(directory) == sorted(NAMES)


def test_directory_is_never_overwritten(plan: Plan) -> None:
    (plan.request.directory / "nap.sh").mkdir(parents=True)
    assert "nap.sh: is a directory" in refusal(plan, overwrite=True)
    assert listing(plan.request.directory) == ["nap.sh"]


def test_identical_files_are_not_rewritten(tmp_path: Path, plan: Plan) -> None:
    write_plan(plan)
    shipped = plan.request.directory / "nap.sh"
    before = shipped.stat()
    # Reading it may change the time of access.
    unchanged = ("st_ino", "st_size", "st_mode", "st_mtime_ns", "st_ctime_ns")
    other = make_plan(replace(plan.request, name="other"))
    assert other.existing_files == ()
    write_plan(other)
    after = shipped.stat()
    assert [getattr(after, name) for name in unchanged] == [
        getattr(before, name) for name in unchanged
    ]
    assert again(plan).existing_files == ("ensemble.dag",)
    shipped.write_bytes(NAP_SH + b"changed\n")
    assert make_plan(replace(plan.request, name="third")).existing_files == ("nap.sh",)


@pytest.mark.parametrize("left", ["ensemble.dag.lock", "ensemble.dag.rescue001"])
def test_submitted_dag_is_not_overwritten(plan: Plan, left: str) -> None:
    write_plan(plan)
    (plan.request.directory / left).write_text("")
    result = refusal(plan, overwrite=True)
    assert "; choose another name or directory" in result
    assert left in result
    assert contents(plan) == planned(plan)


def test_missing_and_wrong_directories_are_refused(tmp_path: Path, plan: Plan) -> None:
    lost = replace(plan, request=replace(plan.request, directory=tmp_path / "a" / "b"))
    assert "no such directory; make it first" in refusal(lost)
    (tmp_path / "new").write_text("")
    assert "is not a directory" in refusal(plan)


# --- interruptions --------------------------------------------------------------------------


def full_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let fsync fail as on a full disk, after so many files."""
    count = 0

    def fsync(_: int) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_full_disk_leaves_no_new_files(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, after: int
) -> None:
    full_disk(monkeypatch, after)
    assert "cannot be written: No space left on device" in refusal(plan)
    assert not plan.request.directory.exists()


def test_ctrl_c_leaves_no_files(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    link = os.link

    def interrupted(source: Path, target: Path, **how: bool) -> None:
        if Path(target).name == "ensemble.dag":
            raise KeyboardInterrupt
        link(source, target, **how)

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_plan(plan)
    assert not plan.request.directory.exists()


def test_full_disk_keeps_existing_files(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    directory = plan.request.directory
    directory.mkdir()
    for name in NAMES:
        (directory / name).write_text("old")
    full_disk(monkeypatch, 2)
    refusal(plan, overwrite=True)
    assert listing(directory) == sorted(NAMES)
    assert set(contents(plan).values()) == {b"old"}


def test_file_created_meanwhile_is_kept(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    directory = plan.request.directory
    link = os.link

    def slow_link(source: Path, target: Path, **how: bool) -> None:
        if Path(target).name == "nap.sh":
            Path(target).write_text("precious")
        link(source, target, **how)

    monkeypatch.setattr(os, "link", slow_link)
    assert "nap.sh: came there a moment ago" in refusal(plan)
    assert listing(directory) == ["nap.sh"]
    assert (directory / "nap.sh").read_text() == "precious"


def test_dag_file_appears_last(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    order = []
    link = os.link

    def noted(source: Path, target: Path, **how: bool) -> None:
        order.append(Path(target).name)
        link(source, target, **how)

    monkeypatch.setattr(os, "link", noted)
    write_plan(plan)
    assert order == [*NAMES[1:], "ensemble.dag"]


def test_file_system_may_lack_links(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    def no_link(*_: object, **__: bool) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    write_plan(plan)
    assert contents(plan) == planned(plan)
    assert listing(plan.request.directory) == sorted(NAMES)
    assert os.access(plan.request.directory / "nap.sh", os.X_OK)
    assert "is there already" in refusal(again(plan))

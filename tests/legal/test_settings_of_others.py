"""A ``metlmon.toml`` that came with the dagdir is untrusted: whatever it contains, it is read in
bounded time, and never stops a user who may not edit it."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from metlmon.config.loader import KEYS, load_settings
from metlmon.errors import InputError
from tests.support.dagdir_builder import NODE, Dagdir, log_of

JUDGED = {
    "tz": "a zone by name; shown by config with its line",
    "train_node": "a pattern with a time limit; of names of bounded length",
    "side_node": "likewise",
    "checkpoint_codes": "numbers",
    "read_only": "takes away, never gives: a user's true stays",
    "site": "patterns of hosts, as a shell's",
    "site_aliases": "names",
    "gpu_aliases": "names",
    "label": "names and patterns of runs, as a shell's",
    "metrics": "places below the dagdir, names",
    "keys": "refused but in the user's own file",
    "notify": "a command and a URL: refused but in the user's own file, owned by that user",
    "command": "a command: refused but in the user's own file, owned by that user",
    "tracking": "an address and a token: refused but in the user's own file, owned by that user",
    "columns": "names of columns",
    "advisor": "names and numbers: they limit plans, which are applied after a confirmation",
    "metric": "places below the dagdir, patterns with a time limit",
}
"""Every key that a dagdir can set, and why that does no harm. None names a command, a template, a
trainer or a place to write."""


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", log_of(7))
    return dagdir


def refused(dagdir: Dagdir) -> str:
    with pytest.raises(InputError) as raised:
        load_settings(dagdir.path)
    return str(raised.value)


def test_every_key_is_classified() -> None:
    assert set(JUDGED) == set(KEYS)


# --- kinds of files -------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/etc/passwd", "/dev/zero", "../outside.toml", "/proc/kmsg"])
def test_link_out_of_the_dagdir_is_refused(dagdir: Dagdir, target: str) -> None:
    (dagdir.path.parent / "outside.toml").write_text('tz = "UTC"\n')
    (dagdir.path / "metlmon.toml").symlink_to(target)
    assert "is a link out of this directory, not followed" in refused(dagdir)


def test_trusted_links_are_followed(dagdir: Dagdir, user: Path) -> None:
    """Inside the dagdir, and the user's own wherever it leads."""
    dagdir.write("mine.toml", "checkpoint_codes = [85]\n")
    (dagdir.path / "metlmon.toml").symlink_to("mine.toml")
    assert load_settings(dagdir.path).checkpoint_codes == {85}
    (dagdir.path.parent / "dotfiles.toml").write_text("read_only = true\n")
    user.symlink_to(dagdir.path.parent / "dotfiles.toml")
    assert load_settings(dagdir.path).read_only


def test_broken_link_is_ignored(dagdir: Dagdir) -> None:
    (dagdir.path / "metlmon.toml").symlink_to("gone")
    assert load_settings(dagdir.path).zone is None


def test_special_and_huge_files_are_refused(dagdir: Dagdir) -> None:
    path = dagdir.path / "metlmon.toml"
    os.mkfifo(path)
    assert "cannot be read: it is not a regular file" in refused(dagdir)
    path.unlink()
    path.mkdir()
    assert "cannot be read: it is not a regular file" in refused(dagdir)
    path.rmdir()
    path.touch()
    os.truncate(path, 1 << 30)
    assert "larger than 256,000 bytes" in refused(dagdir)


# --- contents -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "output_of"),
    [
        ("x = " + "[" * 50_000, "too deep to read"),
        ("a." * 50_000 + "a = 1", "more than 500 dots in one line (line 1)"),
        ("a." * 499 + "a = 1", "no setting is called 'a'"),
        ("x = " + "9" * 5000, "not valid TOML"),
        ("\n".join(f"key{i} = 1" for i in range(10_000)), "99 more"),
        ("k" * 200_000 + " = 1", "no setting is called"),
        ("tz = '" + "A" * 900 + "'", "is not a time zone"),
        ("tz = '../../../../etc/passwd'", "is not a time zone"),
        ("tz = '" + "A" * 2000 + "'", "a text in quotes of at most 1000 characters"),
        ("[[site]]\nhost = 'h'\nname = 'x'\n" * 1001, "more than 1000 [[site]]"),
        ("[metrics]\nfiles = ['*/*/*/*/x']", "more than 3 folders with *: name them"),
        ("[metrics]\nfiles = ['../x']", "is not a file below the dagdir"),
        ("[[metric]]\nname='x'\nfile='/etc/passwd'\npattern='(?P<value>.)'", "below the dagdir"),
        (
            "tz = 'UTC'\ntrain_node = '^(?P<run>(a{999}){999})-(?P<epoch>.)$'",
            "train_node repeats its parts more than 10,000 times (line 2)",
        ),
    ],
    ids=lambda each: each[:20].encode("unicode_escape").decode(),
)
def test_dangerous_values_are_refused(dagdir: Dagdir, text: str, output_of: str) -> None:
    dagdir.write("metlmon.toml", text)
    result = refused(dagdir)
    assert output_of in result
    assert len(result) < 1000


@pytest.mark.parametrize("epoch", [r"\S*", r"[^-]*", r"\d*?"])
def test_pattern_may_find_no_number(dagdir: Dagdir, epoch: str) -> None:
    """It may find any text as an epoch; then the node belongs to none."""
    dagdir.write("metlmon.toml", f"train_node = '^(?P<run>run\\d)-(?P<epoch>{epoch})'")
    dagdir.write("run.dag", f"JOB {NODE} t.sub\nJOB run0-x t.sub\nJOB run0-\u00b2 t.sub\n")
    reader = dagdir.reader(live=False, settings=load_settings(dagdir.path))
    assert not reader.snapshot_builder().status().runs


def test_mismatched_zone_is_reported(dagdir: Dagdir) -> None:
    """A file of DAGMan's states the access point's time and UTC: 08:15 is 13:15 UTC."""
    output = {}
    for zone in ("America/Chicago", "Asia/Tokyo"):
        dagdir.write("metlmon.toml", f'tz = "{zone}"\n')
        reader = dagdir.reader(live=False, settings=load_settings(dagdir.path))
        reader.ensemble.clock.observe(datetime(2026, 5, 4, 8, 15), 1777900500.0)
        warnings = reader.snapshot_builder().status().warnings
        output[zone] = [each.text for each in warnings if each.kind == "time-zone"]
    assert output["America/Chicago"] == []
    (result,) = output["Asia/Tokyo"]
    assert result == (
        "the zone Asia/Tokyo does not fit: DAGMan's files state UTC-05:00 on 2026-05-04; "
        "mend tz, or --tz"
    )


# --- ownership ------------------------------------------------------------------------------


def given_away(dagdir: Dagdir, text: str) -> list[tuple[int | None, str]]:
    """The warnings about the settings, where the file belongs to another user."""
    if os.geteuid() != 0:
        pytest.skip("only root gives files to others")
    os.chown(dagdir.write("metlmon.toml", text), 4242, 4242)
    reader = dagdir.reader(live=False, settings=load_settings(dagdir.path))
    result = reader.snapshot_builder().status().warnings
    return [(each.line, each.text) for each in result if each.kind == "settings"]


def test_settings_of_another_user_are_reported(dagdir: Dagdir) -> None:
    (result,) = given_away(dagdir, 'tz = "Asia/Tokyo"\n[[label]]\nname = "x"\nruns = ["y"]\n')
    assert result == (None, "somebody else's settings hold here: label, tz; see metlmon config")


def test_errors_in_settings_of_another_user_are_skipped(dagdir: Dagdir) -> None:
    held, wrong = given_away(dagdir, "checkpoint_codes = [85]\ntrain_node = '(a{999}){999}'\n")
    assert "checkpoint_codes" in held[1]
    assert wrong[0] == 2
    assert "left out: train_node repeats its parts" in wrong[1]
    assert load_settings(dagdir.path).checkpoint_codes == {85}


NOTIFY = '[notify]\ncommand = ["touch", "/tmp/x"]\nwebhook = "https://example.org/hook"\n'


def test_dagdir_cannot_set_commands_or_urls(dagdir: Dagdir) -> None:
    dagdir.write("metlmon.toml", NOTIFY)
    assert "[notify] belongs to your own metlmon.toml (line 1)" in refused(dagdir)
    (warning,) = given_away(dagdir, NOTIFY)
    assert "left out: [notify] belongs to your own metlmon.toml" in warning[1]
    assert not load_settings(dagdir.path).notify.configured


def test_settings_writable_by_others_run_no_command(dagdir: Dagdir, user: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files to others")
    user.write_text(NOTIFY)
    assert load_settings(dagdir.path).notify.configured
    os.chown(user, 4242, 4242)
    assert "this file belongs to another user (line 1)" in refused(dagdir)

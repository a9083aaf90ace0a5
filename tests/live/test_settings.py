"""``metlmon.toml``: what can be set, which file wins, and a sentence for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.live.errors import InputError
from metlmon.live.settings import load_settings


@pytest.fixture(name="user")
def _user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration file; not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "metlmon").mkdir(parents=True)
    return tmp_path / "config" / "metlmon" / "metlmon.toml"


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path, user: Path) -> Path:
    (tmp_path / "ensemble").mkdir()
    return tmp_path / "ensemble"


WHOLE = r"""
tz = "America/Chicago"
train_node = '^(?P<run>fold\d+)_step(?P<epoch>\d+)$'
side_node = '^(?P<run>fold\d+)_check(?P<epoch>\d+)$'
checkpoint_codes = [85, 12]

[[site]]
host = "*.example.edu"
name = "example"

[[site]]
host = "gpu2*"
name = "lab"
"""


def test_nothing_is_set(dagdir: Path) -> None:
    settings = load_settings(dagdir)
    assert settings.zone is None
    assert settings.sites == ()
    assert settings.train_node.match("run0-train_epoch12")


def test_everything_that_can_be_set(dagdir: Path) -> None:
    (dagdir / "metlmon.toml").write_text(WHOLE)
    settings = load_settings(dagdir)
    assert str(settings.zone) == "America/Chicago"
    assert settings.checkpoint_codes == {85, 12}
    assert settings.sites == (("*.example.edu", "example"), ("gpu2*", "lab"))
    match = settings.train_node.match("fold3_step07")
    assert match is not None
    assert match.groupdict() == {"run": "fold3", "epoch": "07"}
    assert settings.side_node.match("fold3_check07")


def test_the_dagdirs_settings_come_over_the_users(dagdir: Path, user: Path) -> None:
    user.write_text('tz = "Europe/Berlin"\ncheckpoint_codes = [1]\n[[site]]\nhost="*"\nname="u"\n')
    (dagdir / "metlmon.toml").write_text(
        'tz = "America/Chicago"\n[[site]]\nhost = "*"\nname = "d"\n'
    )
    settings = load_settings(dagdir)
    assert str(settings.zone) == "America/Chicago"
    assert settings.checkpoint_codes == {1}
    assert settings.sites == (("*", "d"), ("*", "u"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tz = ", "not valid TOML"),
        ('zone = "UTC"', "no setting is called 'zone'; there are: "),
        ('tz = "Mars/Olympus"', "'Mars/Olympus' is no time zone; give one such as"),
        ('tz = "../../etc/passwd"', "is no time zone"),
        ("tz = 5", "tz is a text in quotes"),
        ("train_node = '('", "train_node is no valid pattern"),
        ("train_node = '^x$'", "train_node needs the groups"),
        ("side_node = 7", "side_node is a text in quotes"),
        ("checkpoint_codes = 85", "checkpoint_codes is a list of whole numbers"),
        ('checkpoint_codes = ["85"]', "checkpoint_codes is a list of whole numbers"),
        ("checkpoint_codes = [true]", "checkpoint_codes is a list of whole numbers"),
        ('site = "aws"', "each [[site]] needs host"),
        ('[[site]]\nhost = "*.edu"', "each [[site]] needs host"),
        ("site = [1]", "each [[site]] needs host"),
    ],
)
def test_a_sentence_for_every_mistake(dagdir: Path, text: str, sentence: str) -> None:
    (dagdir / "metlmon.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings(dagdir)
    said = str(caught.value)
    assert sentence in said
    assert "\n" not in said
    assert str(dagdir / "metlmon.toml") in said


def test_a_file_that_cannot_be_read(dagdir: Path) -> None:
    (dagdir / "metlmon.toml").write_bytes(b"tz = \xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        load_settings(dagdir)
    (dagdir / "metlmon.toml").unlink()
    (dagdir / "metlmon.toml").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load_settings(dagdir)


def test_the_dagdir_may_not_be_there(tmp_path: Path, user: Path) -> None:
    assert load_settings(tmp_path / "nowhere").zone is None
    (tmp_path / "a_file").write_text("")
    assert load_settings(tmp_path / "a_file").zone is None

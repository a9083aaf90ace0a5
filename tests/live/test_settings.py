"""``metlmon.toml``: its keys, the precedence of files, and a sentence for every error."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.cli.commands.help import GUIDE, sections
from metlmon.config.loader import KEYS, load_configuration, load_settings
from metlmon.config.settings import Label, MetricSettings
from metlmon.config.toml_file import key_lines
from metlmon.errors import InputError


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path, user: Path) -> Path:
    (tmp_path / "ensemble").mkdir()
    return tmp_path / "ensemble"


def test_examples_of_the_guide_set_every_key(dagdir: Path, user: Path) -> None:
    guide = sections(GUIDE.read_text())
    texts = (guide[title] for title in ("Settings", "Keys", "Notifications", "Trackers"))
    blocks = (block for text in texts for block in text.split("```toml")[1:])
    example = "".join(block.split("```")[0] for block in blocks)
    # As the user's file, where [notify] belongs.
    user.write_text(example)
    assert load_configuration(dagdir).problems == ()
    assert {where[0] for where in key_lines(example)} == set(KEYS)
    settings = load_settings(dagdir)
    assert str(settings.zone) == "America/Chicago"
    assert settings.checkpoint_codes == {85}
    assert settings.sites == (("*.gpu.example.edu", "example"),)
    for pattern, kind in ((settings.train_node, "train"), (settings.side_node, "eval")):
        match = pattern.match(f"fold3-{kind}_epoch07")
        assert match.groupdict() == {"run": "fold3", "epoch": "07"}
    assert settings.site_aliases == (("SDSC-PRP-CE1", "NRP"),)
    assert settings.gpu_aliases == (("Tesla V100-SXM2-32GB", "V100-SXM2"),)
    (cohort,) = settings.labels
    assert cohort.name == "heterogeneous"
    assert cohort.matches("hetero12", None)
    assert cohort.matches("fold1", "81ff53dd-1637")
    assert not cohort.matches("fold1", "173f47c3")
    assert settings.metrics.files == ("*/training_logs/{uuid}",)
    (metric,) = settings.metrics.patterns
    assert (metric.name, metric.file) == ("accuracy", "out")
    result = metric.pattern.search("epoch 3: accuracy 0.91")
    assert result.groupdict() == {"epoch": "3", "value": "0.91"}


def test_each_kind_of_setting_is_merged(dagdir: Path, user: Path) -> None:
    user.write_text(
        'train_node = "(?P<run>u)(?P<epoch>1)"\nread_only = true\n'
        '[site_aliases]\nA = "user"\nB = "user"\n[gpu_aliases]\nG = "user"\n'
        '[metrics]\nprimary = "user"\ngoal = "max"\n'
        '[columns]\noverview = ["best"]\nsites = ["badput"]\n'
        '[[label]]\nname = "user"\nruns = ["*"]\n'
        '[[metric]]\nname = "user"\nfile = "out"\npattern = "(?P<value>1)"\n'
    )
    (dagdir / "metlmon.toml").write_text(
        'read_only = false\n[site_aliases]\nB = "dagdir"\n[metrics]\nprimary = "dagdir"\n'
        '[columns]\noverview = ["state"]\n'
        '[[label]]\nname = "dagdir"\nruns = ["run1"]\n'
        '[[metric]]\nname = "dagdir"\nfile = "x"\npattern = "(?P<value>1)"\n'
    )
    settings = load_settings(dagdir)
    assert settings.train_node.pattern == "(?P<run>u)(?P<epoch>1)"
    assert settings.read_only, "no other file takes it back"
    assert dict(settings.site_aliases) == {"A": "user", "B": "dagdir"}
    assert settings.gpu_aliases == (("G", "user"),)
    assert settings.columns_of("overview") == ("state",)
    assert settings.columns_of("sites") == ("badput",)
    assert settings.columns_of("curves") == ()
    assert (settings.metrics.primary, settings.metrics.goal) == ("dagdir", "max")
    assert load_settings(dagdir / "metlmon.toml").columns == settings.columns, "of a file there"
    assert settings.metrics.files == MetricSettings().files
    assert settings.labels == (Label("dagdir", ("run1",)), Label("user", ("*",)))
    assert [pattern.name for pattern in settings.metrics.patterns] == ["dagdir", "user"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tz = ", "not valid TOML"),
        ('zone = "UTC"', "no setting is called 'zone'; there are: "),
        ('tz = "Mars/Olympus"', "'Mars/Olympus' is not a time zone; give one such as"),
        ('tz = "../../etc/passwd"', "is not a time zone"),
        ("tz = 5", "tz is a text in quotes"),
        ("train_node = '('", "train_node is not a valid pattern"),
        ("train_node = '^x$'", "train_node needs the groups"),
        ("side_node = 7", "side_node is a text in quotes"),
        ("checkpoint_codes = 85", "checkpoint_codes is a list of whole numbers"),
        ('checkpoint_codes = ["85"]', "checkpoint_codes is a list of whole numbers"),
        ("checkpoint_codes = [true]", "checkpoint_codes is a list of whole numbers"),
        ('site = "aws"', "each [[site]] needs host"),
        ('[[site]]\nhost = "*.edu"', "each [[site]] needs host"),
        ("site = [1]", "each [[site]] needs host"),
        ("[[site]]\nhost = 1\nname = 'x'", "site.host is a text in quotes"),
        ("checkpoint_code = [1]", "did you mean 'checkpoint_codes'? there are: "),
        ('tz = "America/Chicgo"', "is not a time zone; did you mean America/Chicago?"),
        (
            "[[site]]\nhost='a'\nname='b'\nhots='c'",
            "in site is called 'hots'; did you mean 'host'?",
        ),
        ("site_aliases = 1", "[site_aliases] is a table"),
        ("[gpu_aliases]\nA40 = 40", "gpu_aliases.A40 is a text in quotes"),
        ("columns = ['best']", "[columns] is a table: overview = "),
        ("[columns]\noverview = 'best'", "columns.overview is a list of texts"),
        ("[[label]]\nname = 'x'", "each [[label]] needs name"),
        ("[[label]]\nname = 'x'\nruns = 'run1'", "label.runs is a list of texts"),
        ("[[label]]\nname = 1\nruns = []", "label.name is a text in quotes"),
        ("metrics = 'val_loss'", "metrics is a table"),
        ("[metrics]\nfile = 'x'", "in metrics is called 'file'; did you mean 'files'?"),
        ("[metrics]\ngoal = 'least'", 'metrics.goal is "min" or "max"'),
        ("[metrics]\ngoal = ['min']", 'metrics.goal is "min" or "max"'),
        ("[metrics]\nfiles = ['/etc']", "metrics.files: '/etc' is not a file below the dagdir"),
        ("[metrics]\nfiles = ['a/../../b']", "is not a file below the dagdir"),
        ("[metrics]\nfiles = ['{uid}']", "{uid} is not known; there are {run} and {uuid}"),
        ("[metrics]\nprimary = 1", "metrics.primary is a text in quotes"),
        ("[[metric]]\nname = 'x'", "each [[metric]] needs name"),
        (
            "[[metric]]\nname = 'x'\nfile = 'out'\npattern = 'x'",
            "metric.pattern needs the group (?P<value>…)",
        ),
        (
            "[[metric]]\nname = 'x'\nfile = 'out'\npattern = '('",
            "metric.pattern is not a valid pattern",
        ),
    ],
)
def test_every_error_is_one_sentence(dagdir: Path, text: str, sentence: str) -> None:
    (dagdir / "metlmon.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings(dagdir)
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message
    assert str(dagdir / "metlmon.toml") in message


def test_unreadable_file_is_reported(dagdir: Path) -> None:
    (dagdir / "metlmon.toml").write_bytes(b"tz = \xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        load_settings(dagdir)
    (dagdir / "metlmon.toml").unlink()
    (dagdir / "metlmon.toml").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load_settings(dagdir)


def test_dagdir_may_be_missing(tmp_path: Path, user: Path) -> None:
    assert load_settings(tmp_path / "nowhere").zone is None
    (tmp_path / "a_file").write_text("")
    assert load_settings(tmp_path / "a_file").zone is None


def test_every_error_has_its_line_and_key(dagdir: Path) -> None:
    (dagdir / "metlmon.toml").write_text(
        "# mine\ntz = 5\n\n[[site]]\nhost = '*.edu'\nname = 'edu'\n\n"
        "[[site]]\nhost = '*.org'\nnam = 'org'\n\n"
        "[metrics]\ngoal = 'least'\n\n[gpu_aliases]\n'RTX \"A\"' = 1\n"
    )
    result = [(each.line, each.key) for each in load_configuration(dagdir).problems]
    expected = [(2, "tz"), (8, "site"), (10, "site.nam"), (13, "metrics.goal")]
    assert result == [*expected, (16, 'gpu_aliases.RTX "A"')]
    with pytest.raises(InputError, match=r"\(line 2\); 4 more: metlmon config validate$"):
        load_settings(dagdir)


def test_valid_settings_still_apply(dagdir: Path) -> None:
    (dagdir / "metlmon.toml").write_text(
        "tz = 5\ncheckpoint_codes = [85]\n[[site]]\nhost = 'a'\nname = 'b'\n[[site]]\nhost = 'c'\n"
    )
    found = load_configuration(dagdir)
    assert len(found.problems) == 2
    assert found.settings.checkpoint_codes == {85}
    assert found.settings.sites == (("a", "b"),)

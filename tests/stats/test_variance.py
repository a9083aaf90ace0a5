"""The shares of GPU models, sites, hosts and runs in the variance of epoch times."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from statistics import mean, median, variance

import pytest

from metlmon.eventlog.events import GpuDevice
from metlmon.stats.variance import Observation, choice, epoch_variation, variance_shares
from metlmon.tables.variance import percents, sentences
from metlmon.text.spans import text
from tests.conftest import SHARED
from tests.generated.effects import Effects, planted
from tests.support.commands import Captured, json_output, text_output
from tests.support.records import read_dagdir


def test_intervals_contain_the_planted_shares() -> None:
    # Hundreds of seeds of more sizes, by effect, are in tests/bench/README.md.
    held = []
    for deviations in ((0.5, 0.1, 0.05, 0.05, 0.1), (0.1, 0.1, 0.05, 0.4, 0.1), (0.15,) * 5):
        effects = Effects(*deviations)
        for seed in range(2):
            found = epoch_variation(planted(effects, seed).ledger).shares
            assert sum(each.share or 0.0 for each in found) == pytest.approx(1)
            held += [(e.lower or 0) <= effects.shares[e.effect] <= (e.upper or 0) for e in found]
    assert mean(held) >= 0.75


def test_balanced_design_agrees_with_anova() -> None:
    rng = Random(8)
    models, sites, hosts, epochs = range(6), range(5), range(4), range(6)
    of_site: dict[tuple[int, int], float] = {}
    observed = []
    for model in models:
        model_effect = rng.gauss(0, 0.5)
        for site in sites:
            of_site[model, site] = model_effect + rng.gauss(0, 0.3)
            for host in hosts:
                base = of_site[model, site] + rng.gauss(0, 0.2)
                place = (str(model), str(site), str(host))
                observed += [Observation(base + rng.gauss(0, 0.1), place, "run") for _ in epochs]
    values = {
        place: [o.value for o in observed if o.place == place]
        for place in {o.place for o in observed}
    }
    host_means = {place: mean(each) for place, each in values.items()}
    site_means = {
        (str(m), str(s)): mean(host_means[str(m), str(s), str(h)] for h in hosts)
        for m, s in product(models, sites)
    }
    model_means = [mean(site_means[str(m), str(s)] for s in sites) for m in models]
    rest = mean(variance(each) for each in values.values())
    between_hosts = mean(
        variance([host_means[str(m), str(s), str(h)] for h in hosts])
        for m, s in product(models, sites)
    )
    between_sites = mean(variance([site_means[str(m), str(s)] for s in sites]) for m in models)
    expected = {
        "gpu": variance(model_means) - between_sites / len(sites),
        "site": between_sites - between_hosts / len(hosts),
        "host": between_hosts - rest / len(epochs),
        "rest": rest,
    }
    shares, spread, _ = variance_shares(tuple(observed))
    assert spread == pytest.approx(sum(expected.values()) ** 0.5, rel=1e-3)
    for each in shares:
        if each.effect == "run":
            assert each.share is None
            assert each.missing == "only one run"
        else:
            share = expected[each.effect] / sum(expected.values())
            assert each.share == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize(
    ("effects", "missing", "without"),
    [
        (
            Effects(runs=3, epochs=3),
            "9 comparable, of at least 10",
            {"gpu", "site", "host", "run", "rest"},
        ),
        (Effects(gpus=1), "only one GPU model", {"gpu"}),
        (Effects(sites=1), "no GPU model has two sites", {"site"}),
        (Effects(hosts=1), "no site has two hosts", {"host"}),
        (Effects(hosts=200, runs=4, epochs=6), "too few epochs of one host", {"host"}),
        (Effects(runs=1, epochs=60), "only one run", {"run"}),
        (Effects(gpus=1, sites=1, hosts=1), "no site has two hosts", {"gpu", "site", "host"}),
        (Effects(0, 0, 0, 0, 0), "same time", {"gpu", "site", "host", "run", "rest"}),
    ],
)
def test_confounded_effects_have_no_share(
    effects: Effects, missing: str, without: set[str]
) -> None:
    variation = epoch_variation(planted(effects, 1).ledger)
    assert {each.effect for each in variation.shares if each.share is None} == without
    assert missing in text(sentences(variation)[0])


def test_longer_epochs_make_no_site_slow() -> None:
    """METL's third and fourth epochs took two and three times as long, each at few hosts."""
    log = SHARED / "examples" / "metl-aws"
    if not log.exists():
        pytest.skip(f"no {log.name} here")
    variation = epoch_variation(read_dagdir(log).ledger())
    host = next(each for each in variation.shares if each.effect == "host")
    assert (host.share or 0) > 0.5
    assert (variation.between_numbers or 0) > 0.5
    assert variation.choose_by is None
    assert "choose by" not in text(sentences(variation)[0])
    unaffected = epoch_variation(planted(Effects(), 1).ledger)
    assert (unaffected.between_numbers or 0) < 0.1


def test_shares_in_the_sentence_sum_to_100(tmp_path: Path, capsys: Captured) -> None:
    made = planted(Effects(gpu=0.6, site=0.05, host=0.05, runs=8, epochs=12), seed=0)
    variation = epoch_variation(made.ledger)
    whole = percents(variation)
    assert 99 <= sum(int(each.strip("<> %")) for each in whole.values() if "<" not in each) <= 100
    made.write(tmp_path)
    printed = text_output("sites", capsys, tmp_path)
    for effect, name in (("gpu", "GPU model"), ("site", "site"), ("rest", "rest")):
        assert f"{name} {whole[effect]}" in printed  # type: ignore[index]
    assert ("choose by GPU model" in printed) == (variation.choose_by == "gpu")
    shares = json_output("sites", capsys, tmp_path)["variation"]["shares"]
    assert [each["share"] for each in shares] == pytest.approx([e.share for e in variation.shares])


def test_hosts_of_single_runs_are_not_compared() -> None:
    rng = Random(3)
    observed = [
        Observation(10 + run / 5 + rng.gauss(0, 0.1), ("gpu", "site", f"host{run}"), f"run{run}")
        for run, _ in product(range(6), range(8))
    ]
    shares, spread, _ = variance_shares(tuple(observed))
    assert [each.effect for each in shares if each.share is None] == ["gpu", "site", "run"]
    assert choice(shares, spread) is None


def test_explanations_of_a_site_are_read_from_its_log(tmp_path: Path) -> None:
    made = planted(Effects(runs=4, epochs=6), seed=2)
    made.write(tmp_path)
    for place in epoch_variation(read_dagdir(tmp_path).ledger()).places:
        here = [e for e in made.trained if (e.gpu, e.site) == (place.gpu, place.site)]
        assert place.epochs == len(here)
        assert place.cpus.median == pytest.approx(median(e.usage.cpus or 0.0 for e in here))
        assert place.gpus_used.median == pytest.approx(median(e.usage.gpus or 0.0 for e in here))
        assert place.transfer.median == 240
        assert place.devices == (GpuDevice(8.6, 12.4, 1740.0),)

"""Profiles of pools: what an epoch costs there, how long it waits, how often it is lost.

A pool is a site with one GPU model, and an annex where there is one. Profiles are learned from
observations alone, so that logs, simulations and recorded decisions use the same code.

The mean of a pool with few samples is shrunk towards that of related pools (hours: the same GPU
model elsewhere; wait and transfer: the other pools of the site), and this towards that of all
pools; each weight is the inverse of a relative variance (empirical Bayes; A. Gelman et al.,
Bayesian Data Analysis, chapter 5). Hours of unfinished and lost executions are censored, and
means are Kaplan–Meier means. Waits are so skewed that the exponential mean, all hours waited per
start, was closer to the truth on recorded ensembles. Intervals are those of a gamma distribution.
The loss has a Beta posterior.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from operator import attrgetter
from statistics import fmean
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from metlmon.model.sites import ANY_SITE_TARGETS, POOL_TARGETS, normalize_name
from metlmon.model.states import EVICTIONS, Outcome, State
from metlmon.snapshot.records import HOUR, Execution, Ledger, job_key
from metlmon.stats.black_holes import (
    MIN_LOSSES,
    beta_quantile,
    expected_loss,
    is_black_hole,
)
from metlmon.stats.causes import failures_of_runs, is_of_place
from metlmon.stats.simulation import KaplanMeier, Lifetime, gamma_quantile
from metlmon.stats.slots import SlotUse, slot_end
from metlmon.stats.windows import ALL, TimeWindow
from metlmon.text.formatting import count, share, site_list
from metlmon.text.record_json import Flat, Nullable

T = TypeVar("T", float, datetime)


class ResourcePool(Struct, frozen=True, order=True):
    """A site with one GPU model, and the annex of its slots; empty if unknown or without an annex.

    ``gpus_per_job``: 1 if unknown. A job with two GPUs takes half as long, and waits longer.
    """

    site: Nullable[str]
    gpu: Nullable[str] = ""
    annex: Nullable[str] = ""
    gpus_per_job: int = 1

    @property
    def model(self) -> str:
        """``NVIDIA A40``, ``NVIDIA A40 ×2``."""
        return self.gpu if self.gpus_per_job == 1 else f"{self.gpu} ×{self.gpus_per_job}"

    @property
    def place(self) -> ResourcePool:
        """The slots, regardless of how many GPUs a job takes."""
        return replace(self, gpus_per_job=1)


def pool_of(entry: Execution) -> ResourcePool:
    """The pool in which an execution ran."""
    gpus = max(1, entry.gpus or 1)
    return ResourcePool(entry.site or "", entry.gpu or "", entry.annex or "", gpus)


class Observation(Struct, frozen=True, kw_only=True):
    """One execution of an epoch, or one wait that has not ended.

    ``wait``, ``transfer``: hours before the start. ``hours``: from the start to the end, or to
    ``seen`` if it is running. ``finished``: whether the epoch completed; None if it is running or
    ended in a way that says nothing about the pool (removed by its user: ``stopped``). ``started``:
    False for a wait that had not ended at ``seen``: then ``wait`` is a lower bound. ``gpus``: of
    the execution. ``hidden``: another execution may have trained the epoch, so that ``hours`` do
    not measure one. ``evicted``: possibly together with all others there. ``stored``: a checkpoint
    preserved its work, and another execution continued it; ``carried``: hours that this one
    continued. ``slot_hours``: hours in its slot, if it was disconnected until its end; None: all.
    ``start``: as logged, since the clock may have changed between it and ``seen``.
    """

    pool: ResourcePool
    seen: datetime
    hours: float = 0.0
    wait: float | None = None
    transfer: float | None = None
    finished: bool | None = None
    started: bool = True
    gpus: int = 1
    stopped: bool = False
    hidden: bool = False
    evicted: bool = False
    stored: bool = False
    carried: float = 0.0
    slot_hours: float | None = None
    start: datetime | None = None

    @property
    def began(self) -> datetime:
        """When it started; without ``start`` by ``seen``."""
        return self.start or self.seen - timedelta(hours=self.hours)


class ProfileFigure(Struct, frozen=True):
    """A figure of a pool: its expected value, and the interval that holds it in 80 % of cases.

    ``samples``: observations at this pool; ``censored``: those that are only lower bounds.
    ``borrowed``: what the value was shrunk towards ("NVIDIA A100-SXM4-40GB elsewhere", "all
    pools"); empty if the samples suffice.
    """

    value: float
    low: float
    high: float
    samples: int
    censored: int = 0
    borrowed: Nullable[str] = ""


class PoolProfile(Struct, frozen=True, kw_only=True):
    """What is known of a pool at ``as_of``: hours by kind, and the probability of a loss.

    ``hours_per_epoch``: of an epoch that completes; ``lost_hours``: of an execution that does not.
    A figure is None if nothing is known of any pool. ``loss``: probability that an execution does
    not complete. ``executions``, ``epochs``, ``running``: numbers of executions, completed epochs
    and running executions. ``slots``: the maximum number seen running at once. ``excluded``: why no
    epoch should go there, else empty; ``probe_at``: when one epoch should try it again, None while
    one does. ``doubtful``: it has completed no epoch and lost some: from ``probe_at``, one epoch at
    a time should try it, until one completes or the pool is excluded.
    """

    pool: Flat[ResourcePool]
    hours_per_epoch: ProfileFigure | None
    wait_hours: ProfileFigure | None
    transfer_hours: ProfileFigure | None
    loss: ProfileFigure
    lost_hours: float
    gpus: float
    executions: int
    epochs: int
    running: int
    slots: int
    excluded: Nullable[str] = ""
    probe_at: datetime | None = None
    doubtful: bool = False


class FigurePrior(Struct, frozen=True):
    """Relative standard deviations of a figure: of executions at one pool, and of pools' means.

    ``noise``: of executions, before there are samples; ``related``: of the means of related pools;
    ``others``: of the means of groups of related pools. ``group``: what related pools share.
    """

    noise: float
    related: float
    others: float
    group: Callable[[ResourcePool], str]
    label: str


HOURS_PRIOR: Final = FigurePrior(0.25, 0.2, 0.55, attrgetter("model"), "{} elsewhere")
WAIT_PRIOR: Final = FigurePrior(1.0, 0.15, 0.5, attrgetter("site"), "other pools of {}")
TRANSFER_PRIOR: Final = FigurePrior(0.5, 0.15, 0.5, attrgetter("site"), "other pools of {}")
"""As in a recorded ensemble of 800 executions at eleven pools (``fixtures/first-round``)."""

NOISE_SAMPLES: Final = 5
"""Weight of the prior ``noise``, in samples."""

LOSS_SAMPLES: Final = 4.0
"""Weight of the loss elsewhere as a prior, in executions: few, since single pools differ widely."""

LOST_HOURS_SAMPLES: Final = 2.0
"""Weight of the hours lost elsewhere, in lost executions."""

ENOUGH_SAMPLES: Final = 10
"""Number of own samples from which a figure borrows nothing: waits of pools differ by a factor of a
hundred, so that the mean of the others outweighs any number of short ones."""

MIN_BORROWED: Final = 0.1
"""Relative change of a figure by its prior from which ``borrowed`` reports it."""

Z_80: Final = 1.2816
"""Standard score of the bounds of an 80 % interval."""

TOGETHER: Final = timedelta(minutes=5)
"""Evictions of executions that ran together, within that time, are one event; so are starts of jobs
that waited together for longer than :data:`LONG_WAIT`."""

LONG_WAIT: Final = 1.0
"""Hours; shorter waits are due to matchmaking, separately for each job."""

DOUBTFUL_LOSSES: Final = 2
"""Losses from which a pool without a completed epoch is doubtful; one happens anywhere."""

PROBE_EPOCHS: Final = 4.0
"""Time until a black hole is tried again, in epochs; further losses double it, at most twice."""

MAX_DOUBLINGS: Final = 2

ALL_POOLS: Final = "all pools"


def learn_profiles(
    observations: Iterable[Observation], as_of: datetime
) -> Mapping[ResourcePool, PoolProfile]:
    """The profiles of all observed pools, from what was seen up to ``as_of``.

    An observation that ends later counts only as far as it was known at ``as_of``.
    """
    by_pool: defaultdict[ResourcePool, list[Observation]] = defaultdict(list)
    for observation in observations:
        before = observation if observation.seen <= as_of else _cut(observation, as_of)
        if before is not None:
            by_pool[before.pool].append(before)
    histories = {pool: _PoolHistory(by_pool[pool]) for pool in sorted(by_pool)}
    hours = _shrink({pool: each.hours for pool, each in histories.items()}, HOURS_PRIOR)
    wait = _shrink({pool: each.wait for pool, each in histories.items()}, WAIT_PRIOR)
    transfer = _shrink({pool: each.transfer for pool, each in histories.items()}, TRANSFER_PRIOR)
    exclusions = _Exclusions(histories)
    found = {pool: exclusions.of(pool, hours[pool]) for pool in histories}
    # Black holes do not show what others lose.
    examples = {pool: each for pool, each in histories.items() if not found[pool][0]}
    lost = sum(each.lost for each in examples.values())
    lost_mean = sum(each.lost_hours for each in examples.values()) / lost if lost else None
    profiles = {}
    for pool, history in histories.items():
        own_hours = hours[pool]
        prior = own_hours.value / 2 if own_hours is not None else 0.0
        prior = prior if lost_mean is None else lost_mean
        excluded, probe_at = found[pool]
        profiles[pool] = PoolProfile(
            pool=pool,
            hours_per_epoch=own_hours,
            wait_hours=wait[pool],
            transfer_hours=transfer[pool],
            loss=_loss(pool, history, examples),
            lost_hours=(history.lost_hours + LOST_HOURS_SAMPLES * prior)
            / (history.lost + LOST_HOURS_SAMPLES),
            gpus=history.gpus,
            executions=history.starts,
            epochs=history.epochs,
            running=history.running,
            slots=history.slots(),
            excluded=excluded,
            probe_at=probe_at,
            doubtful=not excluded and exclusions.is_doubtful(pool),
        )
    return profiles


def _cut(observation: Observation, as_of: datetime) -> Observation | None:
    """The part of an observation that was known at ``as_of``; None if nothing was."""
    later = (observation.seen - as_of).total_seconds() / HOUR
    if not observation.started:
        wait = (observation.wait or 0.0) - later
        return replace(observation, seen=as_of, wait=wait) if wait > 0 else None
    if later >= observation.hours:
        return None
    return replace(
        observation,
        seen=as_of,
        hours=observation.hours - later,
        finished=None,
        stopped=False,
        hidden=False,
        evicted=False,
        stored=False,
    )


class _Estimate(Struct):
    """Samples of one figure at one pool: their ``total``, including what censored ones add.

    ``deviations``: the sum of squared relative deviations from the mean. ``least``: the longest
    unfinished duration, if none has ended. ``observed``: the number of observations in the samples.
    """

    total: float = 0.0
    samples: int = 0
    censored: int = 0
    deviations: float = 0.0
    least: float = 0.0
    observed: int = 0


def _estimate(values: Sequence[float], total: float, censored: int = 0) -> _Estimate:
    mean = total / len(values) if values else 0.0
    deviations = sum([(value / mean - 1) ** 2 for value in values]) if mean > 0 else 0.0
    return _Estimate(total, len(values), censored, deviations, observed=len(values))


class _PoolHistory:
    """The observations of one pool, counted, with estimates from them alone."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.observations = sorted(observations, key=attrgetter("seen"))
        self.executions = [each for each in self.observations if each.started]
        self.starts = len(self.executions)
        self.epochs = sum(each.finished is True for each in self.executions)
        self.good = self.epochs + sum(each.stored for each in self.executions)
        losses = [each.hours for each in self.executions if each.finished is False]
        self.lost, self.lost_hours = len(losses), sum(losses)
        self.running = sum(each.finished is None and not each.stopped for each in self.executions)
        self.gpus = sum(each.gpus for each in self.executions) / max(1, self.starts)
        self.hours = self._hours()
        self.wait = self._wait()
        transfers = [each.transfer for each in self.executions if each.transfer is not None]
        self.transfer = _estimate(transfers, sum(transfers))

    def _hours(self) -> _Estimate:
        """Hours of completed epochs; those of all other executions are censored."""
        samples = [
            Lifetime(each.carried + each.hours, each.finished is True)
            for each in self.executions
            if not (each.hidden or each.stored)
        ]
        ended = [sample.seconds for sample in samples if sample.ended]
        curve = KaplanMeier.fit(samples)
        if curve is None:
            least = max((sample.seconds for sample in samples), default=0.0)
            return _Estimate(censored=len(samples), least=least)
        return _estimate(ended, curve.mean * len(ended), len(samples) - len(ended))

    def _wait(self) -> _Estimate:
        """Hours waited, including those of jobs that have not started.

        Jobs that waited together for hours waited for the same thing: their mean is one sample.
        """
        starts = sorted(
            (each.began, each.wait) for each in self.executions if each.wait is not None
        )
        events: list[list[float]] = []
        first: datetime | None = None
        for start, wait in starts:
            submitted = start - timedelta(hours=wait)
            is_alone = wait < LONG_WAIT or first is None or submitted >= first
            if is_alone or start - (first or start) > TOGETHER:
                events.append([])
                first = start
            events[-1].append(wait)
        waits = [fmean(event) for event in events]
        going_on = [each.wait or 0.0 for each in self.observations if not each.started]
        estimate = _estimate(waits, sum(waits) + sum(going_on), len(going_on))
        estimate.observed = len(starts)
        return estimate

    def slots(self) -> int:
        """The maximum number of concurrent executions."""
        # One that starts as another ends takes its slot.
        spans = (
            (each.began, each.seen)
            if each.slot_hours is None
            else (each.began, each.began + timedelta(hours=min(each.slot_hours, each.hours)))
            for each in self.executions
        )
        return max(min(1, self.starts), most_at_once(spans))


def most_at_once(spans: Iterable[tuple[T, T | None]]) -> int:
    """The maximum number of concurrent spans; one may begin as another ends. End None: ongoing."""
    changes: list[tuple[T, int]] = []
    for start, end in spans:
        changes.append((start, 1))
        if end is not None:
            changes.append((end, -1))
    return max(accumulate(change for _, change in sorted(changes)), default=0)


# --- shrinkage --------------------------------------------------------------------------------


class _Prior(Struct, frozen=True):
    """What other pools say about a pool: mean, relative variance, and their label."""

    mean: float
    variance: float
    label: str


def _shrink(
    estimates: Mapping[ResourcePool, _Estimate], prior: FigurePrior
) -> Mapping[ResourcePool, ProfileFigure | None]:
    """The figure of each pool, its mean shrunk towards those of others."""
    freedom = sum(max(0, each.samples - 1) for each in estimates.values())
    deviations = sum(each.deviations for each in estimates.values())
    noise = (NOISE_SAMPLES * prior.noise**2 + deviations) / (NOISE_SAMPLES + freedom)
    return {
        pool: _figure(estimate, _elsewhere(pool, estimates, prior, noise), noise)
        for pool, estimate in estimates.items()
    }


def _elsewhere(
    pool: ResourcePool,
    estimates: Mapping[ResourcePool, _Estimate],
    prior: FigurePrior,
    noise: float,
) -> _Prior | None:
    """The expected mean of a pool given the means of all others; ``noise``: relative variance."""
    group = prior.group(pool)
    related = related_total = others = others_total = 0.0
    for other, estimate in estimates.items():
        if other == pool or not estimate.samples:
            continue
        mean, variance = estimate.total / estimate.samples, noise / estimate.samples
        if group and prior.group(other) == group:
            weight = 1 / (prior.related**2 + variance)
            related, related_total = related + weight, related_total + weight * mean
        else:
            weight = 1 / (prior.others**2 + variance)
            others, others_total = others + weight, others_total + weight * mean
    if not related and not others:
        return None
    weight = 1 / (prior.others**2 + 1 / others) if others else 0.0
    total = related_total + (weight * others_total / others if others else 0.0)
    precision = related + weight
    label = prior.label.format(group) if related > weight else ALL_POOLS
    return _Prior(total / precision, prior.related**2 + 1 / precision, label)


def _figure(estimate: _Estimate, prior: _Prior | None, noise: float) -> ProfileFigure | None:
    own = weight = estimate.samples / noise
    total = estimate.total / noise
    if prior is not None and estimate.observed < ENOUGH_SAMPLES:
        fading = (1 - estimate.observed / ENOUGH_SAMPLES) / prior.variance
        weight += fading
        total += prior.mean * fading
    if not weight:
        return None
    value = max(total / weight, estimate.least)
    own_value = estimate.total / estimate.samples if estimate.samples else 0.0
    is_borrowed = weight > own and abs(value - own_value) > MIN_BORROWED * own_value
    return ProfileFigure(
        value=value,
        low=value * gamma_quantile(weight, -Z_80),
        high=value * gamma_quantile(weight, Z_80),
        samples=estimate.observed,
        censored=estimate.censored,
        borrowed=prior.label if prior is not None and is_borrowed else "",
    )


# --- losses -----------------------------------------------------------------------------------


def _loss(
    pool: ResourcePool, own: _PoolHistory, examples: Mapping[ResourcePool, _PoolHistory]
) -> ProfileFigure:
    """The Beta posterior of a loss, with a prior from the site's other pools, then other sites."""
    related_good = related_lost = others_good = others_lost = 0
    for other, history in examples.items():
        if other == pool:
            continue
        if other.site == pool.site:
            related_good, related_lost = related_good + history.good, related_lost + history.lost
        else:
            others_good, others_lost = others_good + history.good, others_lost + history.lost
    others = others_good + others_lost
    related, ended = related_good + related_lost, own.good + own.lost
    # A tenth of two executions: a prior for the case that no others exist.
    elsewhere = (others_lost + 0.2) / (others + 2.0)
    expected = (LOSS_SAMPLES * elsewhere + related_lost) / (LOSS_SAMPLES + related)
    a = LOSS_SAMPLES * expected + own.lost
    b = LOSS_SAMPLES * (1 - expected) + own.good
    borrowed = ""
    is_moved = not ended or abs(a / (a + b) - own.lost / ended) > MIN_BORROWED
    if is_moved and related + others:
        is_site = related > LOSS_SAMPLES
        borrowed = WAIT_PRIOR.label.format(pool.site) if is_site else ALL_POOLS
    return ProfileFigure(
        value=a / (a + b),
        low=beta_quantile(0.1, a, b),
        high=beta_quantile(0.9, a, b),
        samples=ended,
        borrowed=borrowed,
    )


class _Losses(Struct):
    """Consecutive losses, as events that one place may have caused."""

    events: int = 0
    until: datetime | None = None


def _losses_in_row(observations: Iterable[Observation]) -> _Losses:
    """The losses since the last completed epoch, in order of their ends.

    Evictions of executions that ran together are one event, such as the restart of a machine.
    """
    row, is_eviction = _Losses(), False
    for each in observations:
        if each.finished is True or each.stored:
            row, is_eviction = _Losses(), False
        elif each.finished is False:
            with_last = (
                each.evicted
                and is_eviction
                and row.until is not None
                and each.seen - row.until < min(TOGETHER, timedelta(hours=each.hours))
            )
            row.events += not with_last
            row.until, is_eviction = each.seen, each.evicted
    return row


class _Exclusions:
    """Which pools are black holes by their consecutive losses, or by those of their site."""

    def __init__(self, histories: Mapping[ResourcePool, _PoolHistory]) -> None:
        self._histories = histories
        sites: defaultdict[tuple[str, str], list[Observation]] = defaultdict(list)
        for pool, history in histories.items():
            sites[pool.site, pool.annex] += history.executions
        self._sites = {
            site: _losses_in_row(sorted(executions, key=attrgetter("seen")))
            for site, executions in sites.items()
        }

    def of(self, pool: ResourcePool, hours: ProfileFigure | None) -> tuple[str, datetime | None]:
        """Why a pool is excluded, and when it, or a doubtful one, should be tried again.

        Empty if it is not excluded; None if it need not be tried separately.
        """
        history = self._histories[pool]
        of_site = self._sites[pool.site, pool.annex]
        reason = self._reason(
            of_site, lambda other: (other.site, other.annex) == (pool.site, pool.annex)
        )
        row = of_site
        if not reason:
            row = _losses_in_row(history.executions)
            reason = self._reason(row, lambda other: other == pool)
        if row.until is None or not (reason or self.is_doubtful(pool)):
            return "", None
        epoch = hours.value if hours is not None else history.lost_hours / max(1, history.lost)
        doublings = min(MAX_DOUBLINGS, row.events - (MIN_LOSSES if reason else DOUBTFUL_LOSSES))
        is_tried = any(
            each.finished is None and not each.stopped and each.began > row.until
            for each in history.executions
        )
        if is_tried:
            return reason, None
        epochs = PROBE_EPOCHS if reason else 1.0
        seconds = round(epochs * epoch * HOUR * 2**doublings)
        try:
            return reason, row.until + timedelta(seconds=seconds)
        except OverflowError:
            # Times of a damaged log may be in the last year of the calendar.
            return reason, datetime.max

    def is_doubtful(self, pool: ResourcePool) -> bool:
        """Whether a pool has lost everything so far, but too little to be a black hole."""
        history = self._histories[pool]
        return not history.good and _losses_in_row(history.executions).events >= DOUBTFUL_LOSSES

    def _reason(self, row: _Losses, is_same: Callable[[ResourcePool], bool]) -> str:
        """Why the losses make a place a black hole; empty if they do not."""
        if row.events < MIN_LOSSES:
            return ""
        good = lost = 0
        for pool, history in self._histories.items():
            if not is_same(pool):
                good, lost = good + history.good, lost + history.lost
        if not is_black_hole(row.events, expected_loss(good, lost)):
            return ""
        return (
            f"its last {count(row.events, 'execution')} were lost, "
            f"{share(lost, good + lost)} elsewhere"
        )


def profiles_in_window(ledger: Ledger, window: TimeWindow = ALL) -> tuple[PoolProfile, ...]:
    """The profiles by what was seen in a window, the pools with the most epochs first."""
    if ledger.as_of is None:
        return ()
    seen = (
        each
        for each in observations_of(ledger)
        if window.since is None or each.seen >= window.since
    )
    profiles = learn_profiles(seen, min(ledger.as_of, window.until or ledger.as_of))
    return tuple(sorted(profiles.values(), key=lambda each: (-each.epochs, each.pool)))


# --- observations -----------------------------------------------------------------------------


def observations_of(ledger: Ledger) -> tuple[Observation, ...]:
    """The executions of trainings as observations, and the waits of those that have not started.

    An idle job counts at the pool where others with its target ran, else at a site of that name.
    It does not count without a target, or if it may go to any of several sites.
    """
    if ledger.as_of is None:
        return ()
    hidden = ledger.hidden_nodes
    of_runs = failures_of_runs(ledger.executions)
    slot_use = SlotUse(ledger)
    jobs = {job_key(job): job for job in ledger.jobs}
    targets: defaultdict[str, Counter[ResourcePool]] = defaultdict(Counter)
    sites: defaultdict[str, Counter[ResourcePool]] = defaultdict(Counter)
    observations = []
    for entry in ledger.trainings:
        pool = pool_of(entry)
        sites[pool.site][pool] += 1
        if entry.target:
            targets[entry.target][pool] += 1
        is_lost = is_of_place(entry) and (entry.job, entry.start) not in of_runs
        wait = slot_hours = None
        # Waits of runs for each other show in the slots of the pool.
        if entry.wait is not None:
            began = entry.start - timedelta(seconds=entry.wait + (entry.transfer or 0.0))
            wait = entry.wait - slot_use.seconds_between(entry.key or "", began, entry.start)
            wait = max(0.0, wait) / HOUR
        left = slot_end(entry, jobs.get(job_key(entry)))
        if left is not None and left != entry.end:
            slot_hours = ledger.seconds_between(entry.start, left) / HOUR
        observations.append(
            Observation(
                pool=pool,
                seen=entry.end or ledger.as_of,
                hours=entry.seconds / HOUR,
                wait=wait,
                transfer=None if entry.transfer is None else entry.transfer / HOUR,
                finished=True if entry.final else False if is_lost else None,
                gpus=entry.gpus or 0,
                stopped=entry.outcome is not Outcome.IN_FLIGHT,
                hidden=entry.node_key in hidden,
                evicted=entry.outcome in EVICTIONS,
                stored=entry.checkpoint is not None and not entry.final,
                carried=entry.carried / HOUR,
                slot_hours=slot_hours,
                start=entry.start,
            )
        )
    ran_at = {**sites, **targets}.items()
    pools = {name: found.most_common(1)[0][0] for name, found in ran_at}
    return (*observations, *_waits(ledger, pools, slot_use))


def _waits(
    ledger: Ledger, pools: Mapping[str, ResourcePool], slot_use: SlotUse
) -> Iterator[Observation]:
    """The waits of jobs that are idle or were removed while idle."""
    assert ledger.as_of is not None
    for job in ledger.jobs:
        if not job.training or job.at_access_point or not job.states or not job.target:
            continue
        since, state = job.states[-1]
        until = ledger.as_of
        if state is State.REMOVED and len(job.states) > 1 and job.states[-2][1] is State.IDLE:
            since, until = job.states[-2][0], since
        elif state is not State.IDLE:
            continue
        name = normalize_name(job.target)
        if name in ANY_SITE_TARGETS or len(site_list(job.target)) > 1:
            continue
        pool = pools.get(job.target) or ResourcePool(job.target)
        if job.target in pools or name not in POOL_TARGETS:
            waited = ledger.seconds_between(since, until)
            waited -= slot_use.seconds_between(job.key or "", since, until)
            waited = max(0.0, waited) / HOUR
            yield Observation(pool=pool, seen=until, wait=waited, started=False)

"""Numbers that an independent reader of the raw logs found otherwise: each is held to what the
log says, and its words to what was counted."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path

from metlmon.ensemble.ledger import HOUR, TransferEntry
from metlmon.live.reader import Reader
from metlmon.live.settings import load_settings
from metlmon.report.contents import compiled
from metlmon.report.records import Report, Table
from metlmon.report.told import percent
from metlmon.stats.accounts import accounts
from metlmon.stats.incidents import incidents
from metlmon.stats.places import places_in
from metlmon.stats.windows import ALL, Window
from tests.ensemble.written import Log, tell
from tests.stats.histories import FIXTURES, recorded

NODE, NEXT = "run0-train_epoch0", "run0-train_epoch1"
DAG = f"JOB {NODE} t.sub\nJOB {NEXT} t.sub\nPARENT {NODE} CHILD {NEXT}\n"


def note(of: Report, key: str) -> str:
    return next(each.text for each in of.notes if each.key == key)


def reported(log: Log, window: Window = ALL) -> Report:
    found = tell(DAG, log).painter()
    return compiled(found.status(), found.ledger(), window)


def test_a_transfer_that_a_window_cuts_keeps_its_length() -> None:
    """The report and the table of sites tell the same of it: an hour's stall is an hour's stall,
    however little of it lies in the window. Its hours are shared out."""
    reader = Reader(FIXTURES / "first-round", load_settings(FIXTURES / "first-round"))
    reader.open()
    reader.read_all()
    ledger = reader.painter().ledger()

    def stalled(span: TransferEntry) -> bool:
        return span.outcome == "unfinished" and (span.seconds or 0.0) > HOUR

    span = next(filter(stalled, ledger.transfers))
    assert span.start is not None
    assert span.end is not None
    since = span.start + timedelta(minutes=55)
    window = Window(since, span.end + timedelta(seconds=1))
    moved = accounts(ledger, window).moves
    (lost,) = (each for each in moved if each.outcome == "unfinished")
    assert (lost.n, lost.median, lost.longest) == (1, span.seconds, span.seconds)
    assert lost.seconds == (span.end - since).total_seconds()
    assert places_in(ledger, window).total.input.stalled == span.seconds


def two_epochs() -> Log:
    """The first is done at the second try; the second runs, and for longer than that one took."""
    log = Log().submit(77, NODE, at="09:00:00").execute(77, gpus=2, at="10:00:00")
    log.evict(77, at="11:00:00").execute(77, gpus=2, at="11:30:00").terminate(77, at="13:30:00")
    log.submit(78, NEXT, at="13:40:00").execute(78, gpus=2, at="14:00:00")
    return log.image(78, 100, at="19:00:00")


def test_the_longest_executions_are_those_of_completed_epochs() -> None:
    """What still runs is no epoch's time: it must not stand beside the times of epochs."""
    told = note(reported(two_epochs()), "epoch_time")
    assert "of longest executions 2:00:00 (n = 1)" in told


def test_the_cost_of_an_epoch_is_told_as_the_sites_have_it() -> None:
    """The report divides all GPU-hours, the sites' table those that have ended: both are said."""
    log = two_epochs()
    cost = places_in(tell(DAG, log).painter().ledger()).total.cost
    assert cost == 3 * 2 * HOUR
    told = note(reported(log), "per_epoch")
    assert "Of those that have ended: 6.00." in told
    assert "(good, bad and in flight) for each completed epoch: 16.00." in told


def test_waits_of_a_window_are_said_to_be_of_what_ended_in_it() -> None:
    log = Log().submit(77, NODE, at="09:00:00").execute(77, at="10:00:00")
    log.terminate(77, at="12:00:00")
    whole = note(reported(log), "wait")
    assert "Of 1 execution; mean" in whole
    day = datetime(2025, 1, 1)
    assert "ended in the window" in note(reported(log, Window(day)), "wait")


def test_an_epoch_that_a_post_script_saved_is_not_without_execution() -> None:
    """Its job ran and returned 3; the POST script took that for success. No GPU has the epoch,
    but the logs have its execution."""
    log = Log().submit(77, NODE, at="09:00:00").execute(77, at="10:00:00")
    log.terminate(77, 3, at="12:00:00").post(77, NODE, 0, at="12:00:10")
    made = reported(log)
    (table,) = (
        block
        for section in made.sections
        for block in section.blocks
        if isinstance(block, Table) and block.key == "gpus"
    )
    assert [(row.cells[0], row.cells[1]) for row in table.rows][-1] == (
        "no successful execution",
        1,
    )
    assert "saved by a POST script" in note(made, "epochs")


def test_bytes_of_a_job_whose_start_was_lost_are_at_no_site() -> None:
    """Its 001 is not in the log; that it went on after a suspension, and its end, are. The sites'
    table has its bytes, as the report has."""
    log = Log().submit(77, NODE, at="09:00:00").suspend(77, at="10:00:00")
    log.resume(77, at="10:30:00")
    log.terminate(77, at="12:00:01", total=(877, 13209))
    ledger = tell(DAG, log).painter().ledger()
    assert ledger.executions == ()
    of = places_in(ledger)
    assert (of.total.input.sent, of.total.input.received) == (877, 13209)
    assert [(place.name, place.input.sent) for place in of.sites] == [(None, 877)]
    moved = accounts(ledger).total.moved
    assert (moved.from_jobs, moved.to_jobs) == (877, 13209)


def test_periods_have_the_epochs_that_dagman_alone_tells_of(tmp_path: Path) -> None:
    """The jobs' log breaks off (a full disk), and DAGMan writes on: the epochs that it saw done
    after that are in the months in which they were, not in the total alone."""
    for name in ("heterogeneous.dag", "control.dag"):
        for end in ("", ".dagman.out"):
            shutil.copy(FIXTURES / "first-round" / f"{name}{end}", tmp_path)
    whole = (FIXTURES / "first-round" / "metl.log").read_bytes()
    half = whole[: whole.index(b"\n...\n", len(whole) // 2) + 5]
    (tmp_path / "metl.log").write_bytes(half)
    reader = Reader(tmp_path, load_settings(tmp_path))
    reader.open()
    reader.read_all()
    books = accounts(reader.painter().ledger())
    assert books.whole.as_of is not None
    assert any(
        e.completed is not None and e.completed > books.whole.as_of for e in books.part.epochs
    )
    months = {f"{window.since:%Y-%m}": share.by_longest for window, share in books.periods}
    assert sum(months.values()) + books.unmoored == books.epochs
    assert months["2025-11"] > 0
    assert books.series is not None
    assert sum(books.series.epochs) == sum(months.values())
    assert sum(share.spent.total for _, share in books.periods) == books.total.spent.total


def test_a_share_is_never_rounded_to_none_or_all() -> None:
    shown = [percent(value, ascii=True) for value in (0.0, 0.0004, 0.0005, 0.9994, 0.9996, 1.0)]
    assert shown == ["0.0 %", "<0.1 %", "0.1 %", "99.9 %", ">99.9 %", "100.0 %"]


# --- incidents ----------------------------------------------------------------------------------


def test_both_removals_of_the_first_round_are_told() -> None:
    """Its DAG was removed twice and submitted again from its rescue files. The second time only
    two jobs ran, and lost ten hours all the same."""
    made = recorded(FIXTURES / "first-round")
    removed = [each for each in incidents(made) if each.kind == "removed"]
    assert {f"{each.since:%Y-%m-%d %H:%M}" for each in removed if "the DAG" in each.text} == {
        "2025-09-29 16:41",
        "2025-10-29 22:17",
    }


def test_a_log_that_is_silent_as_often_has_no_gap() -> None:
    """The first round lacks the ends of three executions and nothing else. Its log has an event
    in twenty minutes: that nothing was logged for two hours, as often, is no hole."""
    made = recorded(FIXTURES / "first-round")
    kinds = [each.kind for each in incidents(made)]
    assert kinds.count("log-damage") == 3
    assert "log-gap" not in kinds

"""The demo's ensemble: ``python -m tests.generated.story`` writes ``fixtures/story.zip``.

A sweep of 24 models, 40 epochs each, at six sites: two months with a full disk, a site that
takes jobs and finishes none, and a model that diverges. The archive has ``pieces.json``: what is
written into which file of the dagdir, and when; and ``captions.json``: what happens, and when.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from math import exp, log10
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from tests.generated import ensembles
from tests.generated.ensembles import DagPlan, Job, JobLog, Life, moment
from tests.generated.places import A5000, PLACES, Place
from tests.generated.write import dagman_files, job_lines, job_log, local
from tests.support.replay_pieces import replay_pieces

TARGET: Final = Path(__file__).resolve().parents[2] / "fixtures" / "story.zip"

SEED: Final = 20260901
EPOCHS: Final = 40
RATES: Final = ("0.001", "0.003", "0.01", "0.03", "0.1", "1.0")
BATCHES: Final = ("16", "32", "64", "128")
BEGIN: Final = moment("2025-09-01 09:12:05")
DAY: Final = 86400
RETRIES: Final = 3

SITES: Final = tuple(PLACES[index] for index in (0, 4, 6, 8, 9, 10))
HOLE: Final = "Gridley-GPU-CE1"
BLACK_HOLE: Final = Place(
    HOLE, "ospool", HOLE, "gpu{:02d}.gridley.example.edu", A5000, 9.0, 1, (0, 0)
)
HOLE_DAYS: Final = (9.0, 30.0)
"""While the site takes jobs."""

STORM: Final = (BEGIN + int(17.1 * DAY), BEGIN + int(18.4 * DAY))
"""While the disk of the access point is full: outputs cannot be written."""

RELEASED: Final = BEGIN + int(20.0 * DAY)

DIVERGES: Final = 20
"""The run with the highest rate and the smallest batch."""

DIVERGED_EPOCH: Final = 8

OTHERS: Final = (
    ensembles.evicted_while_running,
    ensembles.stalled_input,
    ensembles.lost_contact,
    ensembles.over_memory,
)
"""What else goes wrong before one epoch in eight."""

Run = tuple[str, str, str, str]
"""Name, uuid, rate and batch size."""


def runs() -> tuple[Run, ...]:
    rng = Random(SEED)
    return tuple(
        (f"run{index}", f"{rng.getrandbits(32):08x}", rate, batch)
        for index, (rate, batch) in enumerate(product(RATES, BATCHES))
    )


# --- events -----------------------------------------------------------------------------------


class JobWriter(JobLog):
    """Writes the events of one job, with shorter waits than in the first round."""

    def waits(self, place: Place) -> None:
        median = (6 if place.target == "ospool" else 9) * 3600
        self.passes(self.rng.lognormvariate(0, 0.8) * median + 60)
        self.slot = ensembles.choose_slot(place, self.rng)


def jobs_of(index: int, run: Run, targets: dict[str, str]) -> Iterator[Job]:
    """The jobs of a run, one after another."""
    name, uuid, *_ = run
    rng = Random(f"{SEED} {uuid}")
    now = BEGIN + rng.randint(2, 40)
    for epoch in range(EPOCHS):
        place = rng.choice(SITES)
        targets[f"{name}-train_epoch{epoch}"] = place.target
        completed, tries = False, 0
        while not completed:
            writer = JobWriter(Job(0, name, epoch, now), rng, None)
            if index == DIVERGES and epoch == DIVERGED_EPOCH:
                _ends_with_nan(writer, place)
                tries += 1
            else:
                _trains(writer, place)
            yield writer.job
            now, completed = writer.now + rng.randint(5, 12), writer.job.completed
            if tries > RETRIES:
                return


def _trains(writer: JobWriter, place: Place) -> None:
    """One job: its troubles, until it succeeds."""
    rng = writer.rng
    day = (writer.now - BEGIN) / DAY
    if place.target == "ospool" and HOLE_DAYS[0] < day < HOLE_DAYS[1]:
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            _falls_into_the_hole(writer)
    if rng.random() < 0.125:
        rng.choice(OTHERS)(writer, place)
    slot = writer.starts(place)
    writer.works(ensembles.training_seconds(place, slot, rng))
    if STORM[0] <= writer.now < STORM[1]:
        _finds_the_disk_full(writer)
        slot = writer.starts(place)
        writer.works(ensembles.training_seconds(place, slot, rng))
    writer.uploads()
    writer.terminates(0)


def _falls_into_the_hole(writer: JobWriter) -> None:
    writer.starts(BLACK_HOLE)
    writer.works(writer.rng.uniform(2.0, 9.0) * 3600)
    writer.is_evicted(1005, 0, "Unspecified job interruption")


def _finds_the_disk_full(writer: JobWriter) -> None:
    slot = writer.slot
    reason = (
        "Transfer output files failure at access point ap40 while receiving files from "
        f"execution point {slot.name}. Details: writing to file output/training_logs/"
        f"checkpoints/epoch={writer.job.epoch}.ckpt: (errno 122) Disk quota exceeded"
    )
    writer.is_evicted(12, 122, reason)
    writer.say(lambda head: ensembles.events.held(head, 12, 122, reason))
    writer.now = RELEASED + writer.rng.randint(0, 90)
    writer.say(ensembles.events.released)


def _ends_with_nan(writer: JobWriter, place: Place) -> None:
    slot = writer.starts(place)
    writer.works(ensembles.training_seconds(place, slot, writer.rng) * 0.2)
    writer.terminates(1)


# --- its files --------------------------------------------------------------------------------


def dag_text(targets: dict[str, str]) -> str:
    lines = [
        "SUBMIT-DESCRIPTION pretrain.sub {",
        *("\tuniverse = container", "\tcontainer_image = osdf:///example/metl_global.sif"),
        *("\trequest_disk = 100GB", "\trequest_memory = 64000", "\trequest_gpus = 1"),
        *("\texecutable = pretrain.sh", "\targuments = $(epoch) $(run_uuid) $(lr) $(batch_size)"),
        *("\ttransfer_output_files = output", f"\terror = {error_file('$(run)', '$(epoch)')}"),
        *("\tlog = metl.log", "\tqueue", "}", ""),
    ]
    for name, uuid, rate, batch in runs():
        nodes = [f"{name}-train_epoch{epoch}" for epoch in range(EPOCHS)]
        lines += [f"JOB {node} pretrain.sub" for node in nodes]
        for epoch, node in enumerate(nodes):
            lines.append(
                f'VARS {node} run="{name}" run_uuid="{uuid}" epoch="{epoch + 1}" lr="{rate}" '
                f'batch_size="{batch}" ResourceName="{targets.get(node, "ospool")}"'
            )
        lines += [f"PARENT {a} CHILD {b}" for a, b in pairwise(nodes)]
        lines.append("")
    return "\n".join([*lines, f"RETRY ALL_NODES {RETRIES}", ""])


def error_file(run: str, epoch: int | str) -> str:
    """The error file of the jobs of an epoch, in which epochs are numbered from 1."""
    return f"{run}-epoch{epoch if isinstance(epoch, str) else epoch + 1}.err"


NAN_ERROR: Final = """\
Epoch 8:  20%|##        | 10297/51484 [1:02:11<4:08:44,  2.76it/s, loss=nan]
Traceback (most recent call last):
  File "code/train_source_model.py", line 512, in <module>
    main(parser.parse_args())
  File "code/train_source_model.py", line 447, in main
    trainer.fit(model=task, datamodule=dm, ckpt_path=ckpt_path)
  File "code/callbacks.py", line 61, in on_train_batch_end
    raise ValueError(f"Loss is {loss}: it is not finite")
ValueError: Loss is nan: it is not finite
"""


def losses(index: int, run: Run) -> list[float]:
    """The validation loss after each epoch: lowest at a rate of 0.01 and batches of 32."""
    _, uuid, rate, batch = run
    rng = Random(uuid)
    off = abs(log10(float(rate)) + 2) + 0.15 * abs(log10(int(batch) / 32))
    curve = [
        0.21 + 0.05 * off + 0.9 * exp(-epoch / (3.0 + off)) + rng.gauss(0, 0.004)
        for epoch in range(EPOCHS)
    ]
    if index == DIVERGES:
        for epoch in range(4, EPOCHS):
            curve[epoch] = curve[3] * 2.2 ** (epoch - 3)
    return curve


def training_files(jobs: list[Job]) -> dict[str, str]:
    """``args.txt`` and ``metrics.csv`` of each trained epoch, as METL writes them."""
    files = {}
    for index, run in enumerate(runs()):
        name, uuid, rate, batch = run
        curve = losses(index, run)
        for epoch in sorted({job.epoch for job in jobs if job.run == name and job.completed}):
            folder = f"output/training_logs/{uuid}/version_{epoch}"
            arguments = ("--learning_rate", rate, "--batch_size", batch, "--uuid", uuid)
            files[f"{folder}/args.txt"] = "\n".join(
                [*arguments, "--stop_after_epoch", str(epoch + 1), ""]
            )
            step = (epoch + 1) * 51484 - 1
            rows = ["step,epoch,val_loss,train_loss_epoch"]
            rows.append(f"{step},{epoch},{curve[epoch]:.5f},")
            rows.append(f"{step},{epoch},,{curve[epoch] * 0.94:.5f}")
            files[f"{folder}/metrics.csv"] = "\n".join([*rows, ""])
    return files


def captions(jobs: list[Job]) -> list[tuple[str, str]]:
    """Texts and times of what a viewer should look at."""
    fallen = [e.start for j in jobs for e in j.executions if e.slot.place is BLACK_HOLE]
    nan = [j for j in jobs if j.run == f"run{DIVERGES}" and j.epoch == DIVERGED_EPOCH]
    shown = [
        (BEGIN, "24 models train in chains of 40 jobs, one job for each epoch, at six sites"),
        (BEGIN + 3 * DAY, "each epoch may run at another site, on another GPU (3: sites)"),
        (sorted(fallen)[8], "Gridley-GPU-CE1 takes jobs and finishes none (2: health)"),
        (STORM[0] + DAY // 2, "the disk of the access point is full: runs are held (2: health)"),
        (RELEASED, "there is space again; the jobs were released"),
        (nan[0].submitted, f"run{DIVERGES} diverged: learning rate 1.0, batches of 16 (5: curves)"),
        (RELEASED + 4 * DAY, "when will it be done, and what did it cost? (7: estimates)"),
    ]
    shown.append((max(job.last for job in jobs), "23 models are trained; one failed"))
    return [(local(when).isoformat(), text) for when, text in sorted(shown)]


def story() -> dict[str, str]:
    """All files of the archive."""
    targets: dict[str, str] = {}
    jobs = [job for index, run in enumerate(runs()) for job in jobs_of(index, run, targets)]
    jobs.sort(key=lambda job: (job.submitted, job.node))
    plan = DagPlan(
        "ensemble.dag", tuple((name, uuid) for name, uuid, *_ in runs()), (Life(BEGIN),), EPOCHS
    )
    dagmans = ensembles.number_clusters((plan,), jobs)
    files = dagman_files(plan, jobs, [(cluster, life) for cluster, _, life in dagmans])
    files = {name: _failed(name, text) for name, text in files.items()}
    del files["ensemble.dag.nodes.log"]
    files["ensemble.dag"] = dag_text(targets)
    files["metl.log"] = job_log(job_lines(jobs))
    files["metlmon.toml"] = 'tz = "America/Chicago"\n'
    files |= training_files(jobs)
    files[error_file(f"run{DIVERGES}", DIVERGED_EPOCH)] = NAN_ERROR
    return {
        "pieces.json": json.dumps(pieces_of(files)) + "\n",
        "captions.json": json.dumps(captions(jobs), indent=1) + "\n",
    }


def pieces_of(files: dict[str, str]) -> list[tuple[str, str, str]]:
    """Time, file and text of each piece, in the order of writing."""
    with TemporaryDirectory() as scratch:
        for name, text in files.items():
            path = Path(scratch, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        pieces = replay_pieces(Path(scratch))
    return [(piece.time.isoformat(), piece.file, piece.data.decode()) for piece in pieces]


def _failed(name: str, text: str) -> str:
    """A file of DAGMan that ends with a failure: one node failed for good."""
    text = text.replace("EXITING WITH STATUS 0", "EXITING WITH STATUS 1")
    if name.endswith(".dagman.log"):
        text = text.replace("(return value 0)", "(return value 1)")
    if name.endswith(".metrics"):
        done = len(runs()) * EPOCHS - (EPOCHS - DIVERGED_EPOCH)
        text = text.replace('"exitcode": 0', '"exitcode": 1').replace(
            '"DagStatus": 0', '"DagStatus": 2'
        )
        text = text.replace('"jobs_failed": 0', '"jobs_failed": 1', 1)
        text = text.replace(
            f'"jobs_succeeded": {len(runs()) * EPOCHS}', f'"jobs_succeeded": {done}', 1
        )
    return text


def write_archive(target: Path) -> None:
    """Write the archive, byte for byte the same each time."""
    with ZipFile(target, "w") as archive:
        for name, text in story().items():
            info = ZipInfo(name, (2025, 9, 1, 0, 0, 0))
            info.compress_type = ZIP_DEFLATED
            archive.writestr(info, text, compresslevel=9)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    write_archive(target)
    print(f"wrote {target}", file=sys.stderr)

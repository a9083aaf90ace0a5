#!/usr/bin/env python3
# ruff: noqa: UP006, UP035, UP045, B905 (not possible in Python 3.6)
"""Train a small protein model: the job of an ensemble, in one file.

It requires only Python 3.6: an execute node has nothing else for certain. It imports nothing of
metlmon, and torch only if requested.

    train.py --uuid 75f86c77 --seed 1 --max-epochs 30 --stop-after-epoch 1
    train.py --uuid 75f86c77 --seed 1 --max-epochs 30 --stop-after-epoch 2    # continues
    train.py --uuid 75f86c77 --seed 1 --evaluate 2                 # tests the newest checkpoint
    train.py --checkpoint last.ckpt --infer 0/8                    # predicts a part of all variants
    train.py --gather 8                                            # joins the 8 parts
    train.py … --machines 2 --rank 0                               # together with --rank 1

The task is a small version of METL's: predict energies of variants of the GB1 domain from their
substitutions. The energies are computed from published residue scales and a contact list; no
measured value is included. ``--data`` reads a table of variants and scores instead.

Files are those of METL (train_source_model.py) with PyTorch Lightning 1.7.7:

    output/training_logs/<uuid>/checkpoints/last.ckpt
    output/training_logs/<uuid>/checkpoints/epoch=<e>-step=<s>-val_loss=<v>.ckpt    the best one
    output/training_logs/<uuid>/version_<k>/{args.txt,hparams.yaml,metrics.csv,metrics.txt}

version_<k> is the k-th start, from 0. Epochs in files and in the progress line count from 0, those
of the arguments from 1. On one kind of machine the same seed gives the same last.ckpt, in however
many jobs the epochs ran.

Exit status: 0 trained, 1 failed on purpose (--fail-rate), 2 wrong arguments, 4 a checkpoint that
is damaged or another run's, 5 unusable data, 6 no torch, 7 the output cannot be written. HTCondor
ends an evicted job by SIGTERM: the files are then as they were after the last complete epoch.
"""

import argparse
import contextlib
import csv
import functools
import hashlib
import io
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import sys
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, TextIO, Tuple

EXIT_FAILED = 1
EXIT_CHECKPOINT = 4
EXIT_DATA = 5
EXIT_BACKEND = 6
EXIT_OUTPUT = 7

HIDDEN = 8  # length of the embedding; enough for a Pearson of 0.95 in four epochs
BATCH = 32
RATE = 0.2  # of Adagrad with one accumulator a row, which takes larger steps than Adam
HEAD_RATE = 0.3  # the head's part of RATE: every variant changes it, a substitution few do
WARMUP = 0.02  # part of all steps in which the rate rises, METL's default
TRAIN, VALIDATE, TEST = 4096, 384, 512  # generated variants: an epoch takes about 0.1 s
LOG_EVERY = 50  # steps between two rows of a training loss, Lightning's default
REDRAW_SECONDS = 0.1  # least time between two progress lines, tqdm's default
MOST_POSITIONS = 5000  # longer than any protein that is scanned
FEWEST_VARIANTS = 20  # with fewer the three sets would be noise

MOST_BYTES = 1 << 30  # of a checkpoint; another program's may be larger
MAGIC = b"metlmon trainer checkpoint 1\n"
RANK_FILE = "rank_{}.ckpt"  # beside last.ckpt, the numbers of another machine
REMEDY = "take it away to train from the first epoch, or put a good one in its place"


class TrainerError(Exception):
    """The reason why the trainer cannot continue, and its exit status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class TerminationSignal(Exception):
    """SIGTERM."""


# --- the task -----------------------------------------------------------------------------

WILD_TYPE = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
"""GB1, the B1 domain of streptococcal protein G (PDB 2GB1)."""

ALPHABET = "*ACDEFGHIKLMNPQRSTVWY"
"""In METL's order; * is a stop codon, which measured data sets contain."""

SCALES = {
    "A": (1.8, 88.6, 1.42, 0.83),
    "C": (2.5, 108.5, 0.70, 1.19),
    "D": (-3.5, 111.1, 1.01, 0.54),
    "E": (-3.5, 138.4, 1.51, 0.37),
    "F": (2.8, 189.9, 1.13, 1.38),
    "G": (-0.4, 60.1, 0.57, 0.75),
    "H": (-3.2, 153.2, 1.00, 0.87),
    "I": (4.5, 166.7, 1.08, 1.60),
    "K": (-3.9, 168.6, 1.16, 0.74),
    "L": (3.8, 166.7, 1.21, 1.30),
    "M": (1.9, 162.9, 1.45, 1.05),
    "N": (-3.5, 114.1, 0.67, 0.89),
    "P": (-1.6, 112.7, 0.57, 0.55),
    "Q": (-3.5, 143.8, 1.11, 1.10),
    "R": (-4.5, 173.4, 0.98, 0.93),
    "S": (-0.8, 89.0, 0.77, 0.75),
    "T": (-0.7, 116.1, 0.83, 1.19),
    "V": (4.2, 140.0, 1.06, 1.70),
    "W": (-0.9, 227.8, 1.08, 1.37),
    "Y": (-1.3, 193.6, 0.69, 1.47),
}
"""Hydropathy (Kyte and Doolittle, J. Mol. Biol. 157 (1982) 105), volume in cubic ångströms
(Zamyatnin, Prog. Biophys. Mol. Biol. 24 (1972) 107), propensity for a helix and for a strand
(Chou and Fasman, Adv. Enzymol. 47 (1978) 45)."""

HYDROPATHY, VOLUME, HELIX, STRAND = range(4)

CHARGE = {"D": -1.0, "E": -1.0, "K": 1.0, "R": 1.0}
"""At pH 7."""

STRANDS = ((1, 8), (13, 20), (42, 46), (51, 55))
HELICES = ((23, 36),)
CORE = (3, 5, 20, 26, 30, 34, 39, 43, 52, 54)
"""Secondary structure and buried residues (from 1) as Gallagher et al., Biochemistry 33 (1994)
4721, describe them for the crystal structures 1PGA and 1PGB."""

TARGETS = ("total_score", "burial", "packing", "charge", "propensity")

Changes = Dict[int, str]
"""A variant: its substituted positions (from 0), and their residues."""


class Variant(NamedTuple):
    """``rows`` of the embedding, one per substitution, and the ``values`` to predict."""

    rows: Tuple[int, ...]
    values: Tuple[float, ...]


class DataSet(NamedTuple):
    """Variants with values standardised by the training set's mean and deviation.

    ``rows``: length of the embedding; ``mark`` identifies the data set.
    """

    targets: Tuple[str, ...]
    rows: int
    mark: str
    train: List[Variant]
    validate: List[Variant]
    test: List[Variant]


def contacts() -> List[Tuple[int, int]]:
    """Pairs of residues (from 1) that touch in the idealised fold.

    The ladders of the two hairpins, the parallel one of the first and the last strand, the turns
    of the helix, and the core.
    """
    pairs = {(i, 21 - i) for i in range(1, 9)}
    pairs |= {(i, 97 - i) for i in range(42, 47)}
    pairs |= {(i, i + 48) for i in range(3, 8)}
    pairs |= {(i, i + 4) for i in range(23, 33)}
    pairs |= {(a, b) for a in CORE for b in CORE if a < b}
    return sorted(pairs)


PARTNERS = [
    [pair[a == pair[0]] - 1 for pair in contacts() if a in pair]
    for a in range(1, len(WILD_TYPE) + 1)
]
PROPENSITY = {
    position - 1: scale
    for spans, scale in ((STRANDS, STRAND), (HELICES, HELIX))
    for first, last in spans
    for position in range(first, last + 1)
}


def energies(changes: Changes) -> Tuple[float, ...]:
    """Differences from the wild type's energies, in the order of TARGETS."""
    burial = packing = charge = propensity = 0.0
    for position, residue in changes.items():
        wild = WILD_TYPE[position]
        new, old = SCALES[residue], SCALES[wild]
        exposed = 2.5 - len(PARTNERS[position])
        burial += 0.2 * exposed * (new[HYDROPATHY] - old[HYDROPATHY])
        if position in PROPENSITY:
            propensity -= new[PROPENSITY[position]] - old[PROPENSITY[position]]
        for partner in PARTNERS[position]:
            if partner in changes and partner < position:
                continue  # counted at the partner
            near = WILD_TYPE[partner]
            other = changes.get(partner, near)
            gap = new[VOLUME] - old[VOLUME] + SCALES[other][VOLUME] - SCALES[near][VOLUME]
            packing += 1e-4 * gap * gap
            charge += CHARGE.get(residue, 0.0) * CHARGE.get(other, 0.0)
            charge -= CHARGE.get(wild, 0.0) * CHARGE.get(near, 0.0)
    total = burial + packing + 2.0 * charge + 3.0 * propensity
    return total, burial, packing, charge, propensity


def generator(*purpose: object) -> random.Random:
    """A generator for one purpose: no epoch depends on the numbers another one used."""
    text = " ".join(str(each) for each in purpose)
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def shuffled(count: int, source: random.Random) -> List[int]:
    """0 … count-1 in random order, by random() alone: the same in every Python."""
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = int(source.random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def generated() -> DataSet:
    """Variants of GB1 with one to five random substitutions, the same for every seed."""
    source = generator("gb1 variants", 1)
    raw = []
    for _ in range(TRAIN + VALIDATE + TEST):
        changes: Changes = {}
        wanted = 1 + int(source.random() * 5)
        while len(changes) < wanted:
            position = int(source.random() * len(WILD_TYPE))
            others = ALPHABET[1:].replace(WILD_TYPE[position], "")
            changes[position] = others[int(source.random() * len(others))]
        raw.append(Variant(rows_of(changes), energies(changes)))
    rows = len(WILD_TYPE) * len(ALPHABET)
    return split(TARGETS, rows=rows, mark="gb1-1", raw=raw, train=TRAIN, validate=VALIDATE)


def rows_of(changes: Changes) -> Tuple[int, ...]:
    """The rows of the embedding for these substitutions."""
    return tuple(at * len(ALPHABET) + ALPHABET.index(changes[at]) for at in sorted(changes))


def split(
    targets: Tuple[str, ...], rows: int, mark: str, raw: List[Variant], train: int, validate: int
) -> DataSet:
    """The first ``train`` variants, the next ``validate``, and the rest to test."""
    columns = list(zip(*[each.values for each in raw[:train]]))
    means = [sum(column) / train for column in columns]
    deviations = [
        math.sqrt(sum((value - mean) * (value - mean) for value in column) / train) or 1.0
        for column, mean in zip(columns, means)
    ]
    variants = [
        Variant(each.rows, tuple((v - m) / d for v, m, d in zip(each.values, means, deviations)))
        for each in raw
    ]
    cut = train + validate
    return DataSet(targets, rows, mark, variants[:train], variants[train:cut], variants[cut:])


# --- measured data ------------------------------------------------------------------------

_SUBSTITUTION = re.compile(r"[*A-Z](\d{1,5})([*A-Z])")


def load_data(path: Optional[str]) -> DataSet:
    """The data of ``--data``, else the generated ones."""
    return read_data(path) if path else generated()


def read_data(path: str) -> DataSet:
    """Read a table with tabs as METL does: with columns ``variant`` and ``…score…``.

    Variants are ``A24G,K10R`` (numbers from 0 or 1, of any protein) or ``_wt``. Rows without all
    scores are left out. Raises TrainerError that names file and line.
    """
    path = transferred(path)
    number = 1
    try:
        with open(path, "rb") as file:
            content = file.read()
        header, *lines = content.decode("utf-8-sig").splitlines() or [""]
        names = header.split("\t")
        columns = [at for at, name in enumerate(names) if "score" in name.lower()]
        if "variant" not in names or not columns:
            raise ValueError("the header must name 'variant' and a column with 'score' in its name")
        # The main one first, as in the generated data.
        columns.sort(key=lambda at: (names[at] != "total_score", names[at] != "score", at))
        rows = []
        for number, line in enumerate(lines, start=2):  # noqa: B007 (for the message)
            if line.strip():
                rows.append(read_row(line.split("\t"), names.index("variant"), columns))
    except OSError as error:
        raise TrainerError(EXIT_DATA, f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TrainerError(EXIT_DATA, f"{path}: not a text in UTF-8") from None
    except ValueError as error:
        raise TrainerError(EXIT_DATA, f"{path}:{number}: {error}") from None
    usable = [row for row in rows if all(-1e300 < value < 1e300 for value in row[1])]
    positions = [position for changes, _ in usable for position in changes]
    count, first = len(usable), min(positions, default=0)
    length = max(positions, default=-1) - first + 1
    if count < FEWEST_VARIANTS or not 0 < length <= MOST_POSITIONS:
        text = f"{count} usable variants at {length} positions; at least {FEWEST_VARIANTS} are "
        text += f"needed, and a protein of at most {MOST_POSITIONS} residues"
        raise TrainerError(EXIT_DATA, f"{path}: {text}")
    if count < len(rows):
        print(f"Left out {len(rows) - count} variants without all scores")
    return split(
        tuple(names[at] for at in columns),
        rows=length * len(ALPHABET),
        mark=hashlib.sha256(content).hexdigest()[:16],
        raw=[
            Variant(rows_of({at - first: to for at, to in changes.items()}), values)
            for changes, values in (usable[at] for at in shuffled(count, generator("split", 1)))
        ],
        train=count * 8 // 10,
        validate=count // 10,
    )


def read_row(
    cells: List[str], variant: int, columns: List[int]
) -> Tuple[Changes, Tuple[float, ...]]:
    """Substitutions and scores of a row. Raises ValueError."""
    if len(cells) <= max(variant, *columns):
        raise ValueError("fewer columns than the header has")
    changes: Changes = {}
    text = cells[variant].strip()
    for part in text.split(",") if text not in ("", "_wt") else ():
        match = _SUBSTITUTION.fullmatch(part.strip())
        if match is None or match.group(2) not in ALPHABET:
            raise ValueError(f"{part[:40]!r} is no substitution like A24G")
        changes[int(match.group(1))] = match.group(2)
    return changes, tuple(float(cells[at].strip() or "nan") for at in columns)


def transferred(path: str) -> str:
    """The path, or its name alone, by which HTCondor puts it into the job's directory."""
    return path if os.path.exists(path) else os.path.basename(path)


# --- the model ----------------------------------------------------------------------------
# hidden = tanh(bias + the embedding's rows of the substitutions), out = head · hidden + shift.
# Optimizer: Adagrad with one accumulator of squared gradients for each row.

TABLES = ("embedding", "bias", "head")
WEIGHTS = (*TABLES, "shift")

State = Dict[str, List[float]]
"""All numbers of a model by name, as a checkpoint holds them."""


def first_state(rows: int, targets: int, seed: int, hidden: int = HIDDEN) -> State:
    """The initial state for a seed."""
    source = generator("weights", seed)
    return {
        "embedding": [0.2 * (source.random() - 0.5) for _ in range(rows * hidden)],
        "bias": [0.0] * hidden,
        "head": [source.random() - 0.5 for _ in range(targets * hidden)],
        "shift": [0.0] * targets,
        "embedding_squares": [1e-8] * rows,
        "bias_squares": [1e-8],
        "head_squares": [1e-8] * targets,
    }


class PythonModel:
    """The model in plain Python."""

    def __init__(self, state: State) -> None:
        width = len(state["bias"])
        self._tables = {
            name: [state[name][at : at + width] for at in range(0, len(state[name]), width)]
            for name in TABLES
        }
        self._shift = list(state["shift"])
        # Absent from a checkpoint of the best epoch, which serves to predict only.
        self._squares = {name: list(state.get(f"{name}_squares", ())) for name in self._tables}

    def state(self) -> State:
        """All numbers."""
        state = {name: [x for row in rows for x in row] for name, rows in self._tables.items()}
        state.update({f"{name}_squares": list(rows) for name, rows in self._squares.items()})
        return dict(state, shift=list(self._shift))

    def _hidden(self, rows: Sequence[int]) -> List[float]:
        total, embedding = self._tables["bias"][0], self._tables["embedding"]
        for row in rows:
            total = [a + b for a, b in zip(total, embedding[row])]
        return [math.tanh(x) for x in total]

    def _output(self, hidden: List[float]) -> List[float]:
        return [
            shift + sum(weight * unit for weight, unit in zip(weights, hidden))
            for weights, shift in zip(self._tables["head"], self._shift)
        ]

    def predict(self, variants: Sequence[Variant]) -> List[List[float]]:
        """The targets of each variant."""
        return [self._output(self._hidden(variant.rows)) for variant in variants]

    def learn(self, batch: Sequence[Variant], rate: float) -> float:
        """Do one step; return the batch's loss before it, summed over the targets."""
        zeros = [0.0] * len(self._tables["bias"][0])
        to_rows: Dict[int, List[float]] = {}
        to_bias, to_head = zeros, [zeros for _ in self._shift]
        to_shift = [0.0] * len(self._shift)
        loss = 0.0
        for variant in batch:
            hidden = self._hidden(variant.rows)
            back = zeros
            for k, output in enumerate(self._output(hidden)):
                error = output - variant.values[k]
                loss += error * error
                to_shift[k] += error
                to_head[k] = [total + error * unit for total, unit in zip(to_head[k], hidden)]
                weights = self._tables["head"][k]
                back = [total + error * weight for total, weight in zip(back, weights)]
            back = [x * (1.0 - unit * unit) for x, unit in zip(back, hidden)]
            to_bias = [a + b for a, b in zip(to_bias, back)]
            for row in variant.rows:
                to_rows[row] = [a + b for a, b in zip(to_rows.get(row, zeros), back)]
        for row, gradient in to_rows.items():
            self._step("embedding", row, gradient, rate)
        self._step("bias", 0, to_bias, HEAD_RATE * rate)
        for k, gradient in enumerate(to_head):
            self._shift[k] -= to_shift[k] * self._step("head", k, gradient, HEAD_RATE * rate)
        return loss / len(batch)

    def _step(self, name: str, row: int, gradient: List[float], rate: float) -> float:
        """Change one row by Adagrad; return the step's length per gradient."""
        squares, table = self._squares[name], self._tables[name]
        squares[row] += sum(x * x for x in gradient) / len(gradient)
        step = rate / math.sqrt(squares[row])
        table[row] = [weight - step * x for weight, x in zip(table[row], gradient)]
        return step


class TorchModel:
    """The same model in torch, on a GPU if there is one."""

    def __init__(self, state: State, torch: Any) -> None:
        self._torch = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        # cuBLAS is deterministic only with a workspace of its own (its manual, 2.1.4).
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        width = len(state["bias"])
        self._tables = {
            name: self._tensor(values).reshape(-1, width if name in TABLES else 1)
            for name, values in state.items()
        }

    def _tensor(self, values: Any) -> Any:
        return self._torch.tensor(values, dtype=self._torch.float64, device=self._device)

    def state(self) -> State:
        """All numbers."""
        return {name: table.reshape(-1).tolist() for name, table in self._tables.items()}

    def _forward(self, variants: Sequence[Variant]) -> Tuple[Any, Any, Any]:
        """Which rows (0 or 1) each variant has, its hidden units and its targets."""
        tables = self._tables
        rows = [[0.0] * len(tables["embedding"]) for _ in variants]
        for marks, variant in zip(rows, variants):
            for row in variant.rows:
                marks[row] = 1.0
        inputs = self._tensor(rows)
        hidden = self._torch.tanh(inputs @ tables["embedding"] + tables["bias"])
        return inputs, hidden, hidden @ tables["head"].T + tables["shift"].T

    def predict(self, variants: Sequence[Variant]) -> List[List[float]]:
        """The targets of each variant."""
        output: List[List[float]] = []
        for at in range(0, len(variants), 256):  # limits the memory of the rows
            output += self._forward(variants[at : at + 256])[2].tolist()
        return output

    def learn(self, batch: Sequence[Variant], rate: float) -> float:
        """Do one step; return the batch's loss before it, summed over the targets."""
        inputs, hidden, output = self._forward(batch)
        error = output - self._tensor([variant.values for variant in batch])
        back = (error @ self._tables["head"]) * (1.0 - hidden * hidden)
        self._step("embedding", inputs.T @ back, rate)
        self._step("bias", back.sum(0)[None, :], HEAD_RATE * rate)
        step = self._step("head", error.T @ hidden, HEAD_RATE * rate)
        self._tables["shift"] -= step * error.sum(0)[:, None]
        return float((error * error).sum()) / len(batch)

    def _step(self, name: str, gradient: Any, rate: float) -> Any:
        """Change a table by Adagrad; return the rows' steps per gradient."""
        squares = self._tables[f"{name}_squares"]
        squares += (gradient * gradient).mean(1)[:, None]
        step = rate / self._torch.sqrt(squares)
        self._tables[name] -= step * gradient
        return step


def make_model(backend: str, state: State) -> Any:
    """The model of a backend; ``auto``: torch if it is here. Raises TrainerError.

    Earlier versions had a numpy backend: it is python.
    """
    if backend in ("torch", "auto"):
        try:
            import torch  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            if backend == "torch":
                text = f"the torch backend is not to be had here: {error}"
                raise TrainerError(EXIT_BACKEND, text) from None
        else:
            return TorchModel(state, torch)
    return PythonModel(state)


def evaluate_model(model: Any, variants: List[Variant]) -> Tuple[float, List[float]]:
    """Loss, and Pearson's correlation of each target."""
    outputs = model.predict(variants)
    loss = sum(
        (value - true) * (value - true)
        for output, variant in zip(outputs, variants)
        for value, true in zip(output, variant.values)
    )
    pairs = zip(zip(*outputs), zip(*[each.values for each in variants]))
    return loss / len(variants), [pearson(output, true) for output, true in pairs]


def pearson(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation; NaN if one of them does not vary."""
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    xx = sum((x - mean_a) * (x - mean_a) for x in a)
    yy = sum((y - mean_b) * (y - mean_b) for y in b)
    xy = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b))
    norm = math.sqrt(xx * yy) if xx * yy > 0.0 else 0.0
    return xy / norm if norm > 0.0 else float("nan")


def learning_rate(step: int, steps: int, most: float = RATE) -> float:
    """Rate of a step: rises to ``most``, then falls like a cosine (3p²-2p³)."""
    part = step / steps
    if part < WARMUP:
        return most * (step + 1) / (WARMUP * steps + 1)
    return most * (1.0 - part * part * (3.0 - 2.0 * part))


# --- checkpoints --------------------------------------------------------------------------


class BestEpoch(NamedTuple):
    """The best epoch (from 0) so far, its val_loss, and its file in checkpoints/."""

    epoch: int
    score: float
    file: str


class Checkpoint(NamedTuple):
    """A model after ``epochs`` complete epochs and ``step`` steps."""

    backend: str
    uuid: str
    seed: int
    data: str
    max_epochs: int
    epochs: int
    step: int
    best: Optional[BestEpoch]
    state: State


def pack(checkpoint: Checkpoint) -> bytes:
    """Encode: a magic line, a line of JSON, little-endian doubles, and their SHA-256."""
    state, best = checkpoint.state, checkpoint.best
    header = checkpoint._asdict()
    del header["state"]
    header["arrays"] = [[name, len(state[name])] for name in sorted(state)]
    header["best"] = best and [best.epoch, best.score.hex(), best.file]
    content = MAGIC + json.dumps(header, sort_keys=True).encode("ascii") + b"\n"
    for name in sorted(state):
        content += struct.pack(f"<{len(state[name])}d", *state[name])
    return content + hashlib.sha256(content).digest()


def unpack(content: bytes) -> Checkpoint:
    """Decode a checkpoint. Raises ValueError if it is damaged or something else."""
    body, digest = content[:-32], content[-32:]
    if not body.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
        raise ValueError("damaged")
    line, numbers = body[len(MAGIC) :].split(b"\n", 1)
    header = json.loads(line.decode("ascii"))
    state, at = {}, 0
    for name, length in header.pop("arrays"):
        state[name] = list(struct.unpack_from(f"<{length:d}d", numbers, at))
        at += 8 * length
    best = header.pop("best")
    best = best and BestEpoch(best[0], float.fromhex(best[1]), best[2])
    return Checkpoint(**header, best=best, state=state)


def read_checkpoint(path: str) -> Checkpoint:
    """Read a checkpoint. Raises TrainerError if it is damaged or another program's."""
    try:
        with open(path, "rb") as file:
            return unpack(file.read(MOST_BYTES))
    except OSError as error:
        raise TrainerError(EXIT_CHECKPOINT, f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, struct.error):
        text = f"{path} is no checkpoint of this trainer, or damaged; {REMEDY}"
        raise TrainerError(EXIT_CHECKPOINT, text) from None


def write(path: str, content: bytes) -> None:
    """Write a file atomically."""
    beside = path + ".tmp"
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def remove(path: str) -> None:
    """Remove a file if possible."""
    with contextlib.suppress(OSError):
        os.remove(path)


# --- METL's files -------------------------------------------------------------------------


class RunDirectory:
    """``<output>/training_logs/<uuid>``, with a new ``version_<k>`` for this start."""

    def __init__(self, output: str, uuid: str) -> None:
        # Relative, as METL has it: the absolute one differs from node to node.
        self.path = os.path.join(output, "training_logs", uuid)
        self.checkpoints = os.path.join(self.path, "checkpoints")
        self.last = os.path.join(self.checkpoints, "last.ckpt")
        os.makedirs(self.checkpoints, exist_ok=True)
        for name in os.listdir(self.checkpoints):
            if name.endswith(".tmp"):  # left by a process that was killed
                remove(os.path.join(self.checkpoints, name))
        versions = [re.fullmatch(r"version_(\d{1,9})", name) for name in os.listdir(self.path)]
        self.version = max([int(match.group(1)) + 1 for match in versions if match], default=0)
        self._logs = os.path.join(self.path, f"version_{self.version}")
        os.makedirs(self._logs)
        self._columns: Dict[str, None] = {}
        self._rows: List[Dict[str, object]] = []

    def log(self, name: str, content: str) -> None:
        """Write a file of this start."""
        data = content.encode("utf-8", "surrogateescape")
        write(os.path.join(self._logs, name), data)

    def add_metrics(self, step: int, **values: object) -> None:
        """Add a row to metrics.csv.

        As Lightning's CSVLogger: sparse rows, columns in the order of their appearance, CRLF.
        """
        self._rows.append(dict(values, step=step))
        self._columns.update(dict.fromkeys(self._rows[-1]))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, fieldnames=list(self._columns))
        writer.writeheader()
        writer.writerows(self._rows)
        self.log("metrics.csv", text.getvalue())

    def keep_only(self, best: Optional[BestEpoch]) -> None:
        """Remove checkpoints of earlier epochs: they would travel from job to job."""
        for name in os.listdir(self.checkpoints):
            if re.fullmatch(r"epoch=.*\.ckpt", name) and not (best and name == best.file):
                remove(os.path.join(self.checkpoints, name))


class ProgressLine:
    """tqdm's line as Lightning has it: steps of an epoch, mean of the last 20 losses."""

    def __init__(self, epoch: int, steps: int, version: int, stream: TextIO) -> None:
        self._epoch, self._steps, self._version = epoch, steps, version
        self._stream = stream
        self._start = time.monotonic()
        self._last_draw = self._start - REDRAW_SECONDS
        self._losses: List[float] = []

    def update(self, step: int, loss: Optional[float] = None) -> None:
        """Draw the line unless it was drawn a moment ago."""
        if loss is not None:
            self._losses = [*self._losses[-19:], loss]
        if time.monotonic() - self._last_draw >= REDRAW_SECONDS:
            self._last_draw = time.monotonic()
            self._draw(step, "")

    def end(self, val_loss: float) -> None:
        """Draw the line of a complete epoch."""
        self._draw(self._steps, f", val_loss={val_loss:.3g}")
        self._stream.write("\n")
        self._stream.flush()

    def _draw(self, step: int, more: str) -> None:
        line = progress_text(self._epoch, step, self._steps, time.monotonic() - self._start)
        if self._losses:
            mean = sum(self._losses) / len(self._losses)
            line += f", loss={mean:.3g}, v_num={self._version}{more}"
        self._stream.write("\r" + line + "]")
        self._stream.flush()


def progress_text(epoch: int, step: int, steps: int, seconds: float) -> str:
    """The line without its end: part, steps, time since the start, time left, speed."""
    rate = step / seconds if step and seconds > 0 else 0.0
    left = clock((steps - step) / rate) if rate else "?"
    speed = "?it/s" if not rate else f"{1 / rate:.2f}s/it" if rate < 1 else f"{rate:.2f}it/s"
    bar = ("#" * (10 * step // steps)).ljust(10)
    part = f"Epoch {epoch}: {100 * step / steps:3.0f}%|{bar}| {step}/{steps}"
    return f"{part} [{clock(seconds)}<{left}, {speed}"


def clock(seconds: float) -> str:
    """``MM:SS``, or ``H:MM:SS``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"


# --- training -----------------------------------------------------------------------------


def load_checkpoint(path: str, args: argparse.Namespace, data: DataSet) -> Optional[Checkpoint]:
    """The checkpoint to continue; None if there is none.

    Raises TrainerError if it is another run's, or not there although it was requested.
    """
    if not args.checkpoint and not os.path.exists(path):
        return None
    before = read_checkpoint(path)
    own: List[Tuple[str, object, object]] = [("seed", args.seed, before.seed)]
    # The first epoch of a later stage may have other data.
    if not 0 < args.schedule_from == before.epochs:
        own.append(("data", data.mark, before.data))
    if not args.checkpoint:
        own.append(("uuid", args.uuid, before.uuid))
    for name, here, there in own:
        if here != there:
            text = f"{path} is of another run: its {name} is {there}, here it is {here}; {REMEDY}"
            raise TrainerError(EXIT_CHECKPOINT, text)
    return before._replace(state=average_state(before, os.path.dirname(path), args.machines))


def average_state(before: Checkpoint, folder: str, machines: int) -> State:
    """The average of all machines' numbers after the checkpoint's epoch."""
    states = [before.state]
    for rank in range(1, machines):
        path = os.path.join(folder, RANK_FILE.format(rank))
        if os.path.exists(path):
            other = read_checkpoint(path)
            if (other.uuid, other.seed, other.epochs) == (before.uuid, before.seed, before.epochs):
                states.append(other.state)
    return {
        name: [sum(values) / len(states) for values in zip(*[state[name] for state in states])]
        for name in before.state
    }


def start_checkpoint(
    args: argparse.Namespace, data: DataSet, before: Optional[Checkpoint]
) -> Checkpoint:
    """What to start with. Raises TrainerError if the numbers of ``before`` do not fit."""
    targets = len(data.targets)
    start = Checkpoint(
        backend=args.backend,
        uuid=args.uuid,
        seed=args.seed,
        data=data.mark,
        max_epochs=args.max_epochs,
        epochs=0,
        step=0,
        best=None,
        state=first_state(data.rows, targets, args.seed, args.hidden),
    )
    if before is None:
        return start
    state, best = dict(before.state), before.best
    if before.data != data.mark:
        best = None
        if len(state["shift"]) != targets:
            state.update({name: start.state[name] for name in ("head", "shift", "head_squares")})
    for name, values in start.state.items():
        if len(state.get(name, ())) != len(values):
            text = f"the checkpoint's {name} is not of this model's size; {REMEDY}"
            raise TrainerError(EXIT_CHECKPOINT, text)
    return start._replace(epochs=before.epochs, step=before.step, best=best, state=state)


def epoch_batches(
    args: argparse.Namespace, data: DataSet, epoch: int
) -> Iterator[Tuple[List[Variant], float]]:
    """The batches of this machine in an epoch (from 0), and their learning rates."""
    order = shuffled(len(data.train), generator("order", args.seed, epoch))
    steps = -(-len(order) // (args.batch_size * args.machines))
    first = min(epoch, args.schedule_from)
    horizon = steps * (args.max_epochs - first)
    for step in range(steps):
        at = (step * args.machines + args.rank) * args.batch_size
        # The last batches may not suffice for all machines: then one is used twice.
        at = at if at < len(order) else (at - args.batch_size) % len(order)
        rate = learning_rate((epoch - first) * steps + step, horizon, args.learning_rate)
        yield [data.train[i] for i in order[at : at + args.batch_size]], rate


class Training:
    """One start of the trainer for one run of the ensemble."""

    def __init__(self, args: argparse.Namespace, out: TextIO) -> None:
        self._args, self._out = args, out
        self._folder = RunDirectory(args.output, args.uuid)
        self._print(f"This is version: {self._folder.version}")
        self._log_arguments()
        self._data = load_data(args.data)
        path = args.checkpoint or self._folder.last
        before = load_checkpoint(path, args, self._data)
        if before is None:
            self._print("No checkpoint found, training from scratch")
        else:
            if before.max_epochs != args.max_epochs:
                self._print(
                    f"The learning rate's horizon was {before.max_epochs} epochs "
                    f"and is {args.max_epochs} from here on"
                )
            self._print(f"Found checkpoint, resuming training from: {path}")
        self._progress = start_checkpoint(args, self._data, before)
        self._model = make_model(args.backend, self._progress.state)
        # Not by the seed: a retry must be able to succeed.
        system = random.SystemRandom()
        steps = len(list(epoch_batches(args, self._data, self._progress.epochs)))
        self._fail_step = system.randrange(steps) if system.random() < args.fail_rate else -1

    def _print(self, text: str) -> None:
        # A job often has no locale: Python 3.6 then cannot print a path's accents.
        self._out.write(text.encode("ascii", "backslashreplace").decode() + "\n")
        self._out.flush()

    def _log_arguments(self) -> None:
        """``args.txt`` as METL's save_args writes it, and ``hparams.yaml``."""
        args = self._args
        values = sorted(vars(args).items())
        lines = [f"--{name}\n{value}\n" for name, value in values if value is not None]
        self._folder.log("args.txt", "".join(lines))
        self._folder.log(
            "hparams.yaml",
            f"batch_size: {args.batch_size}\nembedding_len: {args.hidden}\n"
            f"learning_rate: {args.learning_rate}\nmax_epochs: {args.max_epochs}\n"
            f"model_name: sparse_embedding\nrandom_seed: {args.seed}\n"
            f"uuid: {json.dumps(args.uuid)}\n",
        )

    def train(self) -> None:
        """Train until --stop-after-epoch, then test the best epoch."""
        last = self._args.stop_after_epoch
        self._folder.keep_only(self._progress.best)
        if self._progress.epochs >= last:
            self._print(f"Epoch {last} is trained already")
        while self._progress.epochs < last:
            self._train_epoch()
        self._test()

    def _train_epoch(self) -> None:
        start = time.monotonic()
        args, epoch, step = self._args, self._progress.epochs, self._progress.step
        batches = list(epoch_batches(args, self._data, epoch))
        steps = len(batches) + -(-len(self._data.validate) // args.batch_size)
        line = ProgressLine(epoch, steps, self._folder.version, self._out)
        line.update(0)
        mean = 0.0
        for at, (batch, rate) in enumerate(batches):
            if at == self._fail_step:
                self._print("")
                raise TrainerError(EXIT_FAILED, "failed on purpose, as --fail-rate asks for")
            loss = self._model.learn(batch, rate)
            self._diverge(epoch)
            mean += loss / len(batches)
            if (step + 1) % LOG_EVERY == 0:
                self._folder.add_metrics(step, **{"lr-Adagrad": rate})
                self._folder.add_metrics(step, train_loss_step=loss, epoch=epoch)
            step += 1
            wait_until(start + args.slow_factor * (at + 1) / steps)
            line.update(at + 1, loss)
        val_loss, _ = evaluate_model(self._model, self._data.validate)
        wait_until(start + args.slow_factor)
        line.end(val_loss)
        self._end_epoch(step, mean, val_loss)

    def _diverge(self, epoch: int) -> None:
        """Raise the loss in the epoch of --diverge-at; make it NaN after that."""
        first = self._args.diverge_at - 1
        if 0 <= first <= epoch:
            state = self._model.state()
            factor = 1.03 if epoch == first else 1e300
            state["head"] = [weight * factor for weight in state["head"]]
            self._model = make_model(self._args.backend, state)

    def _end_epoch(self, step: int, mean: float, val_loss: float) -> None:
        """Write metrics first, the checkpoint last.

        An epoch that is evicted between them is trained and logged again, never lost.
        """
        epoch, best, state = self._progress.epochs, self._progress.best, self._model.state()
        # Any loss is better than NaN.
        better = (
            best is None or val_loss < best.score or math.isnan(best.score) > math.isnan(val_loss)
        )
        if better:
            # Lightning's step counts from 0 in rows and from 1 in names of files (since 1.6).
            best = BestEpoch(
                epoch, val_loss, f"epoch={epoch}-step={step}-val_loss={val_loss:.2f}.ckpt"
            )
        more = {"val_loss_best": val_loss} if better else {}
        self._folder.add_metrics(step - 1, epoch=epoch, val_loss=val_loss, **more)
        self._folder.add_metrics(step - 1, epoch=epoch, train_loss_epoch=mean)
        self._progress = self._progress._replace(
            epochs=epoch + 1, step=step, best=best, state=state
        )
        if better and best is not None:
            path = os.path.join(self._folder.checkpoints, best.file)
            weights = {name: state[name] for name in WEIGHTS}
            write(path, pack(self._progress._replace(state=weights)))
            self._print(
                f"Epoch {epoch}, global step {step}: 'val_loss' reached {val_loss:.5f}, "
                f"saving model to {path!r}"
            )
        write(self._folder.last, pack(self._progress))
        self._folder.keep_only(best)

    def _test(self) -> None:
        """Write ``metrics.txt`` of the best epoch, as METL's save_metrics_ptl does."""
        model, lines, best = self._model, [], self._progress.best
        if best is not None:
            path = os.path.join(self._folder.checkpoints, best.file)
            lines = [f"best_model_path,{path}", f"best_model_score,{best.score!r}"]
            try:
                model = make_model(self._args.backend, read_checkpoint(path).state)
            except TrainerError as error:
                self._print(f"Testing the last epoch instead of the best: {error}")
        loss, correlations = evaluate_model(model, self._data.test)
        names = [f"test/pearson_{name}" for name in self._data.targets]
        values = dict(zip(["test_loss", *names], [loss, *correlations]))
        self._folder.add_metrics(self._progress.step, **values, epoch=self._progress.epochs)
        lines += [f"{name},{value!r}" for name, value in values.items()]
        self._folder.log("metrics.txt", "\n".join(lines) + "\n")
        self._print(f"{names[0]} {correlations[0]:.4f}")


def train_part(args: argparse.Namespace, out: TextIO) -> None:
    """Train as a machine of another rank than 0, which only returns its numbers.

    Each of K machines trains on every K-th batch of an epoch. The next epoch starts with the
    average of their numbers, which HTCondor brings there with the run's folder: no machine waits
    for another one, and they need no network between them. Checkpoint and metrics are rank 0's.
    """
    data = load_data(args.data)
    folder = os.path.join(args.output, "training_logs", args.uuid, "checkpoints")
    before = load_checkpoint(args.checkpoint or os.path.join(folder, "last.ckpt"), args, data)
    progress = start_checkpoint(args, data, before)
    model = make_model(args.backend, progress.state)
    steps = 0
    for epoch in range(progress.epochs, args.stop_after_epoch):
        for batch, rate in epoch_batches(args, data, epoch):
            model.learn(batch, rate)
            steps += 1
    progress = progress._replace(epochs=args.stop_after_epoch, state=model.state())
    shutil.rmtree(args.output)  # rank 0 brings the run's folder back
    os.makedirs(folder)
    write(os.path.join(folder, RANK_FILE.format(args.rank)), pack(progress))
    out.write(f"Did {steps} steps as machine {args.rank} of {args.machines}\n")


def wait_until(moment: float) -> None:
    """Sleep until this time of the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))


# --- evaluation and predictions ------------------------------------------------------------


def evaluate(args: argparse.Namespace, out: TextIO) -> None:
    """Test a run's newest checkpoint into ``evaluation/``, read as the run's, too."""
    folder = os.path.join("training_logs", args.uuid)
    path = args.checkpoint or os.path.join(args.output, folder, "checkpoints", "last.ckpt")
    checkpoint, data = read_checkpoint(path), load_data(args.data)
    model = make_model(checkpoint.backend, checkpoint.state)
    loss, correlations = evaluate_model(model, data.test)
    names = [f"eval/pearson_{name}" for name in data.targets]
    epoch = checkpoint.epochs - 1
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["epoch", "step", "eval_loss", *names])
    writer.writerow([epoch, checkpoint.step, repr(loss), *map(repr, correlations)])
    folder = os.path.join("evaluation", folder, f"version_{args.evaluate}")
    os.makedirs(folder, exist_ok=True)
    write(os.path.join(folder, "metrics.csv"), text.getvalue().encode("utf-8"))
    out.write(f"Epoch {epoch}: eval_loss {loss:.5f}, {names[0]} {correlations[0]:.4f}\n")


def infer(args: argparse.Namespace, out: TextIO) -> None:
    """Predict a part of all variants with --substitutions changes: ``predictions/``."""
    shard, shards = args.infer
    start = time.monotonic()
    if args.checkpoint:
        checkpoint = read_checkpoint(transferred(args.checkpoint))
        model = make_model(checkpoint.backend, checkpoint.state)
    else:
        rows = len(WILD_TYPE) * len(ALPHABET)
        model = PythonModel(first_state(rows, len(TARGETS), args.seed))
    variants = itertools.islice(every_variant(args.substitutions), shard, None, shards)
    lines = ["\t".join(["variant", *TARGETS])]
    while True:
        batch = list(itertools.islice(variants, 1024))
        if not batch:
            break
        outputs = model.predict([Variant(rows_of(changes), ()) for changes in batch])
        for changes, output in zip(batch, outputs):
            lines.append("\t".join([name_of(changes), *(f"{value:.6g}" for value in output)]))
    wait_until(start + args.slow_factor)
    content = ("\n".join(lines) + "\n").encode("ascii")
    write(os.path.join("predictions", f"shard_{shard}.tsv"), content)
    out.write(f"{len(lines) - 1} variants in shard {shard} of {shards}\n")


def every_variant(substitutions: int) -> Iterator[Changes]:
    """All variants of GB1 with this number of substitutions."""
    for positions in itertools.combinations(range(len(WILD_TYPE)), substitutions):
        others = [ALPHABET[1:].replace(WILD_TYPE[at], "") for at in positions]
        for residues in itertools.product(*others):
            yield dict(zip(positions, residues))


def name_of(changes: Changes) -> str:
    """METL's name of a variant, as ``A24G,K10R``."""
    return ",".join(f"{WILD_TYPE[at]}{at}{changes[at]}" for at in sorted(changes))


def gather(args: argparse.Namespace, out: TextIO) -> None:
    """Join the parts in ``predictions/``, the lowest prediction first."""
    header, rows = "", []
    for shard in range(args.gather):
        path = os.path.join("predictions", f"shard_{shard}.tsv")
        try:
            with open(path, encoding="ascii") as file:
                header, *lines = file.read().splitlines()
        except (OSError, ValueError) as error:
            raise TrainerError(EXIT_DATA, f"{path}: cannot be read: {error}") from None
        rows += [(float(line.split("\t")[1]), line) for line in lines]
    text = "\n".join([header, *(line for _, line in sorted(rows))]) + "\n"
    write(os.path.join("gathered", "predictions.tsv"), text.encode("ascii"))
    out.write(f"{len(rows)} variants of {args.gather} shards\n")


# --- the program --------------------------------------------------------------------------


def first_start() -> bool:
    """Whether HTCondor starts this job for the first time; true outside a job.

    The file that _CONDOR_JOB_AD names is the job's ad (manual, "Environment and services for a
    running job"); its NumJobStarts does not count this start.
    """
    try:
        with open(os.environ["_CONDOR_JOB_AD"], "rb") as file:
            match = re.search(rb"^NumJobStarts\s*=\s*(\d+)", file.read(), re.MULTILINE)
    except (KeyError, OSError):
        return True
    return match is None or int(match.group(1)) == 0


def _on_terminate(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise TerminationSignal


def _on_alarm(number: int, frame: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def parse_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    """Parse the command line. Exits with status 2 on a mistake."""
    parser = argparse.ArgumentParser(
        prog="train.py", description="Train a small protein model, epoch by epoch."
    )
    add = parser.add_argument
    # fmt: off
    add("--uuid", type=_name, help="name of the run, and of its folder (default: from the seed)")
    add("--seed", type=_count, default=1, help="where the weights start (default: 1)")
    add("--max-epochs", type=_positive, default=30, metavar="N",
        help="epochs of the whole run: the learning rate's horizon (default: 30)")
    add("--stop-after-epoch", type=_positive, metavar="N",
        help="stop when N epochs are complete, those of earlier jobs included (default: all)")
    add("--data", metavar="FILE", help="table of variants and scores, instead of generated ones")
    add("--backend", choices=("python", "numpy", "torch", "auto"), default="python",
        help="auto: torch if this machine has it, else python; numpy is python")
    add("--checkpoint", metavar="FILE", help="continue this one instead of the run's last.ckpt")
    add("--output", default="output", metavar="DIR", help="(default: output)")
    add("--learning-rate", type=_rate, default=RATE, metavar="R",
        help=f"the highest one of the schedule (default: {RATE})")
    add("--batch-size", type=_positive, default=BATCH, metavar="N", help=f"(default: {BATCH})")
    add("--hidden", type=_positive, default=HIDDEN, metavar="N",
        help=f"length of a substitution's embedding (default: {HIDDEN})")
    add("--schedule-from", type=_count, default=0, metavar="N",
        help="epochs of the stages before this one: the learning rate starts anew after them")
    add = parser.add_argument_group("evaluation and predictions").add_argument
    add("--evaluate", type=_positive, metavar="EPOCH",
        help="test the run's newest checkpoint; EPOCH (from 1) names the result's folder")
    add("--infer", type=_shard, metavar="I/N", help="predict part I (from 0) of N")
    add("--gather", type=_positive, metavar="N", help="join N predicted parts")
    add("--substitutions", type=int, choices=(1, 2), default=1,
        help="of the variants that are predicted (default: 1)")
    add = parser.add_argument_group("several machines for an epoch").add_argument
    add("--machines", type=_positive, default=1, metavar="K", help="(default: 1)")
    add("--rank", type=_count, default=0, metavar="R",
        help="which of them this is; rank 0 has the run")
    add("--rendezvous", metavar="FILE", help="not used; earlier versions met there")
    add = parser.add_argument_group("for demonstrations and tests").add_argument
    add("--slow-factor", type=_seconds, default=0.0, metavar="SECONDS",
        help="least duration of an epoch")
    add("--fail-rate", type=_probability, default=0.0, metavar="P",
        help="fail with probability P (0 to 1) by exit status 1 in the first epoch of a start")
    add("--evict-after", type=_seconds, default=0.0, metavar="SECONDS",
        help="end by SIGTERM after that time, as if evicted; only at a job's first start")
    add("--diverge-at", type=_count, default=0, metavar="EPOCH",
        help="let the loss rise in this epoch (from 1), and be NaN after it")
    # fmt: on
    args = parser.parse_args(argv)
    if args.stop_after_epoch is None:
        args.stop_after_epoch = args.max_epochs
    if args.stop_after_epoch > args.max_epochs:
        parser.error("--stop-after-epoch is beyond --max-epochs, the end of the run")
    if args.rank >= args.machines:
        parser.error("--rank is beyond --machines: they count from 0")
    if args.uuid is None:
        args.uuid = hashlib.sha256(f"seed {args.seed}".encode()).hexdigest()[:8]
    return args


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", text):
        raise argparse.ArgumentTypeError("letters, digits, '_', '-' and '.' make a name")
    return text


def _shard(text: str) -> Tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or int(match.group(1)) >= int(match.group(2)):
        raise argparse.ArgumentTypeError("a part and their number, as 0/8, are expected")
    return int(match.group(1)), int(match.group(2))


def _number(text: str, least: float, most: float, kind: type = float) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"a number from {least:g} to {most:g} is expected")
    return value


_count = functools.partial(_number, least=0, most=10**18 - 1, kind=int)
_positive = functools.partial(_number, least=1, most=10**18 - 1, kind=int)
_seconds = functools.partial(_number, least=0.0, most=1e8)
_rate = functools.partial(_number, least=1e-300, most=1e8)
_probability = functools.partial(_number, least=0.0, most=1.0)


def run_task(args: argparse.Namespace, out: TextIO) -> None:
    """Do what this start is for.

    The folder that HTCondor brings back is made before anything can fail: a job without it is
    held, and would neither fail nor be tried again.
    """
    if args.evaluate:
        os.makedirs("evaluation", exist_ok=True)
        evaluate(args, out)
    elif args.infer:
        os.makedirs("predictions", exist_ok=True)
        infer(args, out)
    elif args.gather:
        os.makedirs("gathered", exist_ok=True)
        gather(args, out)
    elif args.rank:
        os.makedirs(args.output, exist_ok=True)
        train_part(args, out)
    else:
        Training(args, out).train()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the program; return its exit status, or end by SIGTERM."""
    args = parse_arguments(argv)
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        if args.evict_after and first_start():
            signal.signal(signal.SIGALRM, _on_alarm)
            signal.setitimer(signal.ITIMER_REAL, args.evict_after)
        run_task(args, sys.stdout)
    except TrainerError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        text = f"train.py: {where}cannot be written: {error.strerror or error}"
        print(text, file=sys.stderr)
        return EXIT_OUTPUT
    except TerminationSignal:
        print("train.py: ended by SIGTERM; complete epochs are kept", file=sys.stderr)
        sys.stderr.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# ruff: noqa: UP006, UP035, UP045, B905 (Python 3.6 has none of what they ask for)
"""Train a small protein model for one epoch, or some: one file that needs Python 3.6 and no more.

It is what a job of an ensemble runs on an execute node, so it imports nothing of metlmon and
nothing that is not in the standard library (numpy and torch when one asks for them).

    train.py --uuid 75f86c77 --seed 1 --max-epochs 30 --stop-after-epoch 1
    train.py --uuid 75f86c77 --seed 1 --max-epochs 30 --stop-after-epoch 2    # goes on from there
    train.py --uuid 75f86c77 --seed 1 --evaluate 2                 # tests it, beside its training
    train.py --checkpoint last.ckpt --infer 0/8                    # predicts a part of all variants
    train.py --gather 8                                            # puts the 8 parts together
    train.py … --machines 2 --rank 0 --rendezvous address          # with another one of --rank 1

The task is METL's in small: predict energies of variants of the GB1 domain from their
substitutions. Energies are computed from published residue scales and a contact list; no
measured value comes along. ``--data`` takes a table of variants and scores instead.

Files are those of METL (train_source_model.py) with PyTorch Lightning 1.7.7:

    output/training_logs/<uuid>/checkpoints/last.ckpt
    output/training_logs/<uuid>/checkpoints/epoch=<e>-step=<s>-val_loss=<v>.ckpt    the best one
    output/training_logs/<uuid>/version_<k>/{args.txt,hparams.yaml,metrics.csv,metrics.txt}

version_<k> is the k-th start, from 0. Epochs in files and in the progress line count from 0,
those of the arguments from 1.

The same seed gives the same bytes of last.ckpt, wherever and in however many jobs the epochs
ran. So nothing here that touches a weight uses what may differ between two machines or two
Pythons: no sum() (compensated since 3.12), no ``**``, no tanh or cos of the C library, no
shuffle(); only + - * / and sqrt, which IEEE 754 fixes. The numpy and torch backends promise
the same between two jobs on the same kind of machine, not between two kinds.

Exit status: 0 trained, 1 failed on purpose (--fail-rate), 2 wrong arguments, 4 a checkpoint that
is damaged or another run's, 5 unusable data, 6 a backend that is not there, 7 the output cannot
be written, 8 the other machines are not there or got lost. SIGTERM, which HTCondor sends when it
takes a job's slot away, ends it by that signal: every file is as it was after the last complete
epoch.
"""

import argparse
import csv
import hashlib
import importlib
import io
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import struct
import sys
import time
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    TextIO,
    Tuple,
)

EXIT_FAILED = 1
EXIT_CHECKPOINT = 4
EXIT_DATA = 5
EXIT_BACKEND = 6
EXIT_OUTPUT = 7
EXIT_PEERS = 8

HIDDEN = 8
"""Numbers by which a substitution is embedded. 8 reach a Pearson of 0.95 in four epochs."""

BATCH = 32
RATE = 0.2
"""Of Adagrad with one accumulator a row, which takes far larger steps than Adam."""

HEAD = 0.3
"""The head's and the bias's part of RATE: every variant moves them, a substitution few do."""

WARMUP = 0.02
"""Part of all steps in which the rate rises, METL's default."""

TRAIN, VALIDATE, TEST = 4096, 384, 512
"""Generated variants. An epoch of the python backend takes about 0.1 s with them."""

LOG_EVERY = 50
"""Steps between two rows of a training loss: Lightning's default."""

BAR_SECONDS = 0.1
"""Least time between two progress lines, tqdm's default."""

AVERAGE_EVERY = 8
"""Steps of each machine between two averages: every one of them waits for the slowest."""

PATIENCE = 1800.0
"""Seconds for all machines of an epoch to be there, and for the slowest to do its steps."""

GREETING = 10.0
"""Seconds for whoever connects to say who it is."""

MAGIC = b"metlmon trainer checkpoint 1\n"


class Trouble(Exception):
    """Why it cannot go on: one sentence, and the exit status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Terminated(Exception):
    """SIGTERM came."""


# --- the task -----------------------------------------------------------------------------

WILD_TYPE = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
"""GB1, the B1 domain of streptococcal protein G (PDB 2GB1)."""

ALPHABET = "*ACDEFGHIKLMNPQRSTVWY"
"""In METL's order; * is a stop, which measured data sets have."""

# fmt: off
HYDROPATHY = {
    "A": 1.8, "R": -4.5, "N": -3.5, "D": -3.5, "C": 2.5, "Q": -3.5, "E": -3.5, "G": -0.4, "H": -3.2,
    "I": 4.5, "L": 3.8, "K": -3.9, "M": 1.9, "F": 2.8, "P": -1.6, "S": -0.8, "T": -0.7, "W": -0.9,
    "Y": -1.3, "V": 4.2,
}
"""Kyte and Doolittle, J. Mol. Biol. 157 (1982) 105."""

VOLUME = {
    "A": 88.6, "R": 173.4, "N": 114.1, "D": 111.1, "C": 108.5, "Q": 143.8, "E": 138.4, "G": 60.1,
    "H": 153.2, "I": 166.7, "L": 166.7, "K": 168.6, "M": 162.9, "F": 189.9, "P": 112.7, "S": 89.0,
    "T": 116.1, "W": 227.8, "Y": 193.6, "V": 140.0,
}
"""Cubic ångströms; Zamyatnin, Prog. Biophys. Mol. Biol. 24 (1972) 107."""

HELIX = {
    "A": 1.42, "R": 0.98, "N": 0.67, "D": 1.01, "C": 0.70, "Q": 1.11, "E": 1.51, "G": 0.57,
    "H": 1.00, "I": 1.08, "L": 1.21, "K": 1.16, "M": 1.45, "F": 1.13, "P": 0.57, "S": 0.77,
    "T": 0.83, "W": 1.08, "Y": 0.69, "V": 1.06,
}
"""Chou and Fasman, Adv. Enzymol. 47 (1978) 45, and so are those of the strand."""

STRAND = {
    "A": 0.83, "R": 0.93, "N": 0.89, "D": 0.54, "C": 1.19, "Q": 1.10, "E": 0.37, "G": 0.75,
    "H": 0.87, "I": 1.60, "L": 1.30, "K": 0.74, "M": 1.05, "F": 1.38, "P": 0.55, "S": 0.75,
    "T": 1.19, "W": 1.37, "Y": 1.47, "V": 1.70,
}

# fmt: on
CHARGE = {"D": -1.0, "E": -1.0, "K": 1.0, "R": 1.0}
"""At pH 7."""

STRANDS = ((1, 8), (13, 20), (42, 46), (51, 55))
HELICES = ((23, 36),)
CORE = (3, 5, 20, 26, 30, 34, 39, 43, 52, 54)
"""Secondary structure and buried residues (from 1) as Gallagher et al., Biochemistry 33
(1994) 4721, describe them for the crystal structures 1PGA and 1PGB."""

TARGETS = ("total_score", "burial", "packing", "charge", "propensity")


def contacts() -> List[Tuple[int, int]]:
    """Pairs of residues (from 1) that touch in the idealised fold: the ladders of the two
    hairpins, the parallel one of the first and the last strand, turns of the helix, and the
    core."""
    pairs = {(i, 21 - i) for i in range(1, 9)}
    pairs |= {(i, 97 - i) for i in range(42, 47)}
    pairs |= {(i, i + 48) for i in range(3, 8)}
    pairs |= {(i, i + 4) for i in range(23, 33)}
    pairs |= {(a, b) for a in CORE for b in CORE if a < b}
    return sorted(pairs)


class Variant(NamedTuple):
    """One row of the data: rows of the embedding, one for each substitution, and what to
    predict."""

    rows: Tuple[int, ...]
    values: Tuple[float, ...]


class Data(NamedTuple):
    """``rows``: how many the embedding has. ``mark`` tells one data set from another. Values
    are standardised by the training set's mean and deviation."""

    targets: Tuple[str, ...]
    rows: int
    mark: str
    train: List[Variant]
    validate: List[Variant]
    test: List[Variant]


class Fold:
    """Energies of a variant of GB1, as differences from the wild type's."""

    def __init__(self) -> None:
        self._partners: List[List[int]] = [[] for _ in WILD_TYPE]
        for a, b in contacts():
            self._partners[a - 1].append(b - 1)
            self._partners[b - 1].append(a - 1)
        self._scale: List[Optional[Dict[str, float]]] = [None for _ in WILD_TYPE]
        for spans, scale in ((STRANDS, STRAND), (HELICES, HELIX)):
            for first, last in spans:
                for position in range(first, last + 1):
                    self._scale[position - 1] = scale

    def energies(self, changes: Dict[int, str]) -> Tuple[float, ...]:
        """Of the variant with these residues (position from 0), in the order of TARGETS."""
        burial = packing = charge = propensity = 0.0
        for position, residue in changes.items():
            wild = WILD_TYPE[position]
            exposed = 2.5 - len(self._partners[position])
            burial += 0.2 * exposed * (HYDROPATHY[residue] - HYDROPATHY[wild])
            scale = self._scale[position]
            if scale is not None:
                propensity -= scale[residue] - scale[wild]
            for partner in self._partners[position]:
                other = changes.get(partner)
                if other is not None and partner < position:
                    continue  # counted from the other side
                gap = VOLUME[residue] - VOLUME[wild]
                near = WILD_TYPE[partner]
                if other is not None:
                    gap += VOLUME[other] - VOLUME[near]
                packing += 1e-4 * gap * gap
                charge += CHARGE.get(residue, 0.0) * CHARGE.get(other or near, 0.0)
                charge -= CHARGE.get(wild, 0.0) * CHARGE.get(near, 0.0)
        total = burial + packing + 2.0 * charge + 3.0 * propensity
        return total, burial, packing, charge, propensity


def draws(*purpose: object) -> random.Random:
    """A generator of its own for every purpose, so that no epoch depends on how many numbers
    another one drew. Only ``random()`` of it is used: the one sequence that Python promises."""
    text = " ".join(str(each) for each in purpose)
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def shuffled(count: int, source: random.Random) -> List[int]:
    """0 … count-1 in random order."""
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = int(source.random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def generated() -> Data:
    """Variants of GB1 with one to five random substitutions. The same for every seed: runs
    of an ensemble differ in where they start, and are judged by the same test set."""
    source = draws("gb1 variants", 1)
    fold = Fold()
    residues = ALPHABET[1:]
    raw = []
    for _ in range(TRAIN + VALIDATE + TEST):
        changes: Dict[int, str] = {}
        wanted = 1 + int(source.random() * 5)
        while len(changes) < wanted:
            position = int(source.random() * len(WILD_TYPE))
            others = residues.replace(WILD_TYPE[position], "")
            changes[position] = others[int(source.random() * len(others))]
        raw.append(Variant(rows_of(changes), fold.energies(changes)))
    return split(TARGETS, len(WILD_TYPE) * len(ALPHABET), "gb1-1", raw, TRAIN, VALIDATE)


def rows_of(changes: Dict[int, str]) -> Tuple[int, ...]:
    size = len(ALPHABET)
    return tuple(at * size + ALPHABET.index(changes[at]) for at in sorted(changes))


def split(
    targets: Tuple[str, ...], rows: int, mark: str, raw: List[Variant], train: int, validate: int
) -> Data:
    """The first ``train`` variants to learn from, ``validate`` to choose by, the rest to test."""
    means, scales = [], []
    for k in range(len(targets)):
        total = square = 0.0
        for each in raw[:train]:
            total += each.values[k]
        mean = total / train
        for each in raw[:train]:
            square += (each.values[k] - mean) * (each.values[k] - mean)
        means.append(mean)
        scales.append(math.sqrt(square / train) or 1.0)
    done = [
        Variant(each.rows, tuple((v - m) / s for v, m, s in zip(each.values, means, scales)))
        for each in raw
    ]
    cut = train + validate
    return Data(targets, rows, mark, done[:train], done[train:cut], done[cut:])


# --- somebody's own data ------------------------------------------------------------------

_SUBSTITUTION = re.compile(r"([*A-Z])(\d{1,5})([*A-Z])")
MOST_POSITIONS = 5000
"""Longer than any protein that is scanned; a position beyond it is a slip."""

FEWEST = 20
"""Variants below which the three sets could not be told from noise."""


def read_data(path: str) -> Data:
    """Data from a table with tabulators as METL reads it: a header with ``variant`` and at
    least one column whose name has ``score`` in it; variants as ``A24G,K10R`` (numbers from 0
    or 1, of any protein) or ``_wt``. Rows without all scores are left out.

    Raises Trouble that names file and line.
    """
    if not os.path.exists(path):
        # HTCondor puts an absolute path's file into the job's directory by its name alone.
        path = os.path.basename(path)
    try:
        with open(path, "rb") as file:
            content = file.read()
        lines = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except OSError as error:
        raise Trouble(EXIT_DATA, f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Trouble(EXIT_DATA, f"{path}: not a text in UTF-8") from None
    header = lines[0].split("\t")
    columns = [at for at, name in enumerate(header) if "score" in name.lower()]
    if "variant" not in header or not columns:
        raise Trouble(
            EXIT_DATA,
            f"{path}:1: the header must name 'variant' and a column with 'score' in its name, "
            "with tabulators between",
        )
    # The main one first, as it is in the generated data.
    columns.sort(key=lambda at: (header[at] != "total_score", header[at] != "score", at))
    table = _Table(path)
    table.read(lines[1:], header.index("variant"), columns)
    count = len(table.variants)
    if count < FEWEST:
        raise Trouble(
            EXIT_DATA,
            f"{path}: {count} usable variants; at least {FEWEST} are needed",
        )
    targets = tuple(header[at] for at in columns)
    order = shuffled(count, draws("split", 1))
    positions = [position for changes, _ in table.variants for position in changes]
    if not positions:
        raise Trouble(EXIT_DATA, f"{path}: no variant has a substitution; nothing is to be learned")
    first, last = min(positions), max(positions)
    if last - first >= MOST_POSITIONS:
        raise Trouble(
            EXIT_DATA,
            f"{path}: positions from {first} to {last}; "
            f"a protein of at most {MOST_POSITIONS} residues is expected",
        )
    raw = [
        Variant(rows_of({at - first: to for at, to in changes.items()}), values)
        for changes, values in (table.variants[at] for at in order)
    ]
    if table.skipped:
        print(f"Left out {table.skipped} variants without all scores")
    mark = hashlib.sha256(content).hexdigest()[:16]
    rows = (last - first + 1) * len(ALPHABET)
    return split(targets, rows, mark, raw, count * 8 // 10, count // 10)


class _Table:
    """Variants of a table: (position: residue, scores)."""

    def __init__(self, path: str) -> None:
        self.variants: List[Tuple[Dict[int, str], Tuple[float, ...]]] = []
        self.skipped = 0
        self._path = path
        self._wild: Dict[int, str] = {}

    def read(self, lines: List[str], variant: int, columns: List[int]) -> None:
        for number, line in enumerate(lines, start=2):
            if not line.strip():
                continue
            cells = line.split("\t")
            if len(cells) <= max(variant, *columns):
                self._refuse(number, "fewer columns than the header has")
            changes = self._changes(number, cells[variant].strip())
            values = tuple(self._score(number, cells[at]) for at in columns)
            if all(-1e300 < value < 1e300 for value in values):
                self.variants.append((changes, values))
            else:
                self.skipped += 1

    def _score(self, number: int, cell: str) -> float:
        try:
            return float(cell.strip() or "nan")
        except ValueError:
            self._refuse(number, f"{cell[:40]!r} is no number")

    def _changes(self, number: int, text: str) -> Dict[int, str]:
        changes: Dict[int, str] = {}
        for part in text.split(",") if text not in ("", "_wt") else ():
            match = _SUBSTITUTION.fullmatch(part.strip())
            if match is None or match.group(3) not in ALPHABET:
                self._refuse(number, f"{part[:40]!r} is no substitution like A24G")
            position = int(match.group(2))
            wild = self._wild.setdefault(position, match.group(1))
            if wild != match.group(1):
                text = f"{part.strip()} stands where a line above has {wild}"
                self._refuse(number, text + str(position))
            changes[position] = match.group(3)
        return changes

    def _refuse(self, number: int, why: str) -> NoReturn:
        raise Trouble(EXIT_DATA, f"{self._path}:{number}: {why}")


# --- the model ----------------------------------------------------------------------------
# hidden = tanh(bias + the embedding's rows of the substitutions), out = head · hidden + shift.
# Each row of the embedding and of the head has one accumulator of squared gradients
# (Adagrad, by rows).

WEIGHTS = ("embedding", "bias", "head", "shift")
OPTIMIZER = ("embedding_squares", "bias_squares", "head_squares")

State = Dict[str, List[float]]
"""All numbers of a model, by name: what a checkpoint holds."""

TINY = 1e-8


def first_state(rows: int, targets: int, seed: int, hidden: int = HIDDEN) -> State:
    """What a run of this seed starts with. ``hidden``: numbers by which each is embedded."""
    source = draws("weights", seed)
    return {
        "embedding": [0.2 * (source.random() - 0.5) for _ in range(rows * hidden)],
        "bias": [0.0] * hidden,
        "head": [source.random() - 0.5 for _ in range(targets * hidden)],
        "shift": [0.0] * targets,
        "embedding_squares": [TINY] * rows,
        "bias_squares": [TINY],
        "head_squares": [TINY] * targets,
    }


def tanh(x: float) -> float:
    """By its continued fraction, to 1e-4: the C library's differs between machines."""
    if x > 4.97:
        return 1.0
    if x < -4.97:
        return -1.0
    y = x * x
    above = 135135.0 + y * (17325.0 + y * (378.0 + y))
    return x * above / (135135.0 + y * (62370.0 + y * (3150.0 + y * 28.0)))


class PythonModel:
    """The model in plain Python: the same bytes everywhere."""

    def __init__(self, state: State) -> None:
        hidden = len(state["bias"])
        flat = state["embedding"]
        self._embedding = [flat[at : at + hidden] for at in range(0, len(flat), hidden)]
        flat = state["head"]
        self._head = [flat[at : at + hidden] for at in range(0, len(flat), hidden)]
        self._bias = list(state["bias"])
        self._shift = list(state["shift"])
        # Weights alone are enough to predict.
        self._embedding_squares = list(state.get("embedding_squares", ()))
        self._bias_squares = list(state.get("bias_squares", ()))
        self._head_squares = list(state.get("head_squares", ()))

    def state(self) -> State:
        return {
            "embedding": [value for row in self._embedding for value in row],
            "bias": list(self._bias),
            "head": [value for row in self._head for value in row],
            "shift": list(self._shift),
            "embedding_squares": list(self._embedding_squares),
            "bias_squares": list(self._bias_squares),
            "head_squares": list(self._head_squares),
        }

    def _hidden(self, rows: Sequence[int]) -> List[float]:
        total = self._bias
        for row in rows:
            total = [a + b for a, b in zip(total, self._embedding[row])]
        return [tanh(each) for each in total]

    def predict(self, variants: Sequence[Variant]) -> List[List[float]]:
        """For each variant its targets."""
        found = []
        for variant in variants:
            hidden = self._hidden(variant.rows)
            out = []
            for weights, value in zip(self._head, self._shift):
                for weight, unit in zip(weights, hidden):
                    value += weight * unit
                out.append(value)
            found.append(out)
        return found

    def learn(self, batch: Sequence[Variant], rate: float) -> float:
        """One step; the batch's loss, summed over targets, before it."""
        to_rows: Dict[int, List[float]] = {}
        zeros = [0.0] * len(self._bias)
        to_bias = zeros
        to_head = [zeros for _ in self._head]
        to_shift = [0.0] * len(self._head)
        loss = 0.0
        for variant in batch:
            hidden = self._hidden(variant.rows)
            back = zeros
            for k, weights in enumerate(self._head):
                error = self._shift[k] - variant.values[k]
                for weight, unit in zip(weights, hidden):
                    error += weight * unit
                loss += error * error
                to_shift[k] += error
                to_head[k] = [total + error * unit for total, unit in zip(to_head[k], hidden)]
                back = [total + error * weight for total, weight in zip(back, weights)]
            back = [each * (1.0 - unit * unit) for each, unit in zip(back, hidden)]
            to_bias = [total + each for total, each in zip(to_bias, back)]
            for row in variant.rows:
                before = to_rows.get(row)
                to_rows[row] = back if before is None else [a + b for a, b in zip(before, back)]
        for row, gradient in to_rows.items():
            step = self._step(self._embedding_squares, row, gradient, rate)
            self._embedding[row] = [
                weight - step * each for weight, each in zip(self._embedding[row], gradient)
            ]
        step = self._step(self._bias_squares, 0, to_bias, HEAD * rate)
        self._bias = [weight - step * each for weight, each in zip(self._bias, to_bias)]
        for k, gradient in enumerate(to_head):
            step = self._step(self._head_squares, k, gradient, HEAD * rate)
            self._head[k] = [w - step * each for w, each in zip(self._head[k], gradient)]
            self._shift[k] -= step * to_shift[k]
        return loss / len(batch)

    @staticmethod
    def _step(squares: List[float], row: int, gradient: List[float], rate: float) -> float:
        square = 0.0
        for each in gradient:
            square += each * each
        squares[row] += square / len(gradient)
        return rate / math.sqrt(squares[row])

    def stretch(self, factor: float) -> None:
        """Multiply the head: how a run is made to diverge."""
        self._head = [[weight * factor for weight in row] for row in self._head]


class ArrayModel:
    """The model in arrays of numpy or torch, whichever ``library`` is."""

    def __init__(self, state: State, library: Any) -> None:
        self._library = library
        targets = len(state["shift"])
        hidden = len(state["bias"])
        self._rows = len(state["embedding"]) // hidden
        self._embedding = self._array(state["embedding"]).reshape(self._rows, hidden)
        self._head = self._array(state["head"]).reshape(targets, hidden)
        self._bias = self._array(state["bias"])
        self._shift = self._array(state["shift"])
        self._embedding_squares = self._array(state.get("embedding_squares", []))
        self._bias_squares = self._array(state.get("bias_squares", []))
        self._head_squares = self._array(state.get("head_squares", []))

    def _array(self, values: Any) -> Any:
        raise NotImplementedError

    def _index(self, values: Any) -> Any:
        raise NotImplementedError

    def _add_at(self, total: Any, rows: Any, values: Any) -> None:
        raise NotImplementedError

    def state(self) -> State:
        return {
            name: getattr(self, "_" + name).reshape(-1).tolist() for name in WEIGHTS + OPTIMIZER
        }

    def _forward(self, variants: Sequence[Variant]) -> Tuple[Any, Any, Any, Any]:
        """(rows, variant of each row, hidden, out) of a batch, without padding."""
        rows = self._index([row for variant in variants for row in variant.rows])
        owner = self._index([at for at, variant in enumerate(variants) for _ in variant.rows])
        total = self._array([[0.0] * len(self._bias)] * len(variants)) + self._bias
        self._add_at(total, owner, self._embedding[rows])
        hidden = self._library.tanh(total)
        return rows, owner, hidden, hidden @ self._head.T + self._shift

    def predict(self, variants: Sequence[Variant]) -> List[List[float]]:
        out: List[List[float]] = self._forward(variants)[3].tolist()
        return out

    def learn(self, batch: Sequence[Variant], rate: float) -> float:
        rows, owner, hidden, out = self._forward(batch)
        error = out - self._array([list(variant.values) for variant in batch])
        back = (error @ self._head) * (1.0 - hidden * hidden)
        to_rows = self._embedding * 0.0
        self._add_at(to_rows, rows, back[owner])
        to_head, to_bias = error.T @ hidden, back.sum(0)
        self._embedding_squares = self._embedding_squares + (to_rows * to_rows).mean(1)
        self._bias_squares = self._bias_squares + (to_bias * to_bias).mean()
        self._head_squares = self._head_squares + (to_head * to_head).mean(1)
        sqrt = self._library.sqrt
        self._embedding = self._embedding - rate * to_rows / sqrt(self._embedding_squares)[:, None]
        step = HEAD * rate / sqrt(self._head_squares)
        self._bias = self._bias - HEAD * rate * to_bias / sqrt(self._bias_squares)
        self._head = self._head - step[:, None] * to_head
        self._shift = self._shift - step * error.sum(0)
        return float((error * error).sum()) / len(batch)

    def stretch(self, factor: float) -> None:
        self._head = self._head * factor


class NumpyModel(ArrayModel):
    def __init__(self, state: State, library: Any) -> None:
        library.seterr(all="ignore")  # a run that diverges says so by its loss
        super().__init__(state, library)

    def _array(self, values: Any) -> Any:
        return self._library.array(values, dtype="float64")

    def _index(self, values: Any) -> Any:
        return self._library.array(values, dtype="int64")

    def _add_at(self, total: Any, rows: Any, values: Any) -> None:
        self._library.add.at(total, rows, values)


class TorchModel(ArrayModel):
    """On a GPU where there is one."""

    def __init__(self, state: State, library: Any) -> None:
        self._device = "cuda" if library.cuda.is_available() else "cpu"
        if self._device == "cuda":
            # cuBLAS is the same twice only with a workspace of its own (its manual, 2.1.4).
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        library.use_deterministic_algorithms(True)
        library.set_num_threads(1)
        super().__init__(state, library)

    def _array(self, values: Any) -> Any:
        return self._library.tensor(values, dtype=self._library.float64, device=self._device)

    def _index(self, values: Any) -> Any:
        return self._library.tensor(values, dtype=self._library.int64, device=self._device)

    def _add_at(self, total: Any, rows: Any, values: Any) -> None:
        total.index_add_(0, rows, values)


def make_model(backend: str, state: State) -> Any:
    """The model of a backend. Raises Trouble when it is not installed here."""
    if backend == "python":
        return PythonModel(state)
    try:
        library = importlib.import_module(backend)
    except ImportError as error:
        text = f"the {backend} backend is not to be had here: {error}"
        raise Trouble(EXIT_BACKEND, text) from None
    return NumpyModel(state, library) if backend == "numpy" else TorchModel(state, library)


def chosen_backend(asked: str, before: Optional["Checkpoint"]) -> str:
    """``auto`` decides once: torch, numpy or python, what the node of the first epoch has. From
    then on it is what the checkpoint says, since another backend would give other numbers."""
    if before is not None:
        if asked not in ("auto", before.backend):
            raise Trouble(
                EXIT_CHECKPOINT,
                f"the checkpoint is the {before.backend} backend's and would go on with other "
                f"numbers; give --backend {before.backend}, or begin a new run",
            )
        return before.backend
    if asked != "auto":
        return asked
    for name in ("torch", "numpy"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        return name
    return "python"


def judge(model: Any, variants: List[Variant]) -> Tuple[float, List[float]]:
    """Loss, and Pearson's correlation of each target."""
    found = model.predict(variants)
    loss = 0.0
    for out, variant in zip(found, variants):
        for value, true in zip(out, variant.values):
            loss += (value - true) * (value - true)
    targets = range(len(variants[0].values))
    return loss / len(variants), [
        pearson([out[k] for out in found], [each.values[k] for each in variants]) for k in targets
    ]


def pearson(found: List[float], true: List[float]) -> float:
    """The correlation; NaN where one of them does not vary."""
    a = b = 0.0
    for x, y in zip(found, true):
        a, b = a + x, b + y
    a, b = a / len(found), b / len(true)
    xx = yy = xy = 0.0
    for x, y in zip(found, true):
        xx += (x - a) * (x - a)
        yy += (y - b) * (y - b)
        xy += (x - a) * (y - b)
    norm = math.sqrt(xx * yy) if xx * yy > 0.0 else 0.0
    return xy / norm if norm > 0.0 else float("nan")


def rate_at(done: int, whole: int, most: float = RATE) -> float:
    """The learning rate of step ``done`` of ``whole``: up to ``most`` for a little, then down
    along a cosine's shape (3p²-2p³, within 0.01 of it). The horizon is the run's (or its
    stage's), not the job's."""
    part = done / whole
    if part < WARMUP:
        return most * (done + 1) / (WARMUP * whole + 1)
    return most * (1.0 - part * part * (3.0 - 2.0 * part))


# --- checkpoints --------------------------------------------------------------------------


class Best(NamedTuple):
    """The best epoch (from 0) so far, its val_loss, and its file in checkpoints/."""

    epoch: int
    score: float
    file: str


class Checkpoint(NamedTuple):
    """``epochs`` that are complete, ``step``s that were taken, and what must be the same when
    it goes on."""

    backend: str
    uuid: str
    seed: int
    data: str
    max_epochs: int
    epochs: int
    step: int
    best: Optional[Best]
    state: State


def pack(checkpoint: Checkpoint) -> bytes:
    """A line of magic, a line of JSON, the numbers as little-endian doubles, and the SHA-256
    of all that. Nothing of it runs when it is read, and equal runs have equal bytes: no time,
    no path."""
    names = sorted(checkpoint.state)
    best = checkpoint.best
    header = {
        "arrays": [[name, len(checkpoint.state[name])] for name in names],
        "backend": checkpoint.backend,
        "best": best and [best.epoch, best.score.hex(), best.file],
        "data": checkpoint.data,
        "epochs": checkpoint.epochs,
        "max_epochs": checkpoint.max_epochs,
        "seed": checkpoint.seed,
        "step": checkpoint.step,
        "uuid": checkpoint.uuid,
    }
    parts = [MAGIC, json.dumps(header, sort_keys=True).encode("ascii"), b"\n"]
    for name in names:
        values = checkpoint.state[name]
        parts.append(struct.pack(f"<{len(values)}d", *values))
    content = b"".join(parts)
    return content + hashlib.sha256(content).digest()


def unpack(path: str) -> Checkpoint:
    """The checkpoint in this file. Raises Trouble when it is none, or damaged."""
    try:
        with open(path, "rb") as file:
            # Another program's checkpoint can be gigabytes long.
            magic = file.read(len(MAGIC))
            content = magic + (file.read() if magic == MAGIC else b"")
    except OSError as error:
        raise Trouble(EXIT_CHECKPOINT, f"{path}: cannot be read: {error.strerror}") from None
    if magic != MAGIC:
        whose = "is no checkpoint of this trainer" if magic else "is empty"
        raise Trouble(EXIT_CHECKPOINT, f"{path} {whose}; {_REMEDY}")
    body, digest = content[:-32], content[-32:]
    if hashlib.sha256(body).digest() != digest:
        raise Trouble(EXIT_CHECKPOINT, f"{path} is cut short or damaged; {_REMEDY}")
    try:
        line, numbers = body[len(MAGIC) :].split(b"\n", 1)
        header = json.loads(line.decode("ascii"))
        state = {}
        for name, length in header["arrays"]:
            state[name] = list(struct.unpack_from(f"<{length:d}d", numbers))
            numbers = numbers[8 * length :]
        best = header["best"]
        return Checkpoint(
            header["backend"],
            header["uuid"],
            header["seed"],
            header["data"],
            header["max_epochs"],
            header["epochs"],
            header["step"],
            best and Best(best[0], float.fromhex(best[1]), best[2]),
            state,
        )
    except (KeyError, TypeError, ValueError, IndexError, struct.error):
        raise Trouble(EXIT_CHECKPOINT, f"{path} is of another version; {_REMEDY}") from None


_REMEDY = "take it away to train from the first epoch, or put a good one in its place"


def write(path: str, content: bytes) -> None:
    """Put a file in place whole, or not at all."""
    beside = path + ".tmp"
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


# --- METL's files -------------------------------------------------------------------------


class Folder:
    """``<output>/training_logs/<uuid>``, and in it the ``version_<k>`` of this start."""

    def __init__(self, output: str, uuid: str) -> None:
        # Relative, as METL has it: the absolute one differs from node to node.
        self.path = os.path.join(output, "training_logs", uuid)
        self.checkpoints = os.path.join(self.path, "checkpoints")
        self.last = os.path.join(self.checkpoints, "last.ckpt")
        os.makedirs(self.checkpoints, exist_ok=True)
        # What an ended process had not finished writing.
        for folder in (self.path, self.checkpoints):
            for name in os.listdir(folder):
                if name.endswith(".tmp"):
                    _discard(os.path.join(folder, name))
        self.version = self._next_version()
        self.logs = os.path.join(self.path, f"version_{self.version}")
        os.makedirs(self.logs)

    def _next_version(self) -> int:
        found = [re.fullmatch(r"version_(\d{1,9})", name) for name in os.listdir(self.path)]
        return max([int(match.group(1)) + 1 for match in found if match], default=0)

    def log(self, name: str, content: str) -> None:
        write(os.path.join(self.logs, name), content.encode("utf-8", "surrogateescape"))

    def keep_only(self, best: Optional[Best]) -> None:
        """Take old epochs' checkpoints away: what is carried from job to job stays small."""
        for name in os.listdir(self.checkpoints):
            if re.fullmatch(r"epoch=.*\.ckpt", name) and not (best and name == best.file):
                _discard(os.path.join(self.checkpoints, name))


def _discard(path: str) -> None:
    try:
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    except OSError:
        pass  # it is in nobody's way


class Metrics:
    """``metrics.csv`` as Lightning's CSVLogger writes it: a row for each thing that was
    logged, blank where it says nothing, columns as they first came, lines ended by CRLF."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._columns: Dict[str, None] = {}
        self._rows: List[Dict[str, object]] = []

    def add(self, step: int, **values: object) -> None:
        row = dict(values, step=step)
        self._columns.update(dict.fromkeys(row))
        self._rows.append(row)

    def save(self) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, fieldnames=list(self._columns))
        writer.writeheader()
        writer.writerows(self._rows)
        self._folder.log("metrics.csv", text.getvalue())


class Bar:
    """The progress line that tqdm draws for Lightning: training and validation steps of an
    epoch, and the mean loss of the last 20."""

    def __init__(self, epoch: int, steps: int, version: int, stream: TextIO) -> None:
        self._epoch, self._steps, self._version = epoch, steps, version
        self._stream = stream
        self._begun = time.monotonic()
        self._drawn = self._begun - BAR_SECONDS
        self._losses: List[float] = []

    def after(self, done: int, loss: Optional[float] = None) -> None:
        """Draw it, if there was none for a while."""
        if loss is not None:
            self._losses = [*self._losses[-19:], loss]
        now = time.monotonic()
        if now - self._drawn >= BAR_SECONDS:
            self._drawn = now
            self._draw(done, "")

    def end(self, val_loss: float) -> None:
        self._draw(self._steps, f", val_loss={val_loss:.3g}")
        self._stream.write("\n")
        self._stream.flush()

    def _draw(self, done: int, more: str) -> None:
        line = bar_line(self._epoch, done, self._steps, time.monotonic() - self._begun)
        if self._losses:
            mean = 0.0
            for loss in self._losses:
                mean += loss / len(self._losses)
            line += f", loss={mean:.3g}, v_num={self._version}{more}"
        self._stream.write("\r" + line + "]")
        self._stream.flush()


def bar_line(epoch: int, done: int, steps: int, passed: float) -> str:
    """The part of the line that says how far it is; ``passed`` in seconds."""
    part = done / steps
    rate = done / passed if done and passed > 0 else 0.0
    left = clock((steps - done) / rate) if rate else "?"
    if not rate:
        speed = "?it/s"
    elif rate < 1:
        speed = f"{1 / rate:.2f}s/it"
    else:
        speed = f"{rate:.2f}it/s"
    filled = int(part * 10)
    return "Epoch {}: {:3.0f}%|{}{}| {}/{} [{}<{}, {}".format(
        epoch,
        part * 100,
        "#" * filled,
        " " * (10 - filled),
        done,
        steps,
        clock(passed),
        left,
        speed,
    )


def clock(seconds: float) -> str:
    """``MM:SS``, with hours before it when there are any."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    text = f"{minute:02d}:{second:02d}"
    return f"{hours}:{text}" if hours else text


# --- training -----------------------------------------------------------------------------


class Run:
    """One start of the trainer for one run of the ensemble."""

    def __init__(self, args: argparse.Namespace, out: TextIO) -> None:
        self._args = args
        self._out = out
        self.folder = Folder(args.output, args.uuid)
        self._say(f"This is version: {self.folder.version}")
        self._metrics = Metrics(self.folder)
        self._log_arguments()
        self.data = read_data(args.data) if args.data else generated()
        before = self._continued()
        self._backend = chosen_backend(args.backend, before)
        self._epochs = before.epochs if before else 0
        self._step = before.step if before else 0
        self._best = before.best if before else None
        state = self._begun(before)
        self._check_sizes(state)
        self.model = make_model(self._backend, state)
        self._steps = -(-len(self.data.train) // (args.batch_size * args.machines))
        self._validation_steps = -(-len(self.data.validate) // args.batch_size)
        self._fails_at = self._draw_failure()
        self._peers: Optional[Peers] = None

    def _say(self, text: str) -> None:
        # Jobs often have no locale, and Python 3.6 then no way to print a path's accents.
        self._out.write(text.encode("ascii", "backslashreplace").decode() + "\n")
        self._out.flush()

    def _log_arguments(self) -> None:
        """As METL's save_args: each name and value on a line of its own."""
        values = sorted(vars(self._args).items())
        lines = [f"--{name}\n{value}\n" for name, value in values if value is not None]
        self.folder.log("args.txt", "".join(lines))
        hparams = {
            "batch_size": self._args.batch_size,
            "embedding_len": self._args.hidden,
            "learning_rate": self._args.learning_rate,
            "max_epochs": self._args.max_epochs,
            "model_name": "sparse_embedding",
            "random_seed": self._args.seed,
            "uuid": json.dumps(self._args.uuid),
        }
        text = "".join(f"{name}: {value}\n" for name, value in hparams.items())
        self.folder.log("hparams.yaml", text)

    def _continued(self) -> Optional[Checkpoint]:
        """The checkpoint to go on from. Raises Trouble when it is not this run's."""
        path = self._args.checkpoint or self.folder.last
        if not self._args.checkpoint and not os.path.exists(path):
            self._say("No checkpoint found, training from scratch")
            return None
        found = unpack(path)
        own: List[Tuple[str, Any, Any]] = [("seed", self._args.seed, found.seed)]
        if not self._begins_stage(found):
            own.append(("data", self.data.mark, found.data))
        if not self._args.checkpoint:
            own.append(("uuid", self._args.uuid, found.uuid))
        for what, here, there in own:
            if here != there:
                text = "{} is of another run: its {} is {}, here it is {}; {}"
                raise Trouble(EXIT_CHECKPOINT, text.format(path, what, there, here, _REMEDY))
        if found.max_epochs != self._args.max_epochs:
            self._say(
                f"The learning rate's horizon was {found.max_epochs} epochs "
                f"and is {self._args.max_epochs} from here on"
            )
        self._say(f"Found checkpoint, resuming training from: {path}")
        return found

    def _begins_stage(self, before: Checkpoint) -> bool:
        """Is this the first epoch of a later stage? It may have data of its own."""
        first: int = self._args.schedule_from
        return 0 < first == before.epochs

    def _begun(self, before: Optional[Checkpoint]) -> State:
        """The numbers to go on from. With other data the best epoch so far says nothing, and
        where there are other targets, too, the head begins anew."""
        args, targets = self._args, len(self.data.targets)
        first = first_state(self.data.rows, targets, args.seed, args.hidden)
        if before is None:
            return first
        state = dict(before.state)
        if before.data != self.data.mark:
            self._best = None
            if len(state["shift"]) != targets:
                for name in ("head", "shift", "head_squares"):
                    state[name] = first[name]
        return state

    def _check_sizes(self, state: State) -> None:
        targets = len(self.data.targets)
        expected = first_state(self.data.rows, targets, 0, self._args.hidden)
        for name, values in expected.items():
            if len(state.get(name, ())) != len(values):
                text = f"the checkpoint's {name} is not of this model's size; {_REMEDY}"
                raise Trouble(EXIT_CHECKPOINT, text)

    def _draw_failure(self) -> int:
        """The step of this start at which it fails on purpose, -1 for never. Drawn from the
        system, not from the seed: a retry of the same epoch must be able to succeed."""
        chance = int.from_bytes(os.urandom(4), "big") / 4294967296.0
        where = int.from_bytes(os.urandom(4), "big") % self._steps
        return where if chance < self._args.fail_rate else -1

    def train(self) -> None:
        self.folder.keep_only(self._best)
        if self._epochs >= self._args.stop_after_epoch:
            self._say(f"Epoch {self._args.stop_after_epoch} is trained already")
        while self._epochs < self._args.stop_after_epoch:
            if self._args.machines > 1 and self._peers is None:
                self._peers = self._gathered()
            self._epoch()
        if self._peers is not None:
            self._peers.dismiss()
        self._test()

    def _gathered(self) -> "Peers":
        """The other machines, with all that they need to do their part."""
        self._say(f"Waiting for {self._args.machines - 1} more machines")
        peers = Peers(self._args.rendezvous, self._args.machines)
        peers.tell({"epochs": self._epochs, "backend": self._backend}, self.model.state())
        self._say(f"{self._args.machines} machines train together")
        return peers

    def _epoch(self) -> None:
        begun = time.monotonic()
        epoch, args = self._epochs, self._args
        first = min(epoch, args.schedule_from)
        whole = self._steps * (args.max_epochs - first)
        steps = self._steps + self._validation_steps
        bar = Bar(epoch, steps, self.folder.version, self._out)
        bar.after(0)
        order = shuffled(len(self.data.train), draws("order", self._args.seed, epoch))
        mean = 0.0
        for step in range(self._steps):
            if step == self._fails_at:
                self._say("")
                raise Trouble(EXIT_FAILED, "failed on purpose, as --fail-rate asks for")
            rate = rate_at((epoch - first) * self._steps + step, whole, args.learning_rate)
            batch = [self.data.train[at] for at in part_of(order, step, args)]
            loss = self.model.learn(batch, rate)
            if self._peers is not None and averages_after(step, self._steps):
                self.model = make_model(self._backend, self._peers.average(self.model.state()))
            self._diverge(epoch)
            mean += loss / self._steps
            self._log_step(rate, loss)
            self._step += 1
            self._wait(begun, (step + 1) / steps)
            bar.after(step + 1, loss)
        val_loss, _ = judge(self.model, self.data.validate)
        self._wait(begun, 1.0)
        bar.end(val_loss)
        self._end_epoch(mean, val_loss)

    def _log_step(self, rate: float, loss: float) -> None:
        if (self._step + 1) % LOG_EVERY == 0:
            self._metrics.add(self._step, **{"lr-Adagrad": rate})
            self._metrics.add(self._step, train_loss_step=loss, epoch=self._epochs)
            self._metrics.save()

    def _diverge(self, epoch: int) -> None:
        """In the epoch that --diverge-at names the loss rises, after it it is no number."""
        first = self._args.diverge_at - 1
        if 0 <= first <= epoch:
            self.model.stretch(1.03 if epoch == first else 1e300)

    def _wait(self, begun: float, part: float) -> None:
        missing = begun + part * self._args.slow_factor - time.monotonic()
        if missing > 0:
            time.sleep(missing)

    def _end_epoch(self, mean: float, val_loss: float) -> None:
        """Metrics first, the checkpoint last: an epoch that is cut off between them is
        trained again and logged again, never lost from the log."""
        epoch, last = self._epochs, self._step - 1
        self._epochs += 1
        found = {"val_loss": val_loss}
        better = self._is_best(val_loss)
        if better:
            # Lightning's step counts from 0 in rows and from 1 in names of files (since 1.6).
            name = f"epoch={epoch}-step={self._step}-val_loss={val_loss:.2f}.ckpt"
            self._best = Best(epoch, val_loss, name)
            found["val_loss_best"] = val_loss
        self._metrics.add(last, epoch=epoch, **found)
        self._metrics.add(last, epoch=epoch, train_loss_epoch=mean)
        self._metrics.save()
        state = self.model.state()
        if better:
            path = os.path.join(self.folder.checkpoints, name)
            write(path, pack(self._checkpoint({each: state[each] for each in WEIGHTS})))
            self._say(
                f"Epoch {epoch}, global step {self._step}: 'val_loss' reached {val_loss:.5f}, "
                f"saving model to {path!r}"
            )
        write(self.folder.last, pack(self._checkpoint(state)))
        self.folder.keep_only(self._best)

    def _is_best(self, val_loss: float) -> bool:
        """The first epoch is, whatever it reached; NaN is better than nothing else."""
        if self._best is None:
            return True
        return val_loss < self._best.score or (
            math.isnan(self._best.score) and not math.isnan(val_loss)
        )

    def _checkpoint(self, state: State) -> Checkpoint:
        args = self._args
        return Checkpoint(
            self._backend,
            args.uuid,
            args.seed,
            self.data.mark,
            args.max_epochs,
            self._epochs,
            self._step,
            self._best,
            state,
        )

    def _test(self) -> None:
        """``metrics.txt``, of the best epoch, as METL's save_metrics_ptl writes it."""
        model, lines = self.model, []
        if self._best is not None:
            path = os.path.join(self.folder.checkpoints, self._best.file)
            lines += [f"best_model_path,{path}"]
            lines += [f"best_model_score,{self._best.score!r}"]
            if self._best.epoch != self._epochs - 1:
                try:
                    model = make_model(self._backend, unpack(path).state)
                except Trouble as trouble:
                    self._say(f"Testing the last epoch instead of the best: {trouble}")
        loss, correlations = judge(model, self.data.test)
        names = [f"test/pearson_{name}" for name in self.data.targets]
        found = dict(zip(["test_loss", *names], [loss, *correlations]))
        self._metrics.add(self._step, **found, epoch=self._epochs)
        self._metrics.save()
        lines += [f"{name},{value!r}" for name, value in found.items()]
        self.folder.log("metrics.txt", "\n".join(lines) + "\n")
        self._say(f"{names[0]} {correlations[0]:.4f}")


# --- several machines -----------------------------------------------------------------------
# Each machine takes every K-th batch of an epoch; every few steps all wait for each other, and
# go on with the average of their numbers. The machine of rank 0 holds the run: its checkpoint
# counts, and only it writes metrics. How the others find it: it puts its address into a file
# beside the DAG, which HTCondor lets a job do from any machine (chirp); they look for it there.
# One that gets lost ends the epoch for all: the node fails, and is tried again from its beginning.


def part_of(order: List[int], step: int, args: argparse.Namespace) -> List[int]:
    """The batch of this machine at this step."""
    at = (step * args.machines + args.rank) * args.batch_size
    # The last batches may not suffice for all: then one is learned twice.
    at = at if at < len(order) else (at - args.batch_size) % len(order)
    return order[at : at + args.batch_size]


def averages_after(step: int, steps: int) -> bool:
    return (step + 1) % AVERAGE_EVERY == 0 or step + 1 == steps


class Chirp:
    """Files beside the DAG, read and written from wherever the job runs, over a connection to
    its starter (HTCondor manual, "condor_chirp"; the protocol is that of the Condor Chirp
    specification). Outside of a job: files of this directory."""

    def __init__(self) -> None:
        self._stream: Any = None
        path = os.environ.get("_CONDOR_CHIRP_CONFIG")
        if not path:
            return
        try:
            with open(path, encoding="ascii") as file:
                host, port, word = file.read().split()[:3]
            self._stream = socket.create_connection((host, int(port)), 60).makefile("rwb")
            if self._ask("cookie", word) < 0:
                raise OSError("the cookie is refused")
        except (OSError, ValueError) as error:
            text = (
                f"no file beside the DAG can be reached from here: {error}; set +WantIOProxy = true"
            )
            raise Trouble(EXIT_PEERS, text) from None

    def _ask(self, *words: object, content: bytes = b"") -> int:
        line = " ".join(str(word) for word in words) + "\n"
        self._stream.write(line.encode("ascii") + content)
        self._stream.flush()
        answer = self._stream.readline().split()
        if not answer:
            raise OSError("the connection was closed")
        return int(answer[0])

    def write(self, name: str, content: bytes) -> None:
        if self._stream is None:
            write(name, content)
            return
        done = self._ask("putfile", name, 0o600, len(content))
        if done >= 0:
            self._stream.write(content)
            self._stream.flush()
            done = int(self._stream.readline().split()[0])
        if done < 0:
            raise OSError(f"{name} cannot be written beside the DAG (chirp says {done})")

    def read(self, name: str) -> bytes:
        """Empty while there is no such file."""
        if self._stream is None:
            try:
                with open(name, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return b""
        length = self._ask("getfile", name)
        return self._stream.read(length) if length > 0 else b""

    def remove(self, name: str) -> None:
        if self._stream is None:
            _discard(name)
        else:
            self._ask("unlink", name)


def own_address() -> str:
    """The address by which HTCondor reaches this machine, so that others of its pool do, too;
    outside of a job this machine alone."""
    try:
        with open(os.environ["_CONDOR_MACHINE_AD"], encoding="utf-8", errors="replace") as file:
            found = re.search(r'^StartdIpAddr\s*=\s*"<([0-9.]+):', file.read(), re.MULTILINE)
    except (KeyError, OSError):
        return "127.0.0.1"
    return found.group(1) if found else socket.gethostbyname(socket.gethostname())


def send(stream: Any, said: Dict[str, Any], state: State) -> None:
    """A line of JSON, and the numbers as little-endian doubles."""
    names = sorted(state)
    said = dict(said, arrays=[[name, len(state[name])] for name in names])
    parts = [json.dumps(said).encode("ascii") + b"\n"]
    parts += [struct.pack(f"<{len(state[name])}d", *state[name]) for name in names]
    stream.write(b"".join(parts))
    stream.flush()


def receive(stream: Any) -> Tuple[Dict[str, Any], State]:
    line = stream.readline(1 << 20)
    if not line.endswith(b"\n"):
        raise OSError("the connection was closed")
    said = json.loads(line.decode("ascii"))
    state = {}
    for name, length in said["arrays"]:
        numbers = stream.read(8 * length)
        state[name] = list(struct.unpack(f"<{length:d}d", numbers))
    return said, state


def lost(error: Exception) -> Trouble:
    text = f"a machine of this epoch is not there or got lost: {error}; the epoch begins again"
    return Trouble(EXIT_PEERS, text)


class Peers:
    """The other machines, as the one of rank 0 has them: a connection to each, in the order of
    their ranks. Raises Trouble when one is not there in time, or gets lost."""

    def __init__(self, rendezvous: str, machines: int) -> None:
        self._chirp, self._name = Chirp(), rendezvous
        self._streams: List[Any] = []
        word = os.urandom(16).hex()
        try:
            with socket.socket() as door:
                door.bind(("", 0))
                door.listen(machines)
                address = f"{own_address()} {door.getsockname()[1]} {word}\n"
                self._chirp.write(rendezvous, address.encode("ascii"))
                found = self._meet(door, word, machines)
        except (OSError, ValueError) as error:
            raise lost(error) from None
        self._streams = [found[rank] for rank in sorted(found)]

    def _meet(self, door: socket.socket, word: str, machines: int) -> Dict[int, Any]:
        until = time.monotonic() + PATIENCE
        found: Dict[int, Any] = {}
        while len(found) < machines - 1:
            door.settimeout(max(0.01, until - time.monotonic()))
            connection, _ = door.accept()
            connection.settimeout(GREETING)
            stream = connection.makefile("rwb")
            try:
                said = stream.readline(200).split()
                rank = int(said[1]) if len(said) == 2 else 0
            except (OSError, ValueError):
                continue
            # Whoever does not know the word is somebody else.
            if said[:1] == [word.encode("ascii")] and 0 < rank < machines:
                connection.settimeout(PATIENCE)
                found[rank] = stream
        return found

    def tell(self, said: Dict[str, Any], state: State) -> None:
        try:
            for stream in self._streams:
                send(stream, said, state)
        except OSError as error:
            raise lost(error) from None

    def average(self, own: State) -> State:
        """Of all machines' numbers, in the order of their ranks: the same each time."""
        try:
            states = [own] + [receive(stream)[1] for stream in self._streams]
        except (OSError, ValueError, KeyError, struct.error) as error:
            raise lost(error) from None
        count = float(len(states))
        found = dict(own)
        for name in own:
            columns = zip(*[state[name] for state in states])
            found[name] = [_total(column) / count for column in columns]
        self.tell({"go": True}, found)
        return found

    def dismiss(self) -> None:
        self.tell({"go": False}, {})
        self._chirp.remove(self._name)


def _total(column: Sequence[float]) -> float:
    total = 0.0
    for each in column:
        total += each
    return total


def help_train(args: argparse.Namespace, out: TextIO) -> None:
    """What a machine of another rank does: its part of every epoch, until it is dismissed. Of
    the run's folder it brings nothing back but a note: the one of rank 0 does."""
    data = read_data(args.data) if args.data else generated()
    steps = -(-len(data.train) // (args.batch_size * args.machines))
    done = 0
    try:
        stream = _connected(args)
        said, state = receive(stream)
        epoch, backend = int(said["epochs"]), str(said["backend"])
        model = make_model(backend, state)
        while epoch < args.stop_after_epoch:
            order = shuffled(len(data.train), draws("order", args.seed, epoch))
            first = min(epoch, args.schedule_from)
            whole = steps * (args.max_epochs - first)
            for step in range(steps):
                rate = rate_at((epoch - first) * steps + step, whole, args.learning_rate)
                model.learn([data.train[at] for at in part_of(order, step, args)], rate)
                done += 1
                if averages_after(step, steps):
                    send(stream, {}, model.state())
                    model = make_model(backend, receive(stream)[1])
            epoch += 1
        receive(stream)
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise lost(error) from None
    folder = os.path.join(args.output, "training_logs", args.uuid, "machines")
    os.makedirs(folder, exist_ok=True)
    note = f"epochs {epoch}\nsteps {done}\n"
    write(os.path.join(folder, f"rank_{args.rank}.txt"), note.encode("ascii"))
    out.write(f"Did {done} steps as machine {args.rank} of {args.machines}\n")


def _connected(args: argparse.Namespace) -> Any:
    """A connection to the machine of rank 0, once its address is there."""
    chirp, until = Chirp(), time.monotonic() + PATIENCE
    while True:
        said = chirp.read(args.rendezvous).decode("ascii", "replace")
        try:
            if said.endswith("\n"):
                host, port, word = said.split()
                connection = socket.create_connection((host, int(port)), 30)
                break
        except (OSError, ValueError):
            pass  # it is an address of before, or not whole yet
        if time.monotonic() > until:
            raise OSError(f"no address came to {args.rendezvous}")
        time.sleep(0.5)
    connection.settimeout(PATIENCE)
    stream = connection.makefile("rwb")
    stream.write(f"{word} {args.rank}\n".encode("ascii"))
    stream.flush()
    return stream


# --- beside the training --------------------------------------------------------------------


def evaluate(args: argparse.Namespace, out: TextIO) -> None:
    """Test the newest checkpoint of a run, or that of epoch --evaluate where it is still there.
    What is found goes to a folder of its own, with names of its own: nothing of the training is
    touched. ``metrics.csv`` in it is read as any other of the run."""
    folder = os.path.join(args.output, "training_logs", args.uuid, "checkpoints")
    found = unpack(args.checkpoint or os.path.join(folder, "last.ckpt"))
    best = found.best
    if found.epochs > args.evaluate and best is not None and best.epoch + 1 == args.evaluate:
        state = unpack(os.path.join(folder, best.file)).state
        found = found._replace(epochs=args.evaluate, state=state)
    data = read_data(args.data) if args.data else generated()
    loss, correlations = judge(make_model(found.backend, found.state), data.test)
    names = [f"eval/pearson_{name}" for name in data.targets]
    place = os.path.join("evaluation", "training_logs", args.uuid, f"version_{args.evaluate}")
    os.makedirs(place, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["epoch", "step", "eval_loss", *names])
    writer.writerow([found.epochs - 1, found.step, repr(loss), *map(repr, correlations)])
    write(os.path.join(place, "metrics.csv"), text.getvalue().encode("utf-8"))
    out.write(f"Epoch {found.epochs - 1}: eval_loss {loss:.5f}, {names[0]} {correlations[0]:.4f}\n")


def infer(args: argparse.Namespace, out: TextIO) -> None:
    """Predict one part of all variants with --substitutions changes, into predictions/."""
    shard, shards = args.infer
    data = generated()
    if args.checkpoint:
        path = args.checkpoint
        # HTCondor puts an absolute path's file into the job's directory by its name alone.
        found = unpack(path if os.path.exists(path) else os.path.basename(path))
        model = make_model(found.backend, found.state)
    else:
        model = make_model("python", first_state(data.rows, len(data.targets), args.seed))
    begun = time.monotonic()
    lines = ["\t".join(["variant", *data.targets])]
    batch: List[Tuple[str, Variant]] = []
    for number, changes in enumerate(every_variant(args.substitutions)):
        if number % shards == shard:
            batch.append((name_of(changes), Variant(rows_of(changes), ())))
        if len(batch) == 1024:
            lines += _predicted(model, batch)
            batch = []
    lines += _predicted(model, batch)
    missing = begun + args.slow_factor - time.monotonic()
    if missing > 0:
        time.sleep(missing)
    content = ("\n".join(lines) + "\n").encode("ascii")
    write(os.path.join("predictions", f"shard_{shard}.tsv"), content)
    out.write(f"{len(lines) - 1} variants in shard {shard} of {shards}\n")


def _predicted(model: Any, batch: List[Tuple[str, Variant]]) -> List[str]:
    if not batch:
        return []
    found = model.predict([variant for _, variant in batch])
    rows = zip(batch, found)
    return ["\t".join([name, *(f"{value:.6g}" for value in out)]) for (name, _), out in rows]


def every_variant(substitutions: int, first: int = 0) -> Iterator[Dict[int, str]]:
    """All variants of GB1 with so many changes, in an order of their own."""
    if not substitutions:
        yield {}
        return
    for position in range(first, len(WILD_TYPE) - substitutions + 1):
        for residue in ALPHABET[1:]:
            if residue != WILD_TYPE[position]:
                for rest in every_variant(substitutions - 1, position + 1):
                    yield {position: residue, **rest}


def name_of(changes: Dict[int, str]) -> str:
    return ",".join(f"{WILD_TYPE[at]}{at}{changes[at]}" for at in sorted(changes))


def gather(args: argparse.Namespace, out: TextIO) -> None:
    """Put the parts in predictions/ together, the lowest prediction first."""
    header, rows = "", []
    for shard in range(args.gather):
        path = os.path.join("predictions", f"shard_{shard}.tsv")
        try:
            with open(path, encoding="ascii") as file:
                header, *lines = file.read().splitlines()
        except (OSError, ValueError) as error:
            raise Trouble(EXIT_DATA, f"{path}: cannot be read: {error}") from None
        rows += [(float(line.split("\t")[1]), line) for line in lines]
    rows.sort()
    text = "\n".join([header, *(line for _, line in rows)]) + "\n"
    write(os.path.join("gathered", "predictions.tsv"), text.encode("ascii"))
    out.write(f"{len(rows)} variants of {args.gather} shards\n")


# --- being a job --------------------------------------------------------------------------


def first_start() -> bool:
    """Whether HTCondor starts this job for the first time; yes where it is no job. The job's ad
    lies in the file that _CONDOR_JOB_AD names (manual, "Environment and services for a running
    job"); its NumJobStarts are those before this one."""
    try:
        with open(os.environ["_CONDOR_JOB_AD"], "rb") as file:
            match = re.search(rb"^NumJobStarts\s*=\s*(\d+)", file.read(), re.MULTILINE)
    except (KeyError, OSError):
        return True
    return match is None or int(match.group(1)) == 0


def _on_terminate(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _on_alarm(number: int, frame: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
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
        help="auto: the best that the first epoch's machine has; then always that one")
    add("--checkpoint", metavar="FILE", help="go on from this one, not from the run's last.ckpt")
    add("--output", default="output", metavar="DIR", help="(default: output)")
    add("--learning-rate", type=_rate, default=RATE, metavar="R",
        help=f"the highest one of the schedule (default: {RATE})")
    add("--batch-size", type=_positive, default=BATCH, metavar="N", help=f"(default: {BATCH})")
    add("--hidden", type=_positive, default=HIDDEN, metavar="N",
        help=f"numbers by which a substitution is embedded (default: {HIDDEN})")
    add("--schedule-from", type=_count, default=0, metavar="N",
        help="epochs of the stages before this one: the learning rate begins anew after them")
    beside = parser.add_argument_group("beside the training").add_argument
    beside("--evaluate", type=_positive, metavar="EPOCH",
           help="test the run's newest checkpoint; EPOCH (from 1) is the one it comes after")
    beside("--infer", type=_shard, metavar="I/N", help="predict part I (from 0) of N")
    beside("--gather", type=_positive, metavar="N", help="put N predicted parts together")
    beside("--substitutions", type=int, choices=(1, 2), default=1,
           help="of the variants that are predicted (default: 1)")
    several = parser.add_argument_group("several machines for an epoch").add_argument
    several("--machines", type=_positive, default=1, metavar="K", help="(default: 1)")
    several("--rank", type=_count, default=0, metavar="R",
            help="which of them this is; the one of rank 0 holds the run")
    several("--rendezvous", default="rendezvous", metavar="FILE",
            help="beside the DAG, where the one of rank 0 says how it is reached")
    show = parser.add_argument_group("for demonstrations and tests").add_argument
    show("--slow-factor", type=_seconds, default=0.0, metavar="SECONDS",
         help="let every epoch last that long at least")
    show("--fail-rate", type=_part, default=0.0, metavar="P",
         help="fail with probability P (0 to 1), by exit status 1 somewhere in the first epoch "
         "of this start; drawn anew at every start")
    show("--evict-after", type=_seconds, default=0.0, metavar="SECONDS",
         help="get SIGTERM after that time, as from a machine that wants its slot back; in "
         "HTCondor only when the job starts for the first time")
    show("--diverge-at", type=_count, default=0, metavar="EPOCH",
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


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text):
        raise argparse.ArgumentTypeError("a whole number from 0 on is expected")
    return int(text)


def _positive(text: str) -> int:
    if not _count(text):
        raise argparse.ArgumentTypeError("a whole number from 1 on is expected")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1e8:
        raise argparse.ArgumentTypeError("a number of seconds, 0 for none, is expected")
    return value


def _rate(text: str) -> float:
    value = _seconds(text)
    if value <= 0.0:
        raise argparse.ArgumentTypeError("a number above 0 is expected")
    return value


def _shard(text: str) -> Tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if found is None or int(found.group(1)) >= int(found.group(2)):
        raise argparse.ArgumentTypeError("a part and their number, as 0/8, are expected")
    return int(found.group(1)), int(found.group(2))


def _part(text: str) -> float:
    value = _seconds(text)
    if value > 1.0:
        raise argparse.ArgumentTypeError("a probability from 0 to 1 is expected")
    return value


def task(args: argparse.Namespace, out: TextIO) -> None:
    """What this start is for. What HTCondor is to bring back is made before anything can fail: a
    job that ends without it is held, and would neither fail nor be tried again."""
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
        shutil.rmtree(args.output, ignore_errors=True)
        os.makedirs(args.output)
        help_train(args, out)
    else:
        Run(args, out).train()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The whole program; returns its exit status, or ends by SIGTERM."""
    args = arguments(argv)
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        if args.evict_after and first_start():
            signal.signal(signal.SIGALRM, _on_alarm)
            signal.setitimer(signal.ITIMER_REAL, args.evict_after)
        task(args, sys.stdout)
    except Trouble as trouble:
        print(f"train.py: {trouble}", file=sys.stderr)
        return trouble.code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        text = f"train.py: {where}cannot be written: {error.strerror or error}"
        print(text, file=sys.stderr)
        return EXIT_OUTPUT
    except Terminated:
        print("train.py: ended by SIGTERM; complete epochs are kept", file=sys.stderr)
        sys.stderr.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A process that writes a recorded dagdir as HTCondor did, up to a given time.

Reads lines from standard input: ``until TIME`` writes everything up to then, ``copy DIR PATTERN``
adds files of another recording. Answers each with ``done``.

The recording's own ``nodes.log`` has only its last life: DAGMan leaves no more. Here it is written
as by DAGMan: its events are taken from the job log, and it is truncated in place at the start of
every life.
"""

from __future__ import annotations

import re
import shutil
import sys
from datetime import datetime
from pathlib import Path

from tests.support.replay_pieces import replay_pieces

LOGGED = re.compile(rb"^(000|001|004|005|009|012|013) ")


def main(recording: Path, directory: Path) -> None:
    pieces = replay_pieces(recording)
    nodes_log = next(p.name for p in recording.glob("*.nodes.log"))
    written = 0
    for line in sys.stdin:
        words = line.split()
        if words[0] == "until":
            moment = datetime.fromisoformat(words[1])
            while written < len(pieces) and pieces[written].time <= moment:
                piece = pieces[written]
                written += 1
                if piece.file == nodes_log:
                    continue
                begins = piece.file.endswith(".dagman.log") and piece.data.startswith(b"000")
                if begins:
                    open(directory / nodes_log, "wb").close()
                if piece.file == "metl.log" and LOGGED.match(piece.data):
                    append(directory / nodes_log, piece.data)
                append(directory / piece.file, piece.data)
        elif words[0] == "copy":
            for path in sorted(Path(words[1]).glob(words[2])):
                shutil.copyfile(path, directory / path.name)
        print("done", flush=True)


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

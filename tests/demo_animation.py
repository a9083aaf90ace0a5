"""Writes ``.github/demo.svg``: the demo as an animation, a few seconds for each picture.

    python -m tests.demo_animation

The recording is replayed up to a moment, a screen is opened on it, and Textual's own SVG of it
becomes one frame; CSS shows the frames in turn.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Final

from metlmon.cli.commands.demo import recording
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.replay import Replay
from metlmon.live.session import Session
from screens.app import MetlmonApp

TARGET: Final = Path(__file__).resolve().parents[1] / ".github" / "demo.svg"
FRAME_SECONDS: Final = 3
FRAMES: Final = ((0.15, ""), (0.4, ""), (0.7, ""), (1.0, ""), (1.0, "t"), (1.0, "w"), (1.0, "c"))
"""Parts of the recording, and the key that opens the screen."""


async def frame(part: float, key: str) -> str:
    """The SVG of a screen when ``part`` of the recording (0 to 1) has been written."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch, "demo")
        directory.mkdir()
        replay = Replay(recording(), directory, 1.0)
        moment = replay.begin + (replay.end - replay.begin) * part
        replay.write_until(moment)
        reader = DagdirReader(directory, local_now=lambda: moment)
        reader.open()
        app = MetlmonApp(Session(reader))
        async with app.run_test(size=(100, 24)) as pilot:
            await pilot.pause(1.5)
            if key:
                await pilot.press(key)
                await pilot.pause(1.5)
            svg = app.export_screenshot(title="metlmon demo")
            await pilot.press("Q")
    # No font is fetched: the reader's own monospaced font is used.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


async def main() -> None:
    frames = [await frame(part, key) for part, key in FRAMES]
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', frames[0])
    assert size is not None
    share = 100 / len(frames)
    style = (
        f".frame {{ visibility: hidden; animation: show {len(frames) * FRAME_SECONDS}s infinite }}"
        f" @keyframes show {{ 0%, {share:.3f}% {{ visibility: visible }}"
        f" {share + 0.001:.3f}%, 100% {{ visibility: hidden }} }}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[1]} {size[2]}">',
        f"<style>{style}</style>",
    ]
    for number, svg in enumerate(frames):
        delay = number * FRAME_SECONDS
        parts.append(f'<g class="frame" style="animation-delay: {delay}s">{svg}</g>')
    TARGET.write_text("\n".join([*parts, "</svg>\n"]))
    print(f"{TARGET}: {TARGET.stat().st_size // 1000} kB")


if __name__ == "__main__":
    asyncio.run(main())

"""Films of one unseen machine: a pole that turns about a hinge, on a cart or not, as a GIF."""

import numpy as np
from numpy import ndarray as Array
from pictures import BLUE, FIGURES, GREY, RED
from PIL import Image, ImageDraw

WIDTH, HEIGHT, FINER = 360, 220, 3  # pixels; drawn finer, and reduced
FRAMES = 67  # 15 a second


def film(
    name: str,
    angles: Array,
    length: float,
    seconds: float,
    *,
    positions: Array | None = None,
    rail: float = 0.0,
    says: str = "",
) -> None:
    """Save docs/figures/NAME.gif: the pole up at an angle of 0, and what the film says."""
    at = np.linspace(0, len(angles) - 1, FRAMES).round().astype(int)
    places = np.zeros(len(angles)) if positions is None else positions
    scale = FINER * min(0.4 * HEIGHT / length, 0.44 * WIDTH / max(rail, length))
    frames = []
    for k in at:
        picture = Image.new("RGB", (FINER * WIDTH, FINER * HEIGHT), "white")
        pen = ImageDraw.Draw(picture)
        x, y = FINER * WIDTH / 2 + scale * places[k], FINER * 0.53 * HEIGHT
        if rail:
            ends = (FINER * WIDTH / 2 - scale * rail, y, FINER * WIDTH / 2 + scale * rail, y)
            pen.line(ends, fill=GREY, width=FINER)
            pen.rectangle((x - 16 * FINER, y - 7 * FINER, x + 16 * FINER, y + 7 * FINER), fill=GREY)
        tip = x + scale * length * np.sin(angles[k]), y - scale * length * np.cos(angles[k])
        pen.line((x, y, *tip), fill=BLUE, width=5 * FINER)
        for (cx, cy), size, colour in (((x, y), 4, GREY), (tip, 6, RED)):
            r = size * FINER
            pen.ellipse((cx - r, cy - r, cx + r, cy + r), fill=colour)
        text = f"{says}   {seconds * k / (len(angles) - 1):.1f} s"
        pen.text((8 * FINER, 5 * FINER), text, fill="#333333", font_size=11 * FINER)
        small = picture.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        frames.append(small.quantize(32, dither=Image.Dither.NONE))
    pace = round(1000 * seconds / (FRAMES - 1))
    pauses = [pace] * (FRAMES - 1) + [1500]
    frames[0].save(
        FIGURES / f"{name}.gif",
        save_all=True,
        append_images=frames[1:],
        duration=pauses,
        loop=0,
        optimize=True,
    )

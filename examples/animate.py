"""An agent at work, as an animated GIF: some of its episodes, one machine each.

`python examples/animate.py cart-pole cart.gif 5`: the fleet, the file and the number of episodes.
Needs Pillow, and for `inverted-pendulum` the extra `mujoco`.

A scene draws in metres (or whatever the fleet's unit is), with y upwards; `Canvas` turns that into
pixels. Everything is drawn twice as large as it is shown, which smooths the edges.
"""

import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy import ndarray as Array
from PIL import Image, ImageDraw, ImageFont

from contextual_lqr.fleets import FLEETS, Fleet
from contextual_lqr.fleets.watch import EpisodeRow, episodes

SHOWN_EPISODES, SHOWN_FRAMES = 8, 30  # at most, and of each episode
EACH, PAUSE = 80, 800  # milliseconds a picture is shown, and the last of an episode
WIDTH, HEIGHT, FINER = 480, 360, 2
INK, DIM, PALE, BACK = "#1d2433", "#8a93a5", "#dfe3ea", "#ffffff"
BLUE, ORANGE, GREEN, SKY = "#0072B2", "#D55E00", "#009E73", "#9ccbe8"
Point = tuple[float, float]
History = Sequence[Array]


class Canvas:
    """A white picture of part of the plane: `centre` in its middle, `width` units across."""

    def __init__(self, centre: Point, width: float) -> None:
        self._image = Image.new("RGB", (WIDTH * FINER, HEIGHT * FINER), BACK)
        self._draw = ImageDraw.Draw(self._image)
        self.unit = WIDTH * FINER / width
        self._origin = (
            WIDTH * FINER / 2 - centre[0] * self.unit,
            (HEIGHT * FINER / 2 + centre[1] * self.unit),
        )

    def at(self, point: Point) -> Point:
        """Where a point of the plane is, in pixels; what is far outside stays drawable."""
        x = self._origin[0] + float(np.clip(point[0], -1e4, 1e4)) * self.unit
        return x, self._origin[1] - float(np.clip(point[1], -1e4, 1e4)) * self.unit

    def line(self, points: Sequence[Point], colour: str, thick: float = 2) -> None:
        """A line through the points; its thickness is in pixels of the finished picture."""
        pixels = [self.at(point) for point in points]
        self._draw.line(pixels, colour, round(thick * FINER), joint="curve")
        if thick >= 4:  # round ends
            r = thick * FINER / 2
            for x, y in (pixels[0], pixels[-1]):
                self._draw.ellipse((x - r, y - r, x + r, y + r), colour)

    def disc(self, centre: Point, radius: float, colour: str, outline: str | None = None) -> None:
        """A disc; the radius is in pixels of the finished picture."""
        (x, y), r = self.at(centre), radius * FINER
        self._draw.ellipse((x - r, y - r, x + r, y + r), colour, outline, round(1.5 * FINER))

    def shape(self, points: Sequence[Point], colour: str, outline: str | None = None) -> None:
        """A filled polygon."""
        pixels = [self.at(point) for point in points]
        self._draw.polygon(pixels, colour, outline, round(1.5 * FINER))

    def arrow(self, start: Point, step: Point, colour: str) -> None:
        """An arrow, if it is long enough to be seen."""
        length = float(np.hypot(*step))
        if length * self.unit < 8 * FINER:
            return
        end = start[0] + step[0], start[1] + step[1]
        along = np.array(step) / length * min(9 * FINER / self.unit, length)
        side = np.array([-along[1], along[0]]) / 2
        self.line([start, end], colour, 2.5)
        tips = [np.array(end) - along + side, np.array(end) - along - side]
        self.shape([end, *((float(t[0]), float(t[1])) for t in tips)], colour)

    def text(
        self, corner: Point, text: str, colour: str = INK, size: int = 13, right: bool = False
    ) -> None:
        """Text at a place given in pixels of the finished picture, of its upper left or right."""
        place = corner[0] * FINER, corner[1] * FINER
        font, anchor = ImageFont.load_default(size * FINER), "ra" if right else "la"
        self._draw.text(place, text, colour, font, anchor)

    def finished(self) -> Image.Image:
        """The picture at its size, in few colours."""
        small = self._image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        return small.quantize(128, Image.Quantize.MAXCOVERAGE)


def picture(name: str, fleet: Fleet, one: EpisodeRow, step: int, title: str) -> Image.Image:
    """The machine of an episode after this step."""
    states, inputs = one.trajectory.states[: step + 1], one.trajectory.inputs[:step]
    canvas = SCENES[name](fleet, one.context, states, inputs)
    said = "   ".join(
        f"{key.replace('_', ' ')} {short(value)} {fleet.units.get(key, '')}".strip()
        for key, value in one.context.items()
    )
    canvas.text((12, 8), title, size=15)
    canvas.text((12, HEIGHT - 24), said, DIM)
    canvas.text((WIDTH - 12, 10), f"step {step}", DIM, right=True)
    return canvas.finished()


def short(value: float) -> str:
    """Three digits, and no exponent for what people say without one."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


def animate(name: str, fleet: Fleet, played: list[EpisodeRow], path: str) -> int:
    """Write the animation: some of the episodes, the first ones and the last among them."""
    share = np.linspace(0, 1, SHOWN_EPISODES) ** 1.5
    pictures, times = [], []
    for k in np.unique(np.round((len(played) - 1) * share).astype(int)):
        title = f"{name.replace('-', ' ')}, episode {played[k].episode} of {len(played)}"
        n = len(played[k].trajectory)
        for h in np.unique(np.linspace(0, n, min(n + 1, SHOWN_FRAMES)).round().astype(int)):
            pictures.append(picture(name, fleet, played[k], h, title))
            times.append(EACH if h < n else PAUSE)
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=times, loop=0)
    return len(pictures)


# -- scenes ------------------------------------------------------------------------------------


def _path(fleet: Fleet, context: Mapping[str, float], states: History, inputs: History) -> Canvas:
    """The targets, the way gone so far, and the object with the force on it."""
    points = np.array([x[1:3] for x in states])
    targets = -fleet.cost.Q[:, 0, 1:3]
    low, high = targets.min(0), targets.max(0)
    centre = (low + high) / 2
    across = max(float(high[0] - low[0]), 4 / 3 * float(high[1] - low[1]), 0.5)
    canvas = Canvas((float(centre[0]), float(centre[1])), 1.7 * across)
    canvas.line([(float(x), float(y)) for x, y in targets], PALE, 2)
    for x, y in targets:
        canvas.disc((float(x), float(y)), 3, PALE)
    aim = targets[min(len(states), len(targets)) - 1]
    canvas.disc((float(aim[0]), float(aim[1])), 7, BACK, ORANGE)
    if len(points) > 1:
        canvas.line([(float(x), float(y)) for x, y in points], BLUE, 2)
    here = float(points[-1, 0]), float(points[-1, 1])
    canvas.disc(here, 6 + 3 * context.get("mass", 1.0) ** (1 / 3), BLUE)
    if len(inputs):
        push = 0.25 * across * np.tanh(np.asarray(inputs[-1]) / 2)
        canvas.arrow(here, (float(push[0]), float(push[1])), ORANGE)
    return canvas


def _cart_pole(
    fleet: Fleet, context: Mapping[str, float], states: History, inputs: History
) -> Canvas:
    """The cart as large as it is heavy, the pole as long and as thick as it is."""
    x, angle = float(states[-1][0]), float(states[-1][2])
    length = context["length"]
    size = 0.16 * context["cart_mass"] ** (1 / 3)
    canvas = Canvas((0, 0.95), 4.5)  # the longest pole stays below the title
    canvas.line([(-3, 0), (3, 0)], PALE, 3)
    canvas.line([(0, -0.06), (0, 0.06)], DIM, 2)
    canvas.line([(0, size), (0, size + length)], PALE, 1)  # upright at home, to aim at
    for side in (-0.6, 0.6):
        canvas.disc((x + side * size, 0.045), 5, INK)
    body = [(-size, 0.07), (size, 0.07), (size, 0.07 + size), (-size, 0.07 + size)]
    canvas.shape([(x + a, b) for a, b in body], BLUE)
    hinge = x, 0.07 + size
    tip = hinge[0] + length * np.sin(angle), hinge[1] + length * np.cos(angle)
    canvas.line([hinge, (float(tip[0]), float(tip[1]))], ORANGE, 5 + 12 * context["pole_mass"])
    canvas.disc(hinge, 4, INK)
    if len(inputs):
        push = 0.8 * float(np.tanh(inputs[-1][0]))
        canvas.arrow((x + np.sign(push) * size, 0.07 + size / 2), (push, 0), GREEN)
    return canvas


def _inverted_pendulum(
    fleet: Fleet, context: Mapping[str, float], states: History, inputs: History
) -> Canvas:
    """MuJoCo's cart and pole, which are ten times as heavy, in the same scene."""
    alike = {
        "cart_mass": context["cart_mass"] / 10,
        "pole_mass": context["pole_mass"] / 20,
        "length": context["pole_length"],
    }
    return _cart_pole(fleet, alike, [x[[0, 2, 1, 3]] for x in states], inputs)


def _quadrotor(
    fleet: Fleet, context: Mapping[str, float], states: History, inputs: History
) -> Canvas:
    """The vehicle, its payload on the arm, the way it came, and where it should hover."""
    canvas = Canvas((0, -0.9), 4.8)
    canvas.disc((0, 0), 14, BACK, PALE)
    canvas.line([(-0.1, 0), (0.1, 0)], DIM, 1)
    canvas.line([(0, -0.1), (0, 0.1)], DIM, 1)
    canvas.line([(float(x[1]), float(x[2])) for x in states] * (2 if len(states) < 2 else 1), SKY)
    _, x, z, tilt = (float(value) for value in states[-1][:4])
    along = np.array([np.cos(tilt), -np.sin(tilt)])
    up = np.array([np.sin(tilt), np.cos(tilt)])

    def body(a: float, b: float) -> Point:
        place = np.array([x, z]) + a * along + b * up
        return float(place[0]), float(place[1])

    canvas.line([body(0, 0), body(0, -2 * context["arm"])], INK, 1.5)
    canvas.disc(body(0, -2 * context["arm"]), 3 + 16 * context["payload"] ** (1 / 3), ORANGE)
    canvas.line([body(-0.3, 0), body(0.3, 0)], BLUE, 5)
    for side in (-0.3, 0.3):
        canvas.line([body(side, 0), body(side, 0.08)], INK, 2)
        canvas.line([body(side - 0.14, 0.09), body(side + 0.14, 0.09)], DIM, 2)
    if len(inputs):
        lift = 0.5 * float(np.tanh(inputs[-1][0] / 4))
        canvas.arrow(body(0, 0.1), (float(lift * up[0]), float(lift * up[1])), GREEN)
    return canvas


def _chain(fleet: Fleet, context: Mapping[str, float], states: History, inputs: History) -> Canvas:
    """Masses between two walls, joined by springs; below, how each moved so far."""
    n = len(states[-1]) // 2
    canvas = Canvas((0.5, -0.1), 1.15)
    rest, gap = np.arange(n + 2) / (n + 1), 1 / (n + 1)
    moved = 0.35 * gap * np.tanh(np.concatenate(([0], states[-1][:n], [0])))
    places = rest + moved
    for wall in (0.0, 1.0):
        canvas.line([(wall, 0.02), (wall, 0.2)], INK, 4)
    radius = min(6 + 5 * context["mass"] ** (1 / 3), 0.28 * gap * canvas.unit / FINER)
    inside = radius * FINER / canvas.unit
    for i in range(n + 1):
        left = places[i] + (inside if i else 0)
        right = places[i + 1] - (inside if i < n else 0)
        turns = np.linspace(left, right, 14)
        swing = 0.02 * np.array([0, 0, *[(-1) ** k for k in range(10)], 0, 0])
        canvas.line(list(zip(turns.tolist(), (0.11 + swing).tolist(), strict=True)), DIM, 1.5)
    for i in range(1, n + 1):
        canvas.line([(rest[i], 0.04), (rest[i], 0.06)], PALE, 2)
        canvas.disc((places[i], 0.11), radius, BLUE)
    if len(inputs):
        for place, force in zip((places[1], places[n]), inputs[-1], strict=False):
            canvas.arrow((place, 0.2), (0.09 * float(np.tanh(force)), 0), ORANGE)
    low, across = -0.27, 0.18
    canvas.line([(0.0, low), (1.0, low)], PALE, 1)
    past = np.array([x[:n] for x in states])
    times = np.arange(len(states)) / (fleet.cost.horizon - 1)
    for i in range(n):
        curve = low + across * np.tanh(past[:, i])
        colour = BLUE if i in (0, n - 1) else SKY
        if len(past) > 1:
            points = list(zip(times.tolist(), curve.tolist(), strict=True))
            canvas.line(points, colour, 1.5)
    canvas.text((20, 150), "displacement of each mass over time", DIM, 11)
    return canvas


def _vehicle(
    fleet: Fleet, context: Mapping[str, float], states: History, inputs: History
) -> Canvas:
    """Two lanes from above, the car in its own, driven from left to right, turned as it is."""
    step = 0.03 * context["speed"]
    ahead = step * (len(states) - 1)
    canvas = Canvas((ahead + 4, 1.9), 19)
    behind, before = ahead - 20, ahead + 40
    for edge in (-1.9, 1.9):  # its own lane, and the next
        road = [(behind, edge), (before, edge), (before, edge + 3.8), (behind, edge + 3.8)]
        canvas.shape(road, PALE)
    for edge in (-1.9, 5.7):
        canvas.line([(behind, edge), (before, edge)], DIM, 2)
    canvas.line([(behind, 0), (before, 0)], GREEN, 1)  # where it should be
    first = 4 * int(behind // 4)
    for dash in range(first, first + 64, 4):
        canvas.line([(dash, 1.9), (dash + 1.8, 1.9)], BACK, 3)
    way = [(step * i, float(x[0])) for i, x in enumerate(states)]
    if len(way) > 1:
        canvas.line(way, BLUE, 2)
    offset, heading = float(states[-1][0]), float(states[-1][2])
    turn = np.array([[np.cos(heading), -np.sin(heading)], [np.sin(heading), np.cos(heading)]])

    def body(points: Sequence[Point], extra: float = 0.0) -> list[Point]:
        local = np.array([[np.cos(extra), -np.sin(extra)], [np.sin(extra), np.cos(extra)]])
        centre = np.mean(points, axis=0)
        placed = (np.array(points) - centre) @ local.T + centre
        return [(float(x + ahead), float(y + offset)) for x, y in placed @ turn.T]

    steer = 0.1 * float(inputs[-1][0]) if len(inputs) else 0.0
    for front, side in ((1.1, 0.95), (1.1, -0.95), (-1.58, 0.95), (-1.58, -0.95)):
        x, y = front, side
        wheel = [
            (x - 0.35, y - 0.12),
            (x + 0.35, y - 0.12),
            (x + 0.35, y + 0.12),
            (x - 0.35, y + 0.12),
        ]
        canvas.shape(body(wheel, steer if front > 0 else 0.0), INK)
    half = 0.75 + 0.1 * context["mass"] / 1000
    canvas.shape(body([(-2.2, -half), (1.9, -half), (2.2, 0), (1.9, half), (-2.2, half)]), BLUE)
    canvas.shape(body([(0.2, -0.6), (0.8, -0.5), (0.8, 0.5), (0.2, 0.6)]), SKY)
    return canvas


def _heating(
    fleet: Fleet, context: Mapping[str, float], states: History, inputs: History
) -> Canvas:
    """A house, coloured by its temperatures, and both temperatures over time."""
    canvas = Canvas((0, 0), 10)
    air, walls = float(states[-1][1]), float(states[-1][2])
    thick = 0.12 + 0.05 / context["loss"] * 0.1
    left, right, floor, top = -4.4, -0.8, -2.2, 0.4
    roof = [(left - 0.3, top), (right + 0.3, top), ((left + right) / 2, top + 1.5)]
    canvas.shape(roof, DIM)
    canvas.shape([(left, floor), (right, floor), (right, top), (left, top)], _warmth(walls))
    inner = [(left + thick, floor + thick), (right - thick, floor + thick)]
    inner += [(right - thick, top - thick), (left + thick, top - thick)]
    canvas.shape(inner, _warmth(air))
    power = max(float(inputs[-1][0]), 0.0) if len(inputs) else 0.0
    heater = [(-3.3, -1.9), (-1.9, -1.9), (-1.9, -1.35), (-3.3, -1.35)]
    canvas.shape(heater, INK)
    for i in range(4):
        flame = 0.9 * float(np.tanh(power / 4))
        canvas.line([(-3.12 + 0.35 * i, -1.25), (-3.12 + 0.35 * i, -1.25 + flame)], ORANGE, 3)
    base, width, zero, unit = 0.2, 4.4, 1.2, 0.11
    canvas.line([(base, zero), (base + width, zero)], GREEN, 1.5)
    for value in (-20, -10):
        canvas.line([(base, zero + unit * value), (base + width, zero + unit * value)], PALE, 1)
    for index, colour in ((2, DIM), (1, ORANGE)):
        past = np.clip([float(x[index]) for x in states], -25, 8)
        points = [
            (base + width * i / (fleet.cost.horizon - 1), zero + unit * float(T))
            for i, T in enumerate(past)
        ]
        if len(points) > 1:
            canvas.line(points, colour, 2.5)
    canvas.text((252, 104), "set point", GREEN, 11)
    canvas.text((252, 231), "-20 K: outside", DIM, 11)
    canvas.text((252, 268), f"air {air:+.1f} K", ORANGE, 13)
    canvas.text((336, 268), f"walls {walls:+.1f} K", DIM, 13)
    return canvas


def _warmth(kelvin: float) -> str:
    """A colour from cold to warm, for -15 to 2 K above the set point."""
    share = float(np.clip((kelvin + 15) / 17, 0, 1))
    cold, warm = np.array([170, 205, 235]), np.array([255, 214, 170])
    mixed = np.round(cold + share * (warm - cold)).astype(int)
    return "#{:02x}{:02x}{:02x}".format(*mixed)


SCENES: dict[str, Callable[[Fleet, Mapping[str, float], History, History], Canvas]] = {
    "path-following": _path,
    "cart-pole": _cart_pole,
    "inverted-pendulum": _inverted_pendulum,
    "quadrotor": _quadrotor,
    "chain": _chain,
    "vehicle": _vehicle,
    "heating": _heating,
}

if __name__ == "__main__":
    name, path, number = (*sys.argv[1:], *("cart-pole", "cart.gif", "5")[len(sys.argv) - 1 :])
    if name in FLEETS:
        fleet = FLEETS[name]()
    else:
        from contextual_lqr.envs.inverted_pendulum import inverted_pendulum

        fleet = inverted_pendulum()
    played = list(episodes(fleet, number=int(number)))
    print(f"{path}: {animate(name, fleet, played, path)} pictures of {len(played)} episodes")

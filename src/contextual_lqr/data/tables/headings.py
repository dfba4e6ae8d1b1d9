"""What headings say: words, a unit in brackets, a name for expressions.

"Motor current [A]" is of the words motor, current, has the unit A, and is called motor_current.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container

from contextual_lqr.context.expressions import RESERVED

_UNIT = re.compile(r"^(.*?)\s*[\[(]([^\])]*)[\])]\s*$", re.DOTALL)
_PLAIN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "ø": "o", "æ": "ae", "µ": "u"})

# English, and German, which is what the first tables were in. All words of a label must be here:
# "motor id" is a machine, "motor current" is none.
_NUMBER = {"id", "no", "nr", "number", "nummer", "name", "label"}
LABELS = {
    "machine": _NUMBER
    | {"machine", "maschine", "geraet", "device", "serial", "serien", "seriennummer", "unit"}
    | {"motor", "motoren", "vehicle", "fahrzeug", "asset", "anlage", "robot", "roboter", "house"}
    | {"haus", "building", "gebaeude", "pump", "pumpe", "drive", "antrieb", "of", "fleet", "cart"},
    "episode": {"episode", "run", "test", "trial", "versuch", "lauf", "experiment", "cycle"}
    | {"zyklus", "trip", "fahrt", "messung", "measurement", "id", "no", "nr", "number", "nummer"},
    "step": {"step", "k", "sample", "index", "schritt", "row", "zeile", "n", "nr", "no", "number"},
    "time": {"time", "timestamp", "zeit", "zeitstempel", "date", "datum", "datetime", "t", "stamp"}
    | {"uhrzeit", "utc", "and", "und", "local", "seconds", "sekunden"},
}
# One word is enough for these.
INPUTS = {
    *(
        "force",
        "kraft",
        "torque",
        "moment",
        "drehmoment",
        "voltage",
        "spannung",
        "current",
        "strom",
    ),
    *("throttle", "valve", "ventil", "command", "cmd", "input", "u", "pwm", "duty", "heater"),
    *("heating", "heizung", "heizleistung", "power", "leistung", "steering", "lenkung", "brake"),
    *("setpoint", "sollwert", "stellgroesse", "stellwert", "fan", "control", "action", "thrust"),
}


def split_unit(heading: str) -> tuple[str, str]:
    """The heading without its unit, and the unit; "" if it has none."""
    found = _UNIT.match(heading)
    return (found[1], found[2].strip()) if found and found[1] else (heading, "")


def words_of(heading: str) -> list[str]:
    """Its words, in plain small letters."""
    text = split_unit(heading)[0].lower().translate(_PLAIN)
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.findall(r"[a-z]+|\d+", text)


def is_label(heading: str, role: str) -> bool:
    """Whether all its words are those of a machine, an episode, a step or a time."""
    words = words_of(heading)
    return bool(words) and all(word in LABELS[role] for word in words)


def name_for(heading: str, taken: Container[str]) -> str:
    """A name for expressions, which nothing else has."""
    name = "_".join(words_of(heading)) or "column"
    name = name if not name[0].isdigit() else f"x_{name}"
    free, number = name, 2
    while (
        free in taken or free in RESERVED or free in ("episode", "step", "machine", "time", "one")
    ):
        free, number = f"{name}_{number}", number + 1
    return free

"""Schemathesis against a service: what its description promises, held against what it does.

    python benchmarks/service_fuzz.py [examples] [options of st, such as --include-path ...]

Twice: with the description as it is, of which hardly any body fits the study; and with contexts and
episodes of the study's own sizes in it, so that what is behind the refusals is reached too. It
needs Schemathesis, whose command `st` is on the path or beside Python.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from numpy.random import default_rng

from contextual_lqr import Study
from contextual_lqr.fleets import chain
from contextual_lqr.study.service import Limits, pulse
from contextual_lqr.study.service.server import listening, server
from contextual_lqr.study.tokens import Tokens

FLEET = chain(2)
pulse.LONGEST = 0.5  # seconds that events last, whose end is waited for


def described(description: dict[str, Any], fits: bool) -> dict[str, Any]:
    """The description with the one study there is, and bodies that fit it, if asked for."""
    for operations in description["paths"].values():
        for operation in operations.values():
            for one in operation.get("parameters", ()):
                if one["name"] == "study":
                    one["schema"] = {"enum": ["fleet"]}
    if fits:
        rng = default_rng(0)
        sizes = {"states": (4, 4), "inputs": (3, 2)}  # rows and columns
        for name in ("AskBody", "TellBody", "EpisodeRecord", "MachineBody", "CertifyBody"):
            fields = description["components"]["schemas"][name]["properties"]
            fields["context"]["enum"] = [FLEET.sample_context(rng) for _ in range(3)]
            for field, (rows, columns) in sizes.items():
                if fields.get(field, {}).get("type") == "array":
                    row = {"type": "array", "items": {"type": "number"}}
                    row |= {"minItems": columns, "maxItems": columns}
                    fields[field] |= {"items": row, "minItems": rows, "maxItems": rows}
    return description


def main(examples: int, more: list[str]) -> int:
    """Fuzz a service of a small study; 0 if nothing was found."""
    command = shutil.which("st") or str(Path(sys.executable).with_name("st"))
    with tempfile.TemporaryDirectory() as folder:
        study = Study.open(f"sqlite:///{folder}/fleet.db", FLEET)
        token = Tokens(study._log).create("administrator")[1]
        running = server({"fleet": study}, limits=Limits(rate=1e6, burst=1e6))
        with listening("127.0.0.1", 0) as socket:
            thread = threading.Thread(target=running.run, args=([socket],), daemon=True)
            thread.start()
            while not running.started:
                time.sleep(0.01)
            url = f"http://127.0.0.1:{socket.getsockname()[1]}"
            description = json.load(urllib.request.urlopen(f"{url}/openapi.json"))
            codes = []
            for fits in (False, True):
                file = Path(folder) / "openapi.json"
                file.write_text(json.dumps(described(description, fits)))
                # What fits is a part of what is accepted, so that nothing is said of the rest.
                less = ["--exclude-checks", "negative_data_rejection"] if fits else []
                options = ["--checks", "all", *less, "--continue-on-failure", "--seed", "1"]
                options += ["--url", url, "-H", f"Authorization: Bearer {token}"]
                options += ["--max-examples", str(examples), "--request-timeout", "30", *more]
                codes.append(
                    subprocess.run(
                        [command, "run", file, *options], cwd=folder, check=False
                    ).returncode
                )
            print(
                f"{study.status().episodes} episodes were taken, {study.status().waiting} asked for"
            )
            running.should_exit = True
            thread.join()
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, sys.argv[2:]))

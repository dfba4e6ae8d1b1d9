"""Writes requirements-hashed.txt: every package that contextual-lqr[all] needs, pinned and hashed.

`make hashes`. pip says, without installing anything, which wheels it would take on each platform
and Python below; nothing of where they come from is written down.
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = {
    "Linux x86-64": [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)],
    "Linux ARM": [f"manylinux_2_{minor}_aarch64" for minor in (28, 27, 24, 17)],
    "macOS ARM": [f"macosx_{major}_0_arm64" for major in (15, 14, 13, 12, 11)],
    "Windows": ["win_amd64"],
}
ELSEWHERE = {"Windows": ["colorama"]}  # pip reads markers for the machine it runs on
HEAD = """\
# What contextual-lqr[all] needs, with the hash of every wheel ({where}; CPython {pythons}).
#   pip install --require-hashes --only-binary :all: -r requirements-hashed.txt
#   pip install --no-deps contextual-lqr
# Written by `make hashes` from constraints.txt.
"""


def wheels(python: str, tags: list[str], packages: list[str]) -> list[tuple[str, str]]:
    """(name==version, hash) of every wheel that pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary", ":all:", "--target", folder]
        command += ["--python-version", python, "--implementation", "cp", "--report", str(report)]
        command += [f"--platform={tag}" for tag in tags]
        subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), *packages], check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    pins = []
    for one in found:
        name = re.sub(r"[-_.]+", "-", one["metadata"]["name"]).lower()
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        pins.append((f"{name}=={one['metadata']['version']}", digest))
    return pins


def needed() -> list[str]:
    """What [all] asks for by itself: the packages, with our own extras unfolded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]

    def unfold(texts: list[str]) -> list[str]:
        own = [re.match(r"contextual-lqr\[(.*)\]", text) for text in texts]
        inner = [name for one in own if one for name in one[1].split(",")]
        listed = [text for text, one in zip(texts, own, strict=True) if not one]
        return listed + [text for name in inner for text in unfold(extras[name])]

    return sorted({*project["dependencies"], *unfold(extras["all"])})


if __name__ == "__main__":
    hashes: dict[str, set[str]] = {}
    for python, (where, tags) in itertools.product(PYTHONS, PLATFORMS.items()):
        for pin, digest in wheels(python, tags, needed() + ELSEWHERE.get(where, [])):
            hashes.setdefault(pin, set()).add(digest)
    text = HEAD.format(where=", ".join(PLATFORMS), pythons=", ".join(PYTHONS))
    for pin, digests in sorted(hashes.items()):
        text += pin + "".join(f" \\\n    --hash=sha256:{one}" for one in sorted(digests)) + "\n"
    (ROOT / "requirements-hashed.txt").write_text(text, encoding="utf-8")

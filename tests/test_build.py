"""The package builds with a compiler and without one, and the compiled kernels are sound."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fleet_logs import cart_rows, write

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow

USE = """
import numpy as np
import contextual_lqr as clqr
from contextual_lqr import kernels
cost = clqr.QuadraticCost(np.ones((3, 1, 1)), np.ones((2, 1, 1)))
print(kernels.compiled, clqr.optimal_cost(clqr.LinearSystem([[1.0]], [[1.0]]), cost, [1.0]))
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def wheel_of(tmp_path: Path, *options: str, **environment: str) -> Path:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(
        *pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(tmp_path), *options,
        str(ROOT), **environment,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


def needed(
    name: str, extras: Iterable[str] = (), found: dict[str, Distribution] | None = None
) -> dict[str, Distribution]:
    """The packages that pip would install with one, and with some of its extras."""
    found = {} if found is None else found
    for text in distribution(name).requires or ():
        one = Requirement(text)
        wanted = one.marker is None or any(
            one.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        )
        key = re.sub(r"[-_.]+", "-", one.name).lower()
        if wanted and (key not in found or key == "contextual-lqr"):  # an extra may name others
            found[key] = distribution(one.name)
            needed(one.name, one.extras, found)
    return found


def bare_environment(folder: Path, wheel: Path, *extras: str) -> Path:
    """A virtual environment as `pip install` of the wheel makes it, without the network.

    What the wheel needs is linked from this environment; other extras are nowhere to be found.
    """
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    packages = needed("contextual-lqr", extras)
    packages.pop("contextual-lqr", None)
    for one in packages.values():
        for top in {file.parts[0] for file in one.files or () if file.parts[0] != ".."}:
            there = Path(str(one.locate_file(top)))
            if there.exists() and not (site / top).exists():
                (site / top).symlink_to(there)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "--python", str(folder / "bin" / "python"), "install", "--no-deps", str(wheel))
    return folder / "bin"


def test_a_wheel_in_bare_environments(tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path)  # of what `make` has compiled, if it has
    assert "none-any" not in wheel.name
    assert "contextual_lqr/py.typed" in zipfile.ZipFile(wheel).namelist()
    core_alone_runs_the_readme_and_the_command_says_what_it_lacks(tmp_path, wheel)
    with_the_extra_the_command_reproduces_and_designs(tmp_path, wheel)


def core_alone_runs_the_readme_and_the_command_says_what_it_lacks(
    tmp_path: Path, wheel: Path
) -> None:
    bare = bare_environment(tmp_path / "bare", wheel)
    installed = {path.name for path in (bare.parent / "lib").glob("python*/site-packages/*")}
    assert not installed & {"cyclopts", "rich", "polars", "matplotlib", "joblib", "jinja2"}
    output = run(str(bare / "python"), "-W", "error", "-c", USE)
    assert output.stdout.split()[0] in ("avx2", "baseline")
    assert output.stderr == ""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL):
        run(str(bare / "python"), "-W", "error", "-c", block)
    for command in ([str(bare / "contextual-lqr")], [str(bare / "python"), "-m", "contextual_lqr"]):
        done = subprocess.run([*command, "info"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.endswith("pip install 'contextual-lqr[cli]'")


def with_the_extra_the_command_reproduces_and_designs(tmp_path: Path, wheel: Path) -> None:
    bare = bare_environment(tmp_path / "cli", wheel, "cli")
    ours = str(bare / "contextual-lqr")

    def use(*command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [ours, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    few = "--paths circle --decays 0.7 --episodes 3 --seeds 2 --strategies certainty --jobs 2"
    found = json.loads(use("reproduce", *few.split(), "--json").stdout)
    assert found["failed"] == 0
    assert (tmp_path / "results" / "report.html").stat().st_size > 10_000
    use("new", "fleet.toml")
    write(cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20), tmp_path / "a.csv")
    use("fit", "fleet.toml", "a.csv", "-o", "fleet.decoder")
    designed = use("design", "fleet.decoder", "--context", "mass=2", "--quick", "--json")
    assert json.loads(designed.stdout)["machines"][0]["verdict"] == "trust"
    said = use("play", "--fleet", "inverted-pendulum", code=1).stderr
    assert "pip install 'contextual-lqr[mujoco]'" in said
    said = use("check", "fleet.toml", "minari:carts/none-v0", code=1).stderr
    assert "pip install 'contextual-lqr[minari]'" in said


def test_without_a_compiler_the_reference_runs_and_one_line_says_so(tmp_path: Path) -> None:
    elsewhere = f"--config-settings=build-dir={tmp_path}/build"
    wheel = wheel_of(tmp_path, elsewhere, CXX=str(tmp_path / "no-compiler"))
    assert wheel.name.endswith("py3-none-any.whl")
    bare = bare_environment(tmp_path / "bare", wheel)
    used = run(str(bare / "python"), "-c", USE)
    assert used.stdout.split() == ["None", "1.6"]  # P: 1, 1.5, 1.6 by hand
    assert len(used.stderr.splitlines()) == 1
    assert "compiled kernels are not available" in used.stderr


def built_kernels(folder: Path, *options: str) -> str:
    cmake = (sys.executable, "-m", "cmake")
    # Kernels as quick as compiling them is worth; what binds them is not what is tested.
    quick = ("-DOPTIMISATION=-O1", "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG")
    more = (f"-DPython_EXECUTABLE={sys.executable}", *quick, *options)
    run(*cmake, "-G", "Ninja", "-S", str(ROOT), "-B", str(folder), *more)
    run(*cmake, "--build", str(folder))
    (built,) = folder.glob("native*.so")
    return str(built)


COMPARED = str(Path(__file__).parent / "support" / "sanitized_kernels.py")


def test_kernels_under_address_and_undefined_behaviour_sanitizers(tmp_path: Path) -> None:
    """The kernel tests again, in a process whose kernels report every bad access and stop."""
    built = built_kernels(tmp_path, "-DSANITIZE=ON")
    done = run(
        sys.executable, COMPARED, built, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=0",
        LD_PRELOAD=run("c++", "-print-file-name=libasan.so").stdout.strip(),
    )  # fmt: skip
    assert "sound" in done.stdout


def test_kernels_in_plain_cpp17(tmp_path: Path) -> None:
    """What a compiler without vector extensions builds; a warning is an error."""
    built = built_kernels(tmp_path, "-DPORTABLE=ON", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON")
    assert "sound" in run(sys.executable, COMPARED, built, OMP_NUM_THREADS="1").stdout

"""The package builds with a compiler and without one, and the compiled kernels are sound."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

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


def built_and_used(tmp_path: Path, **environment: str) -> tuple[str, str, str]:
    """The wheel's name, and what a program that uses it prints, as output and as log."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(
        *pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(tmp_path),
        f"--config-settings=build-dir={tmp_path}/build", str(ROOT), **environment,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    run(*pip, "install", "--no-deps", "--target", str(site), str(wheel))
    # -S: without it, the editable install of this environment would come first.
    path = os.pathsep.join([str(site), sysconfig.get_path("purelib")])
    used = run(sys.executable, "-S", "-c", USE, PYTHONPATH=path)
    return wheel.name, used.stdout, used.stderr


def test_with_a_compiler_the_kernels_are_compiled(tmp_path: Path) -> None:
    wheel, output, log = built_and_used(tmp_path)
    assert "none-any" not in wheel
    assert output.split()[0] in ("avx2", "baseline")
    assert log == ""


def test_without_a_compiler_the_reference_runs_and_one_line_says_so(tmp_path: Path) -> None:
    wheel, output, log = built_and_used(tmp_path, CXX=str(tmp_path / "no-compiler"))
    assert wheel.endswith("py3-none-any.whl")
    assert output.split() == ["None", "1.6"]  # P: 1, 1.5, 1.6 by hand
    assert len(log.splitlines()) == 1
    assert "compiled kernels are not available" in log


def test_kernels_under_address_and_undefined_behaviour_sanitizers(tmp_path: Path) -> None:
    """The kernel tests again, in a process whose kernels report every bad access and stop."""
    runtime = run("c++", "-print-file-name=libasan.so").stdout.strip()
    cmake = (sys.executable, "-m", "cmake")
    run(
        *cmake, "-G", "Ninja", "-S", str(ROOT), "-B", str(tmp_path), "-DSANITIZE=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    )  # fmt: skip
    run(*cmake, "--build", str(tmp_path))
    (built,) = tmp_path.glob("native*.so")
    done = run(
        sys.executable, str(Path(__file__).parent / "sanitized_kernels.py"), str(built),
        LD_PRELOAD=runtime, ASAN_OPTIONS="detect_leaks=0", OMP_NUM_THREADS="1",
    )  # fmt: skip
    assert "sound" in done.stdout

"""An exported controller as a program: questions on standard input, answers on standard output."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

STRICT = ["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILER = shutil.which("cc")

_MAIN = """
#include <stdio.h>
#include "controller.c"

static void read(controller_real *to, int count) {
  double value = 0;
  for (int i = 0; i < count; i++) {
    if (scanf("%lf", &value) != 1) return;
    to[i] = (controller_real)value;
  }
}

static void say(int status, const controller_real *from, int count) {
  printf("%d", status);
  for (int i = 0; i < count; i++) printf(" %.17g", (double)from[i]);
  printf("\\n");
}

int main(void) {
  static controller c;
#ifdef CONTROLLER_CONTEXTS
  controller_real context[CONTROLLER_CONTEXTS];
#endif
  controller_real y[CONTROLLER_MEASUREMENTS], u[CONTROLLER_INPUTS];
  char what;
  controller_init(&c);
  while (scanf(" %c", &what) == 1) {
    int status;
    if (what == 'c') {
#ifdef CONTROLLER_CONTEXTS
      read(context, CONTROLLER_CONTEXTS);
      status = controller_context(&c, context);
#else
      status = c.ready ? CONTROLLER_OK : CONTROLLER_NOT_READY;
#endif
      say(status, c.gain, CONTROLLER_INPUTS * (CONTROLLER_STATES + CONTROLLER_INTEGRATORS));
    } else if (what == 's') {
      read(y, CONTROLLER_MEASUREMENTS);
      status = controller_step(&c, y, u);
      say(status, u, CONTROLLER_INPUTS);
#if CONTROLLER_TARGETS > 0
    } else if (what == 't') {
      controller_real target[CONTROLLER_TARGETS];
      read(target, CONTROLLER_TARGETS);
      status = controller_target(&c, target);
      say(status, c.u0, CONTROLLER_INPUTS);
#endif
    } else if (what == 'r') {
      controller_reset(&c);
    } else {
      controller_init(&c);
    }
  }
  return 0;
}
"""

STATUSES = ["ok", "not ready", "not finite", "out of bounds", "outside data", "no gain", "not held"]


class Program:
    """The compiled controller; lines of questions in, (status, numbers) out."""

    def __init__(self, source: str, folder: Path, *flags: str) -> None:
        assert COMPILER is not None
        folder.mkdir(exist_ok=True)
        (folder / "controller.c").write_text(source, encoding="utf-8")
        (folder / "main.c").write_text(_MAIN)
        self._binary = folder / "controller"
        command = [COMPILER, *STRICT, *flags, "main.c", "-o", str(self._binary), "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    def __call__(self, questions: list[tuple[str, Any]]) -> list[tuple[str, np.ndarray]]:
        lines = [f"{what} {' '.join(f'{x:.17g}' for x in values)}" for what, values in questions]
        done = subprocess.run(
            [self._binary], input="\n".join(lines), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        answers = [line.split() for line in done.stdout.splitlines()]
        return [(STATUSES[int(status)], np.array(rest, float)) for status, *rest in answers]

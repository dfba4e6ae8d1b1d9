"""Several processes at one file: what each adds is in it, or it is told that it is not."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from contextual_lqr import Agent, InputError, cli, files
from contextual_lqr.data import TEMPLATE, FittedFleet, FleetDescription, fitting
from fleet_logs import cart_rows, write
from fleet_play import off_policy, small_fleet
from processes import forked

# All of them have imported everything before the first begins.
TOGETHER = (
    "import sys; sys.path[:0] = sys.argv[1].split(chr(10)); del sys.argv[1]\n"
    "from contextual_lqr import cli\n"
    "import contextual_lqr.cli.fit, contextual_lqr.cli.merge, polars\n"
    "print(flush=True); sys.stdin.readline()\n"
    "cli.main(sys.argv[1:])"
)


def at_once(lines: list[str], folder: Path) -> list[tuple[int, str]]:
    """Commands that run at the same time: the exit code of each, and what it says of errors."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, "\n".join(sys.path), *line.split()],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in lines
    ]
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()
    for one in running:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    said = [one.communicate()[1] for one in running]
    return [(one.returncode, error) for one, error in zip(running, said, strict=True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fleet.toml").write_text(TEMPLATE)
    carts = FleetDescription.parse(TEMPLATE)
    for i in range(3):
        log = write(cart_rows([0.7, 1.3, 2.0], i, steps=20), tmp_path / f"{i}.csv")
        fitting.fit(carts, log).save(tmp_path / f"{i}.decoder")
    FittedFleet.new(carts).save(tmp_path / "all.decoder")
    return tmp_path


@pytest.mark.parametrize(
    "line", ["fit fleet.toml {}.csv --into all.decoder", "merge all.decoder {}.decoder -o link"]
)
def test_all_that_is_added_at_once_counts(line: str, folder: Path) -> None:
    (folder / "link").symlink_to("all.decoder")
    ended = at_once([line.format(i) for i in range(3)], folder)
    assert [code for code, _ in ended] == [0, 0, 0], ended
    whole = FittedFleet.load(folder / "all.decoder").decoder
    parts = [FittedFleet.load(folder / f"{i}.decoder").decoder for i in range(3)]
    assert (whole.rows, whole.episodes) == (342, 18) == (3 * parts[0].rows, 18)
    for one in parts:  # and each of them is known to be there
        with pytest.raises(InputError, match="both have learnt from the same data"):
            one.merge(whole)
    assert not [one.name for one in folder.iterdir() if one.name.startswith(".")]


def test_whoever_cannot_wait_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "all.decoder").read_bytes()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(files, "_PATIENCE", 0.05)
    with files.locked("all.decoder"), pytest.raises(SystemExit) as end:
        cli.main(["fit", "fleet.toml", "0.csv", "--into", "all.decoder"])
    assert end.value.code == 2
    said = "another process is using all.decoder: try again when it has finished"
    assert capsys.readouterr().err == f"error: {said}\n"
    assert (folder / "all.decoder").read_bytes() == before


def _tells(path: str, seed: int, said: str) -> None:
    """Load an agent, teach it, save it when all others have loaded it too."""
    agent = Agent.load(path)
    Path(f"{said}.loaded").touch()
    while len(list(Path(said).parent.glob("*.loaded"))) < 2:
        pass
    agent.tell(*off_policy(small_fleet(), np.random.default_rng(seed)))
    try:
        agent.save(path)
        Path(said).write_text("saved")
    except InputError as error:
        Path(said).write_text(str(error))


def test_the_second_of_two_agents_on_one_file_is_refused(tmp_path: Path) -> None:
    fleet, file = small_fleet(), str(tmp_path / "an.agent")
    Agent(fleet.context_map, fleet.cost, fleet.start).save(file)
    several = [forked(_tells, file, i, str(tmp_path / f"{i}.txt")) for i in (1, 2)]
    for one in several:
        one.join()
    said = sorted((tmp_path / f"{i}.txt").read_text() for i in (1, 2))
    assert said == [
        f"{file} has been changed by another process since it was read, and was not overwritten: "
        "read it again, and repeat your change",
        "saved",
    ]
    assert Agent.load(file).decoder.episodes == 1


def test_an_agent_goes_on_saving_to_its_files(tmp_path: Path) -> None:
    fleet, rng = small_fleet(), np.random.default_rng(0)
    agent = Agent(fleet.context_map, fleet.cost, fleet.start)
    (tmp_path / "link").symlink_to("one")
    for name in ("one", "link", "one", "other"):
        agent.tell(*off_policy(fleet, rng))
        agent.save(tmp_path / name)
    other = Agent.load(tmp_path / "link")
    other.tell(*off_policy(fleet, rng))
    other.save(tmp_path / "one")
    with pytest.raises(InputError, match="changed by another process since it was read"):
        agent.save(tmp_path / "link")
    agent.save(tmp_path / "other")  # which nobody else has written to
    assert Agent.load(tmp_path / "one").decoder.episodes == 4

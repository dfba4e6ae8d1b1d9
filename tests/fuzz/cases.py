"""How many cases a campaign has: few in the tests, as many as CASES says in `make fuzz`."""

import os
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

from contextual_lqr.data import TEMPLATE, FleetDescription, fitting
from fleet_logs import cart_rows, write


def cases(few: int) -> int:
    return int(os.environ.get("CASES", few))


def campaign(few: int) -> settings:
    """So many examples; what is found is told as it was found, for to shrink it takes long."""
    return settings(
        max_examples=cases(few),
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],
    )


def small_fleet(folder: Path) -> Path:
    """A folder with a description, logs, a decoder and a table of machines, all in order."""
    folder.mkdir(exist_ok=True)
    (folder / "fleet.toml").write_text(TEMPLATE)
    rows = cart_rows([0.7, 1.3, 2.0, 3.1, 4.4], steps=20)
    write(rows, folder / "a.csv")
    write(rows, folder / "a.parquet")
    (folder / "machines.csv").write_text("machine,mass\none,1\ntwo,2\n")
    fitted = fitting.fit(FleetDescription.parse(TEMPLATE), [str(folder / "a.csv")])
    fitted.save(folder / "a.decoder")
    return folder

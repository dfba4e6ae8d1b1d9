from numpy import ndarray

processor: str

def recursions(
    d: int,
    m: int,
    horizon: int,
    batch: int,
    A: ndarray,
    B: ndarray,
    Q: ndarray,
    R: ndarray,
    N: ndarray | None,
    noise: ndarray | None,
    start: ndarray | None,
    policy: ndarray | None,
    dither: ndarray | None,
    rows: ndarray | None,
    columns: ndarray | None,
    gains: ndarray | None,
    values: ndarray | None,
    constants: ndarray | None,
    cost: ndarray | None,
    dA: ndarray | None,
    dB: ndarray | None,
    status: ndarray,
    failed_step: ndarray,
    threads: int,
) -> None: ...
def factor_blocks(
    columns: list[ndarray],
    chosen: ndarray | None,
    block: int,
    limit: float,
    triangles: ndarray,
) -> bool: ...

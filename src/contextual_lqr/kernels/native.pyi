from collections.abc import Sequence

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
    covariances: ndarray | None,
    gains: ndarray | None,
    values: ndarray | None,
    constants: ndarray | None,
    cost: ndarray | None,
    dA: ndarray | None,
    dB: ndarray | None,
    status: ndarray,
    failed_step: ndarray,
    refine: bool,
    threads: int,
) -> None: ...
def factor_blocks(
    columns: Sequence[ndarray],
    chosen: ndarray | None,
    block: int,
    limit: float,
    triangles: ndarray,
) -> bool: ...
def update_triangles(
    columns: Sequence[ndarray],
    rows: ndarray,
    ends: ndarray,
    limit: float,
    packed: ndarray,
    at: ndarray,
    used: ndarray,
    steps: ndarray | None,
    moves: int,
    acting: int,
) -> None: ...
def row_hashes(columns: Sequence[ndarray], found: ndarray) -> None: ...
def digests(hashes: ndarray, starts: ndarray, found: ndarray) -> None: ...
def column_ranges(
    columns: Sequence[ndarray], rows: ndarray, low: ndarray, high: ndarray
) -> None: ...
def find_keys(known: ndarray, table: ndarray, wanted: ndarray, found: ndarray) -> None: ...
def enter_keys(known: ndarray, table: ndarray, places: ndarray) -> None: ...
def solve_lower(L: ndarray, right: ndarray) -> None: ...
def factor_rows(rows: ndarray, triangle: ndarray) -> bool: ...
def sample_ellipsoid(
    Y: ndarray,
    factor: ndarray,
    centre: ndarray,
    reach: float,
    fractions: ndarray,
    members: ndarray,
) -> None: ...
def best_decoder(
    thetas: ndarray,
    G: ndarray,
    Q: ndarray,
    R: ndarray,
    N: ndarray | None,
    noise: ndarray,
    start: ndarray,
    floor: float,
    gains: ndarray,
    threads: int,
) -> tuple[int, float, int]: ...
def roll_out(
    A: ndarray,
    B: ndarray,
    gains: ndarray,
    offsets: ndarray | None,
    shocks: ndarray,
    bound: ndarray | None,
    states: ndarray,
    inputs: ndarray,
) -> int: ...
def stationary(
    d: int,
    m: int,
    batch: int,
    A: ndarray,
    B: ndarray | None,
    Q: ndarray,
    R: ndarray | None,
    N: ndarray | None,
    gain: ndarray | None,
    value: ndarray,
    status: ndarray,
    threads: int,
) -> None: ...
def ilqr(
    sizes: tuple[int, ...],
    given: tuple[ndarray | None, ...],
    period: ndarray,
    code: ndarray,
    constants: ndarray,
    outputs: ndarray,
    contexts: ndarray,
    start: ndarray,
    guess: ndarray,
    path: ndarray | None,
    feedback: ndarray | None,
    iterations: int,
    tolerance: float,
    states: ndarray,
    inputs: ndarray,
    gains: ndarray,
    cost: ndarray,
    hedge: ndarray,
    status: ndarray,
    used: ndarray,
    threads: int,
) -> None: ...
def ilqr_backward(
    sizes: tuple[int, ...],
    given: tuple[ndarray | None, ...],
    period: ndarray,
    states: ndarray,
    inputs: ndarray,
    features: ndarray,
    jacobians: ndarray,
    damping: ndarray,
    offsets: ndarray,
    gains: ndarray,
    expected: ndarray,
    weights: ndarray,
    hedge: ndarray,
    status: ndarray,
    threads: int,
) -> None: ...

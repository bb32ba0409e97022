"""Write examples/ward_data/*.parquet from the recordings in a folder: python make_ward_data.py FOLDER

FOLDER holds 100.dat (MIT-BIH record 100, as PhysioNet gives it) and acc_triaxial_1000hz.csv.gz
(x, y, z of a worn accelerometer). Deterministic: the same rows every time. What is cut,
shifted, repeated and scaled is said in ward_data/README.md and done here.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_767_592_800_000_000  # 2026-01-05 06:00:00 UTC: the ward's clock, not that of the recordings
SECONDS = 180
ECG_HZ, ACC_HZ = 360, 50
# Which three minutes of the half hour each bed gets, in seconds from its start.
STRETCHES = {"bed_1": 120, "bed_2": 1160, "bed_3": 540}
# Bed 2 moves for the thirty seconds of the recording; all else is its last 1.2 seconds, at rest.
MOVES = {"bed_2": 40}
REST_SECONDS = 1.2
# The recording has no calibration. With these, its last second reads about 1.1 g.
COUNTS_AT_ZERO_G, COUNTS_PER_G = 33_000, 5_000


def millivolts(path: Path) -> np.ndarray:
    """The first lead of a WFDB record in format 212: two 12-bit samples in three bytes."""
    low, both, _ = np.fromfile(path, np.uint8).reshape(-1, 3).T.astype(np.int32)
    counts = low + ((both & 0x0F) << 8)
    counts -= (counts > 2047) * 4096
    return (counts - 1024) / 200  # zero and counts per mV, from the record's header


def magnitude_g(path: Path) -> np.ndarray:
    with gzip.open(path, "rt") as file:
        xyz = np.loadtxt(file, delimiter=",", skiprows=1)
    g = (xyz - COUNTS_AT_ZERO_G) / COUNTS_PER_G
    size = np.sqrt((g**2).sum(axis=1))
    return size[: len(size) // 20 * 20].reshape(-1, 20).mean(axis=1).round(3)  # 1000 Hz to 50 Hz


def acceleration(recorded: np.ndarray, moves_at: int | None) -> np.ndarray:
    rest = recorded[-int(REST_SECONDS * ACC_HZ) :]
    g = np.resize(rest, SECONDS * ACC_HZ)
    if moves_at is not None:
        g[moves_at * ACC_HZ : (moves_at + 30) * ACC_HZ] = recorded[: 30 * ACC_HZ]
    return g


def table(name: str, hz: int, values: dict[str, np.ndarray]) -> pa.Table:
    """All beds in order of time, as a gateway would hand them on."""
    us = START_US + np.arange(SECONDS * hz) * 1_000_000 // hz
    beds = len(values)
    return pa.table(
        {
            "patient": pa.array(list(values) * len(us)).dictionary_encode(),
            "ts": pa.array(np.repeat(us, beds)).cast(pa.timestamp("us", "UTC")),
            name: np.column_stack(list(values.values())).ravel(),
        }
    )


def write(found: pa.Table, path: Path) -> None:
    pq.write_table(
        found,
        path,
        compression="zstd",
        use_dictionary=["patient", found.column_names[2]],
        column_encoding={"ts": "DELTA_BINARY_PACKED"},
        store_schema=False,
    )
    print(f"{path.parent.name}/{path.name}  {found.num_rows:,} rows, {path.stat().st_size:,} bytes")


def main(folder: Path) -> None:
    mv, g = millivolts(folder / "100.dat"), magnitude_g(folder / "acc_triaxial_1000hz.csv.gz")
    target = Path(__file__).parent / "ward_data"
    target.mkdir(exist_ok=True)
    ecg = {bed: mv[at * ECG_HZ : (at + SECONDS) * ECG_HZ] for bed, at in STRETCHES.items()}
    acc = {bed: acceleration(g, MOVES.get(bed)) for bed in STRETCHES}
    write(table("mv", ECG_HZ, ecg), target / "ecg.parquet")
    write(table("g", ACC_HZ, acc), target / "acc.parquet")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[0])
    main(Path(sys.argv[1]))

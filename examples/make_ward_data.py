"""Write examples/ward_data/*.parquet from the recordings in a folder: python make_ward_data.py FOLDER

FOLDER holds 100.dat (MIT-BIH record 100, as PhysioNet gives it), ecg_mitbih208_5min_360hz.npz (record 208,
19:35 to 24:35), ecg_rest_5min_1000hz.csv.gz, acc_triaxial_1000hz.csv.gz and spo2_finger_1000hz.csv.gz (raw
counts). Deterministic: the same rows every time. What is cut, shifted, repeated, scaled and made up is said in
ward_data/README.md and done here.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_767_592_800_000_000  # 2026-01-05 06:00:00 UTC: the ward's clock, not that of the recordings
SECONDS = 180
ACC_HZ = LIGHT_HZ = 50
BEDS = ("bed_1", "bed_2", "bed_3")
# Bed 2 moves for the thirty seconds of the recording; all else is its last 1.2 seconds, at rest.
MOVES = {"bed_2": 60}
REST_SECONDS = 1.2
# The recording has no calibration. With these, its last second reads about 1.1 g.
COUNTS_AT_ZERO_G, COUNTS_PER_G = 33_000, 5_000
# Where in the 90 seconds of light each bed begins; at the end it goes back and forth, without a step.
LIGHT_FROM = {"bed_1": 0, "bed_2": 20, "bed_3": 60}


def counts(path: Path) -> np.ndarray:
    with gzip.open(path, "rt") as file:
        return np.loadtxt(file, delimiter=",", skiprows=1)


def thinned(values: np.ndarray, by: int) -> np.ndarray:
    return values[: len(values) // by * by].reshape(-1, by, *values.shape[1:]).mean(axis=1)


def record_100(path: Path) -> np.ndarray:
    """The first lead of a WFDB record in format 212: two 12-bit samples in three bytes."""
    low, both, _ = np.fromfile(path, np.uint8).reshape(-1, 3).T.astype(np.int32)
    found = low + ((both & 0x0F) << 8)
    found -= (found > 2047) * 4096
    return (found - 1024) / 200  # zero and counts per mV, from the record's header


def ecg(folder: Path) -> pa.Table:
    """Three hearts, two rates."""
    rest = (counts(folder / "ecg_rest_5min_1000hz.csv.gz") / 65_536 - 0.5) * 3.0  # the maker's formula: 3 V, gain 1000
    leads = {
        "bed_1": ("MLII", 360, record_100(folder / "100.dat")[120 * 360 :]),
        "bed_2": ("MLII", 360, np.load(folder / "ecg_mitbih208_5min_360hz.npz")["ecg"][60 * 360 :]),
        "bed_3": ("chest", 1000, rest[30 * 1000 :].round(4)),
    }
    parts = [
        pa.table(
            {
                "patient": pa.array([bed] * (SECONDS * hz)),
                "lead": pa.array([lead] * (SECONDS * hz)),
                "ts": times(hz),
                "mv": mv[: SECONDS * hz],
            }
        )
        for bed, (lead, hz, mv) in leads.items()
    ]
    return in_order(parts)


def acceleration(folder: Path) -> pa.Table:
    g = (counts(folder / "acc_triaxial_1000hz.csv.gz") - COUNTS_AT_ZERO_G) / COUNTS_PER_G
    recorded = thinned(np.sqrt((g**2).sum(axis=1)), 1000 // ACC_HZ).round(3)
    parts = []
    for bed in BEDS:
        own = np.resize(recorded[-int(REST_SECONDS * ACC_HZ) :], SECONDS * ACC_HZ)
        if bed in MOVES:
            own[MOVES[bed] * ACC_HZ : (MOVES[bed] + 30) * ACC_HZ] = recorded[: 30 * ACC_HZ]
        parts.append(pa.table({"patient": [bed] * len(own), "ts": times(ACC_HZ), "g": own}))
    return in_order(parts)


def light(folder: Path) -> pa.Table:
    recorded = thinned(counts(folder / "spo2_finger_1000hz.csv.gz")[1000:91_000], 1000 // LIGHT_HZ).round(1)
    there_and_back = np.concatenate([recorded, recorded[::-1]])
    parts = []
    for bed, start in LIGHT_FROM.items():
        own = np.resize(np.roll(there_and_back, -start * LIGHT_HZ, axis=0), (SECONDS * LIGHT_HZ, 2))
        parts.append(pa.table({"patient": [bed] * len(own), "ts": times(LIGHT_HZ), "a": own[:, 0], "b": own[:, 1]}))
    return in_order(parts)


def pressure_generated() -> pa.Table:
    """Made up, not measured: a slow walk per bed, one reading in five seconds; bed 3 rises in the last minute."""
    rng = np.random.default_rng(4)
    parts = []
    for bed, usual in zip(BEDS, (122.0, 131.0, 127.0), strict=True):
        walk = usual + 3 * np.sin(np.arange(SECONDS // 5) / 4) + rng.normal(0, 1.5, SECONDS // 5)
        if bed == "bed_3":
            walk[24:] += np.linspace(0, 40, len(walk) - 24)
        us = START_US + (np.arange(len(walk)) * 5 + 2) * 1_000_000
        parts.append(
            pa.table(
                {
                    "patient": [bed] * len(walk),
                    "ts": pa.array(us).cast(pa.timestamp("us", "UTC")),
                    "systolic": walk.round(),
                    "diastolic": (0.62 * walk + rng.normal(0, 1, len(walk))).round(),
                }
            )
        )
    return in_order(parts)


def times(hz: int) -> pa.Array:
    return pa.array(START_US + np.arange(SECONDS * hz) * 1_000_000 // hz).cast(pa.timestamp("us", "UTC"))


def in_order(parts: list[pa.Table]) -> pa.Table:
    """All beds in order of time, as a gateway would hand them on."""
    return pa.concat_tables(parts).sort_by([("ts", "ascending"), ("patient", "ascending")])


def write(found: pa.Table, path: Path) -> None:
    names = [name for name in found.column_names if name != "ts"]
    pq.write_table(
        found,
        path,
        compression="zstd",
        use_dictionary=names,
        column_encoding={"ts": "DELTA_BINARY_PACKED"},
        store_schema=False,
    )
    print(f"{path.parent.name}/{path.name}  {found.num_rows:,} rows, {path.stat().st_size:,} bytes")


def main(folder: Path) -> None:
    target = Path(__file__).parent / "ward_data"
    target.mkdir(exist_ok=True)
    write(ecg(folder), target / "ecg.parquet")
    write(acceleration(folder), target / "acc.parquet")
    write(light(folder), target / "light.parquet")
    write(pressure_generated(), target / "pressure_generated.parquet")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[0])
    main(Path(sys.argv[1]))

"""Write examples/probes/*.parquet: 90 seconds of a kiln with three zones, ten readings a second each.

Deterministic: the same bytes of data every time, so that runs can be compared. Zone 1
runs hot from second 30 on, zone 2 swings around 75 degrees, zone 3 stays cool and is
silent for five seconds.
"""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 1, 5, 6, 0, tzinfo=UTC)
SECONDS, PER_SECOND, SECONDS_PER_FILE = 90, 10, 30
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("zone", pa.int32()), ("celsius", pa.float64())])


def celsius(zone: int, second: float) -> float:
    ripple = 1.5 * math.sin(second * 7.3 + zone)
    if zone == 1:
        return round(70 + 25 / (1 + math.exp((30 - second) / 4)) + ripple, 2)
    if zone == 2:
        return round(75 + 12 * math.sin(second / 9) + ripple, 2)
    return round(55 + second / 20 + ripple, 2)


def readings(first: int, last: int) -> pa.Table:
    rows = []
    for step in range(first * PER_SECOND, last * PER_SECOND):
        second = step / PER_SECOND
        for zone in (1, 2, 3):
            if zone == 3 and 40 <= second < 45:
                continue
            at = START + timedelta(milliseconds=1000 * step // PER_SECOND + 7 * zone)
            rows.append({"ts": at, "zone": zone, "celsius": celsius(zone, second)})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def main() -> None:
    folder = Path(__file__).parent / "probes"
    folder.mkdir(exist_ok=True)
    for number, first in enumerate(range(0, SECONDS, SECONDS_PER_FILE), 1):
        table = readings(first, first + SECONDS_PER_FILE)
        pq.write_table(table, folder / f"part-{number}.parquet")
        print(f"{folder.name}/part-{number}.parquet  {table.num_rows} readings")


if __name__ == "__main__":
    main()

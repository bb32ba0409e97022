"""make demo-live: the ward through a real Mosquitto into a real PostgreSQL, both of its own and gone afterwards.

python examples/demo_live.py FOLDER [--kill]: with --kill both servers are killed (SIGKILL) in the middle and
started again a moment later; what is in the tables at the end is the same.
"""

import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psycopg
import pyarrow.parquet as pq
from rich.console import Console

from holdfast.apps.telemonitoring.devices import Devices, messages
from holdfast.apps.telemonitoring.page import limits_of, write_page
from holdfast.apps.telemonitoring.picture import Watched
from holdfast.declare.loading import load
from tests.services.mosquitto import Mosquitto
from tests.services.postgres import PostgresServer

EXAMPLES = Path(__file__).resolve().parent
STREAMS = ("ecg", "acc", "light", "pressure_generated")
TABLES = {"alarms": "patient, kind, ts", "rhythm": "patient, ts", "oxygen": "patient, ts", "motion": "patient, ts"}
console = Console(highlight=False)


def run_live(
    folder: Path, seconds: int, *, kills: bool = False, spark: object = None, say: Callable[[str], None] = print
) -> dict[str, pd.DataFrame]:
    """The first seconds of the recordings through both servers; the tables as they are at the end."""
    folder.mkdir(parents=True)
    for name in ("ward.py", "ward_live.py"):
        shutil.copy(EXAMPLES / name, folder)
    sent = messages(EXAMPLES / "ward_data", STREAMS, seconds)
    with PostgresServer() as database, Mosquitto(folder / "broker") as broker:
        os.environ["MQTT"], os.environ["PG_URL"] = broker.url, database.url
        started = threading.Event()

        def strike(second: int) -> None:
            if kills and second == seconds // 3:
                broker.kill()
                say(f"second {second}: broker killed")
                broker.start()
            if kills and second == seconds // 2:
                database.kill()
                say(f"second {second}: database killed")
                database.start()

        devices = threading.Thread(
            target=Devices(broker.url).play, args=(sent,), kwargs={"ready": started.is_set, "at": strike}, daemon=True
        )
        devices.start()
        live = load(str(folder / "ward_live.py"))
        with live.start(state=folder / "state", spark=spark) as run:
            started.set()
            # The last frame stays open: nothing comes after it that could close it, nor after the one
            # before, which waits two seconds more for stragglers.
            run.wait(frame=seconds // 5 - 1)
            devices.join()
            run.stop()
        with psycopg.connect(database.url) as db:
            tables = {name: _table(db, name, keys) for name, keys in TABLES.items()}
    record = sorted((folder / "record").glob("frame-*.parquet"))
    return {**tables, "clean": pq.read_table(record).to_pandas()}


def _table(db: psycopg.Connection, name: str, keys: str) -> pd.DataFrame:
    found = db.execute(f"select * from {name} order by {keys}")
    table = pd.DataFrame(found.fetchall(), columns=[column.name for column in found.description])
    table["ts"] = pd.to_datetime(table.ts, utc=True)
    return table


def main(folder: Path, kills: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    console.rule("[bold]ward_live.py[/bold]: MQTT (Mosquitto) -> Holdfast -> PostgreSQL")
    tables = run_live(folder, 180, kills=kills, say=console.print)
    pressure = pq.read_table(EXAMPLES / "ward_data" / "pressure_generated.parquet").to_pandas()
    ward = load(str(folder / "ward_live.py")).graph()
    defaults = {param.name: param.default for param in ward.params}
    limits = limits_of(["bed_1", "bed_2", "bed_3"], defaults, [], tables["clean"].ts.min(), pd.Timedelta(seconds=5))
    write_page(Watched(pressure=pressure, limits=limits, **tables), [], folder / "ward.html", folder / "ward.png")
    console.print(f"{len(tables['rhythm']):,} beats and {len(tables['alarms']):,} alarms were in PostgreSQL.")
    console.print(f"[bold]To look at: {folder / 'ward.html'}[/bold] (and ward.png)")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--kill"]
    main(Path(words[0] if words else "build/demo-live"), "--kill" in sys.argv)

"""The page on watching names what there is, and all of it."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.engine.observe.metrics import registry_of
from tests.engine.test_metrics import STATUS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "watching.md").read_text()


def test_every_metric_is_on_the_page_and_no_other():
    bad = {**STATUS["sources"][0], "bad": 1}
    registry = registry_of(lambda: STATUS | {"sources": [bad]})
    served = {sample.name for family in registry.collect() for sample in family.samples}

    assert set(re.findall(r"`(holdfast_\w+)`", PAGE)) == served


def test_the_figures_are_those_of_the_code():
    from holdfast.engine.observe import logs
    from holdfast.engine.session import jvm_log
    from holdfast.journals import seals
    from holdfast.sinks import ledger

    assert f"seals of the last {seals.KEPT_FRAMES:,} frames" in PAGE.replace("\n", " ")
    assert f"the last {ledger.KEPT_FRAMES:,} frames of each sink" in PAGE.replace("\n", " ")
    assert logs.BYTES_MAX * (logs.FILES_OLD + 1) == 15_000_000
    assert jvm_log.JVM_LOG_BYTES_MAX + jvm_log.JVM_LOG_KEPT == 11_000_000
    assert "(15, 30 and 11 MB)" in PAGE

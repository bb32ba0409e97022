"""Telemonitoring: from the leads of an ECG to beats, rates and alarms, with a page to look at."""

from holdfast.extras import need

__all__: list[str] = []

need("demo", "telemonitoring")

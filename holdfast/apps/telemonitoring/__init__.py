"""Telemonitoring: from the leads of an ECG to beats, rates and alarms, with a page to look at."""

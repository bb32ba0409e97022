"""Property tests here are pure; no test asserts a time, so hypothesis may not either."""

import os

from hypothesis import settings

settings.register_profile("holdfast", deadline=None)
settings.register_profile("holdfast-long", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "holdfast"))

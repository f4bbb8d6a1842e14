"""What holds for all tests: an example of hypothesis may take as long as it takes, on a slow machine too."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("graphbox", deadline=None)
settings.load_profile("graphbox")

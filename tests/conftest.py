"""Settings that all tests share."""

import os

from hypothesis import HealthCheck, settings

# 1 in `make test`; `make soak` raises it.
EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))

settings.register_profile(
    "lograft",
    deadline=None,  # the machine is noisy: no timed asserts
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lograft")

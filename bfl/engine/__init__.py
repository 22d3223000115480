"""Running a Flower app, on Ray actors or in this process, and what a process may use.

``flower`` and ``ray_cluster`` are the only doors to what is private of Flower and of Ray.
"""

from __future__ import annotations

import os

# Quiet, and nothing sent anywhere, unless the user has said otherwise. Set before Flower and Ray
# are imported, which read them once.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# Flower's modules import TensorFlow before bfl.keras does, in actors: not Keras 3 as well.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

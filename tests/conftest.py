"""For all tests: a slow machine is not a wrong result, so no example has a deadline."""

from hypothesis import HealthCheck, settings

settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

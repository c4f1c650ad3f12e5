from hypothesis import HealthCheck, settings

# Other people's work on the same processor must not fail a property.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

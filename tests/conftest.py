"""What all tests share."""

from hypothesis import settings

# the time of an example says nothing about the code on a machine that does other work too
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

"""Settings that all unit tests share."""

import hypothesis

# The same examples on every machine and no timed assertion; raise max_examples by hand to search further.
hypothesis.settings.register_profile("gate", deadline=None, database=None, derandomize=True, max_examples=100)
hypothesis.settings.load_profile("gate")

"""The garbage collector of Python, held back where thousands of objects are made that all stay."""

from __future__ import annotations

from tensordict._kernel.fork import in_children
from tensordict._kernel.native import CollectorPause

# No collection in `with PAUSED`: each would walk over all that was made so far and find nothing to free. Native, so that no
# signal comes between the counting and the block.
PAUSED = CollectorPause()
in_children(PAUSED.forget)

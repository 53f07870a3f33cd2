"""Need: whether the agent needs a lesson here, or does such tasks by itself.

In: how similar the tasks are that the agent tried without a lesson, and whether it solved them at once. Out: the share of failures
among the nearest of them, where some are nearly the same. A lesson about what an agent can do breaks more than it mends, and no similarity
of records tells: the nearest record may be near, and the nearest success nearer. Not promised: that what was hard for one model is hard
for the next.
"""

import numpy as np
from numpy.typing import NDArray

LEAST = 0.5  # share of failures from which a lesson may be shown
NEAR = 0.9  # similarity from which another task tells something of this one
WIDTH = 0.15  # similarity below the nearest task's at which a task stops counting


def need(similarities: NDArray[np.float32], solved: NDArray[np.bool_]) -> float | None:
    """The share of failures, in [0, 1], each task weighed by how little less similar it is than the nearest one; None where no task is
    at least `NEAR`.

    Weights fall from 1 at the nearest task's similarity to 0 at `WIDTH` below it. Shapes (n,) and (n,).
    """
    if not len(solved) or similarities.max() < NEAR:
        return None
    weights = np.maximum(0.0, 1.0 - (similarities.max() - similarities) / WIDTH)
    return float(1.0 - (weights @ solved) / weights.sum())

"""Memory for language agents in which every lesson was tried before it was stored.

Names are imported on first use, so that `import mulligan` stays quick and opens nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.agents.react import ReAct as ReAct
    from mulligan.errors import MulliganError as MulliganError
    from mulligan.memory import Memory as Memory
    from mulligan.memory import Settings as Settings
    from mulligan.models import EndpointModel as EndpointModel
    from mulligan.models import ReplayModel as ReplayModel
    from mulligan.models import ScriptedModel as ScriptedModel
    from mulligan.models import open_model as open_model
    from mulligan.protocols import Agent as Agent
    from mulligan.protocols import Embedder as Embedder
    from mulligan.protocols import Model as Model
    from mulligan.protocols import Selector as Selector
    from mulligan.protocols import World as World
    from mulligan.records import Attempt as Attempt
    from mulligan.records import Episode as Episode
    from mulligan.records import Guidance as Guidance
    from mulligan.records import Record as Record
    from mulligan.records import Signal as Signal
    from mulligan.records import Task as Task
    from mulligan.records import Usage as Usage
    from mulligan.records import Verdict as Verdict
    from mulligan.store import Store as Store
    from mulligan.worlds.conformance import check_world as check_world
    from mulligan.worlds.sql import SqlWorld as SqlWorld

__version__ = "0.1.0"

_HOMES = {
    "mulligan.agents.react": ("ReAct",),
    "mulligan.errors": ("MulliganError",),
    "mulligan.memory": ("Memory", "Settings"),
    "mulligan.models": ("EndpointModel", "ReplayModel", "ScriptedModel", "open_model"),
    "mulligan.protocols": ("Agent", "Embedder", "Model", "Selector", "World"),
    "mulligan.records": ("Attempt", "Episode", "Guidance", "Record", "Signal", "Task", "Usage", "Verdict"),
    "mulligan.store": ("Store",),
    "mulligan.worlds.conformance": ("check_world",),
    "mulligan.worlds.sql": ("SqlWorld",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mulligan' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return list(__all__)

"""Checked by mypy in `make check`, never run: what users write must type-check."""

from mulligan import Embedder, Memory, Model, ReAct, ScriptedModel, SqlWorld, Store, World
from mulligan.agents.best_of_n import BestOfN
from mulligan.agents.reflexion import Reflexion
from mulligan.embeddings import HashingEmbedder, StaticEmbedder
from mulligan.protocols import Agent, Selector
from mulligan.read.selection import Never, Threshold, Top1, Utility
from mulligan.worlds.grid import GridWorld

memory = Memory(Store("lessons.db"), SqlWorld(), selector=Threshold(least=0.6), model=ScriptedModel(["x"]))
worlds: list[World] = [SqlWorld(), GridWorld()]
models: list[Model] = [ScriptedModel(["x"])]
embedders: list[Embedder] = [StaticEmbedder(), HashingEmbedder()]
agents: list[Agent] = [ReAct(), Reflexion(), BestOfN()]
selectors: list[Selector] = [Never(), Top1(), Threshold(), Utility()]

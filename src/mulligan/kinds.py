"""The closed sets: every word that a noun may carry where only a few are meant. `records` hands them on."""

from typing import Literal

Split = Literal["source", "train", "heldout"]
Outcome = Literal["helped", "hurt", "neutral"]
Status = Literal["active", "stale", "retired"]
RecordKind = Literal["correction", "procedure", "principle"]
ConditionKind = Literal["none", "predicate", "judged"]
SignalKind = Literal[
    "syntax",  # the action does not parse in its language
    "error",  # the world refused or failed to execute the action
    "unknown_table",
    "unknown_column",
    "unknown_value",  # a literal that nothing in the world holds
    "not_a_query",  # the action would change the world that is only to be read
    "empty_result",
    "column_count",
    "row_count",
    "missing_rows",
    "extra_rows",
    "order",
    "coincidence",  # right here, wrong on a changed copy of the world
    "blocked",  # the action had no effect
    "protected",  # the action changes what it may not, such as a test
    "repeated",  # the same action again
    "assertion",  # a test that does not hold, with both values
    "exception",  # what a program raised, and where
    "unsatisfied",  # a constraint that the answer breaks
    "refuted",  # a claim that the checker disproved
    "goal",  # what is left to prove where a proof stops
    "subgoal",  # the action led no nearer to the goal
    "timeout",
    "too_large",
]
Reason = Literal[
    "admitted",
    "admitted_unverified",  # only in the arm that asks for it
    "no_gain",
    "not_completed",
    "replay_differs",
    "beaten",  # another alternative of the same failed action gained more
    "unparseable",
    "same_as_original",
    "duplicate",
    "not_local",
    "over_limit",  # beyond the number of alternatives allowed for one failed action
    "too_large",
    "repetitive",
    "injected_text",  # derived from guidance that this package itself put into the context
    "contract",  # a note that is not in the form it was asked for
    "memorised",  # a note of which nothing is left without the literals of its task
    "no_uplift",  # a note that changed nothing where it was tried
    "harms",  # a note with which a task came out worse
    "secret",  # a key, a token or a password stands in it
    "evicted",
]
Refusal = Literal["unparseable", "cites_no_step", "names_no_target", "not_new"]  # of a reflection, by its gate
Rewritten = Literal[  # what became of records that were to be rewritten for the present situation
    "",  # nothing was rewritten
    "accepted",
    "empty",  # the model says that they do not fit
    "unreadable",  # a reply that is no guidance in the form it was asked for
    "over_budget",
    "commanding",  # it reads like an instruction to the agent
    "unparseable",  # what it quotes as code does not parse
    "unknown_name",  # it names what the situation does not have
    "copied",  # a value of a stored record that the task does not have
]

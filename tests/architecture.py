"""The tables of the package's shape, which test_architecture.py holds the sources against.

A row here is a decision: change it together with docs/decisions.md. Names are dotted and without the package's own name;
`*` matches anything, `!` takes away. What is allowed for type checking only stands in TYPES_ONLY. EXCEPTIONS may only shrink.
"""

STAGE = "nouns records errors protocols conditions replies prompts edits naming"
MAY_IMPORT = {
    "__init__": "* !cli* !console !building !doctor !trajectories !experiment* !audit* !server !train*",
    "errors": "",
    "nouns": "errors",
    "kinds": "",
    "records": "kinds nouns",
    "protocols": "nouns records",
    "conditions": "nouns records errors",
    "replies": "nouns records errors",
    "edits": "",
    "naming": "records",
    "points": "nouns records errors store meter read.reconstruction",  # the log, as selectors saw it
    "pool": "nouns records errors protocols",
    "migrations": "",
    "database": "errors migrations",
    "redaction": "errors",
    "search": "nouns records errors redaction",
    "ledger": "nouns records errors database redaction",
    "evidence": "nouns records errors database ledger redaction",
    "care": "nouns records errors database evidence",
    "store": "nouns records errors protocols conditions database ledger evidence care search redaction",
    "exchange": "nouns records errors conditions database migrations ledger store redaction",
    "meter": "nouns records errors protocols",
    "recordings": "nouns records errors protocols redaction",
    "models": "nouns records errors protocols replies meter recordings",
    "embeddings": "nouns records errors protocols",
    "prompts": "errors",
    "write": "",
    "write.checks": f"{STAGE} pool",  # alternatives are tried in parallel
    "write.candidates": f"{STAGE} write.contracts",  # a note is asked for in the form that it is read in
    "write.*": STAGE,
    "read": "",
    "read.retrieval": f"{STAGE} store search",  # retrieval alone asks the store
    "read.selection": f"{STAGE} read.weights",
    "read.learned": f"{STAGE} read.features read.weights",
    "read.sets": "nouns read.features",
    "read.uplift": f"{STAGE} read.features read.learned read.sets read.weights",
    "read.weights": "nouns errors read.features",  # which weights name by its hash
    "train": "",
    "train.crossencoder": "errors records embeddings read.features read.reconstruction read.sets read.uplift read.weights train*",
    "train.encoders": "errors records read.reconstruction",  # a scorer reads lessons as an agent is shown them
    # training and serving share one feature function
    "train.*": "nouns records errors protocols points store read.features read.learned read.sets read.uplift read.weights train*",
    "read.*": STAGE,
    # the only file that knows the stages
    "memory": "* !cli* !console !building !doctor !trajectories !experiment* !agents* !tasks* !worlds.* !server !train*",
    # the order in which notes are written, as memory's is of corrections
    "notes": "nouns records errors protocols memory meter search read.reconstruction write.bank write.candidates write.contracts "
    "write.distillation write.validation",
    "worlds": "errors protocols",
    "worlds.*": "nouns records errors protocols replies edits naming worlds*",
    "tasks": "errors",
    "tasks.variants": "nouns records errors protocols conditions tasks*",  # changed tasks are asserted by a world
    "tasks.variants_code tasks.variants_text": "nouns records tasks* worlds.code_text",
    "tasks.variants_games": "nouns records errors protocols conditions tasks* worlds.textgame*",
    "tasks.*": "nouns records errors tasks* worlds.sql* worlds.sat* worlds.smt* worlds.shop* worlds.workspace* worlds.proof_* "
    "worlds.textgame* worlds.maths_values worlds.maths_generated worlds.sandbox",
    "audit": "",
    "audit.repetition": "protocols",
    "audit.grounding": "",
    "audit.logs": "nouns errors store",
    "audit.measures": "nouns protocols audit*",
    "audit.recheck": "nouns audit* worlds.sandbox",  # what a log stores is run again
    "audit.freshness": "nouns records errors protocols pool care store write.checks write.signals write.admission",  # a check is run again
    "audit.offpolicy": "nouns records errors protocols points experiment.statistics",  # intervals as in reports
    "audit.page": "audit* experiment.report_content",
    "agents": "errors protocols",
    "agents.*": "nouns records errors protocols replies prompts agents* audit.repetition audit.grounding",
    "experiment": "",
    "experiment.*": "* !cli* !console !building !doctor !trajectories !server",
    "console": "* !cli*",
    "building": "* !cli* !console !doctor !trajectories",
    "doctor": "* !cli* !console !trajectories",
    "trajectories": "* !cli* !console !building !doctor",
    "cli*": "*",  # the composition root
}
TYPES_ONLY = {"protocols": "memory", "agents.*": "memory"}

PROCESSES = "worlds.* pool"
MAY_USE = {
    "sqlite3": "store database migrations search exchange doctor worlds.sql* tasks.loading tasks.sample",
    "openai": "models embeddings",
    "xllamacpp": "models",
    "wordllama": "embeddings",
    "pydantic": "nouns records",
    "sqlglot": "worlds.sql*",
    "pysat": "worlds.sat_solver",
    "sympy latex2sympy2_extended": "worlds.maths_worker",
    "z3 cvc5": "worlds.smt_worker",
    "bm25s": "worlds.shop_catalogue",
    "rapidfuzz": "worlds.shop_reward",
    "textworld fast_downward": "worlds.textgame_worker",
    "typer click rich": "cli* console",
    "matplotlib": "experiment.report*",
    "numpy": "*",
    "torch transformers trl peft sklearn scipy": "train.*",
    "safetensors": "read.weights train.crossencoder",
    "starlette fastapi uvicorn mcp asyncio": "server",
    "subprocess multiprocessing concurrent.futures pty": PROCESSES,
    "os.fork* os.system os.popen os.exec* os.spawn* os.posix_spawn*": PROCESSES,
    "http urllib.request httpx requests aiohttp": "models",
    "socket": "worlds.sandbox*",  # between the host and what runs behind its walls
    "pickle shelve dill": "",  # nothing is stored in a form that runs when it is read
    "marshal": "worlds.*",  # between a world and its own worker process, never to disk
    # registries; anywhere else they would blind the table above
    "importlib.import_module __import__ runpy": "__init__ read.selection redaction tasks.dimacs worlds worlds.sandbox_inside "
    "worlds.maths_gym building experiment.* cli*",
}

MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS, MAX_DEPTH, MAX_PACKAGE, MAX_PUBLIC, MAX_SUMMARY = 500, 60, 8, 2, 36_000, 25, 120
RUNS_STRANGERS = {"worlds.maths_gym", "worlds.sandbox_inside"}  # what a stranger's code raises, whatever it is, is the answer
SHORTER = {"protocols": 120, "errors": 60}  # what must stay on one page
BANNED = frozenset(["utils", "util", "helpers", "helper", "common", "misc", "base", "core", "manager"])

# (rule, place) → why. Broad handlers are allowed around a trial, a request or a command; nothing else is foreseen.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("handlers", "cli:main"): "around a command: the last line of defence, which shows one line instead of a traceback",
    ("sizes", "cli:learn"): "a parameter is an option of the command, and two are for one world",
    ("sizes", "cli:recall"): "a parameter is an option of the command",
    ("handlers", "trajectories:learn"): "around a trial: one bad line of a file of episodes must not lose the others",
    ("handlers", "worlds.maths_worker:judged"): "around a request: the parser raises a plain Exception for what it cannot read",
    ("handlers", "worlds.textgame_worker:main"): "around a request: a stranger's game may make its engine raise anything",
    ("handlers", "worlds.conformance:attempt"): "around a trial: the world under check may raise anything, and that is the finding",
}

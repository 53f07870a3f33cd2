"""What a lesson in words names that a play of a text game has not seen: things, places, commands about them.

In: a situation and a text. Out: misfits. Looked at are quoted commands, things with a number (mug 1), and the words for things and places
that games of ALFWorld and TextWorld use. What was seen is the task line and all that the game has answered: neither plan nor hidden facts
are read. Not promised: that a thing of another kind of game is known for one in plain prose.
"""

import re
from collections.abc import Iterator, Sequence

from mulligan.naming import fold, misfit, names, parts, stands_in, too_long, vocabulary
from mulligan.records import Misfit, Situation

# What a command is made of beside things and places.
COMMAND = vocabulary(
    "go to take get pick up put place move insert drop open close use examine look heat cool clean slice cut chop dice cook eat "
    "drink unlock lock prepare make read inventory help toggle turn on off at in into onto from with the a an and then it them "
    "north south east west out under of object item thing receptacle container location room door command"
)
THINGS = vocabulary(
    "alarmclock apple armchair bathtub bathtubbasin bed blanket book boots bowl box bread butterknife cabinet candle cart cd "
    "cellphone cloth coffeemachine coffeetable countertop creditcard cup desk desklamp diningtable dishsponge dresser egg "
    "floorlamp footstool fork fridge garbagecan glassbottle handtowel handtowelholder houseplant kettle keychain knife ladle "
    "laundryhamper laptop lettuce microwave mirror mug newspaper nightstand ottoman painting pan papertowelroll pen pencil "
    "peppershaker pillow plate plunger poster potato pot remotecontrol saltshaker scrubbrush shelf sidetable sink sinkbasin "
    "soapbar soapbottle sofa spatula spoon spraybottle statue stoveburner teddybear television tennisracket tissuebox toaster "
    "toilet toiletpaper toiletpaperhanger tomato towel towelholder tvstand vase wateringcan winebottle bbq bench bookcase carrot "
    "cashew chest chicken cookbook counter couch cupboard drawer flour freezer gate key lamp locker meal oven patio refrigerator "
    "salmon shed showcase stove suitcase table toolbox trunk attic basement bathroom bedroom corridor garden kitchen pantry pub "
    "supermarket"
)
_NUMBERED = re.compile(r"\b([^\W\d_]+) (\d{1,3})\b")
_COUNTED = vocabulary("step room move try attempt first last next least most only about than to or and number score within after every")
_WORD = re.compile(r"[^\W\d_]{2,}")


def misfits(situation: Situation, text: str) -> Sequence[Misfit]:
    """All that `text` names that the play has not seen."""
    if long := too_long(text):
        return long
    sight, found = fold(situation.sight), parts(text)
    return [misfit(name) for name in dict.fromkeys(_unseen(found.prose, [*(c.text for c in found.code), *found.said], sight))]


def _unseen(prose: str, commands: Sequence[str], sight: str) -> Iterator[str]:
    run_together = sight.replace(" ", "")

    def seen(word: str) -> bool:
        alike = dict.fromkeys((word, word.removesuffix("s"), word.removesuffix("es")))
        return any(stands_in(one, sight) or (len(one) > 7 and one in run_together) for one in alike)

    for command in commands:
        if stands_in(command, sight):
            continue
        yield from _numbered(command, sight)
        yield from (word for word in _WORD.findall(command.lower()) if word not in COMMAND and not seen(word))
        yield from (name for name in names(command) if not stands_in(name, sight))
    yield from _numbered(prose, sight)
    yield from (name for name in names(prose) if not stands_in(name, sight))
    for word in _WORD.findall(prose.lower()):
        if (word in THINGS or word.removesuffix("s") in THINGS) and not seen(word):
            yield word


def _numbered(text: str, sight: str) -> Iterator[str]:
    """Things with a number that was not seen. A number behind a word of counting is no thing's."""
    for word, number in _NUMBERED.findall(text.lower()):
        if word.removesuffix("s") not in _COUNTED and not stands_in(f"{word} {number}", sight):
            yield f"{word} {number}"

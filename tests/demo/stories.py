"""A demo that is over, small enough to check by hand."""

from gradientmail.demo.story import CLOSER, Alone, Kill, Point, Story
from gradientmail.records.commit import Participant, RoundRecord
from gradientmail.records.manifest import PayloadRef
from gradientmail.records.presence import Presence

BEGAN = 1000.0
DIGEST = "xxh3_128:" + "0" * 32
SHARES = {"fast": 1.0, "slow-1": 0.25, "slow-2": 0.25}


def nonce(number: int) -> str:
    return f"{number:032x}"


def part(learner: str, weight: float, incarnation: int = 1) -> Participant:
    return Participant(
        learner=learner,
        incarnation=nonce(incarnation),
        nonce=nonce(7),
        base=0,
        steps=4,
        tokens=8,
        weight=weight,
        norm=1.0,
        clip=1.0,
        key="mail",
        digest=DIGEST,
    )


def commit(at_s: float, version: int, *parts: Participant, term: int = 1) -> RoundRecord:
    return RoundRecord(
        run="run-1",
        fragment=0,
        version=version,
        parent=DIGEST,
        params=PayloadRef(key="params", size_bytes=1, digest=DIGEST),
        empty=not parts,
        participants=parts,
        closer=CLOSER,
        term=term,
        nonce=nonce(9),
        closed_at=BEGAN + at_s,
    )


def presence(learner: str, incarnation: int, *, steps: int, up: int, down: int) -> Presence:
    return Presence(
        run="run-1",
        learner=learner,
        incarnation=nonce(incarnation),
        count=1,
        versions=(1,),
        steps=steps,
        tokens=2 * steps,
        step_s=0.5,
        loss=2.5,
        posted=3,
        applied=2,
        bytes_up=up,
        bytes_down=down,
        requests=10,
        seen_at=BEGAN,
    )


def a_story() -> Story:
    """Two kills: the closer at 12 s, back at 18 s; slow-1 at 22 s, back at 40 s."""
    story = Story(shares=SHARES, seconds=40.0)
    story.saw(presence("fast", 1, steps=100, up=1000, down=2000))
    story.saw(presence("slow-1", 1, steps=10, up=100, down=200))
    story.saw(presence("slow-2", 1, steps=25, up=300, down=400))
    story.saw(presence("slow-1", 2, steps=20, up=50, down=60))
    story.commits = [
        commit(10, 1, part("fast", 3.0), part("slow-1", 1.0)),
        commit(18, 2, part("fast", 3.0), part("slow-2", 1.0), term=2),
        commit(25, 3, part("fast", 3.0), part("slow-1", 1.0), term=2),
        commit(30, 4, term=2),
        commit(40, 5, part("slow-1", 1.0, incarnation=2), term=2),
    ]
    story.kills = [Kill(CLOSER, BEGAN + 12), Kill("slow-1", BEGAN + 22)]
    story.together = [Point(0, 5.5), Point(20, 3.0), Point(40, 2.0)]
    story.alone = [Point(0, 5.5), Point(20, 2.9), Point(40, 2.25)]
    story.progress_alone = Alone(at_s=40.0, steps=120, loss=2.3)
    return story

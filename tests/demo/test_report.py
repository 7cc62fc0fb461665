from msgspec.structs import replace
from rich.console import Console

from gradientmail.demo.report import report, verdict
from gradientmail.demo.summary import summarized
from tests.demo.stories import a_story, part


def test_the_verdict_is_the_truth_either_way() -> None:
    story = a_story()
    ahead = summarized(story, run="run-1", parameters=1000)
    assert "0.250 nats per byte ahead" in verdict(ahead)
    story.together, story.alone = story.alone, story.together
    assert "0.250 nats per byte behind" in verdict(summarized(story, run="run-1", parameters=1000))


def test_the_report_names_everyone_and_says_how_it_counted() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(report(summarized(a_story(), run="run-1", parameters=1000)))
    text = captured.get()
    for expected in ("fast", "slow-1", "slow-2", "2 ways x 4 bytes x 1,000 numbers", "6.0 s"):
        assert expected in text
    assert "rounds without a contribution: 1" in text


def test_a_process_that_was_never_missed_again_is_said_to_be_lost() -> None:
    story = a_story()
    story.commits[-1] = replace(story.commits[-1], participants=(part("fast", 1.0),))
    console = Console(width=100)
    with console.capture() as captured:
        console.print(report(summarized(story, run="run-1", parameters=1000)))
    assert "no effect again" in captured.get()

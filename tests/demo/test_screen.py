import io

from rich.console import Console

from gradientmail.demo.screen import LiveScreen, PlainScreen, picture, screen_for
from gradientmail.demo.story import Story
from tests.demo.stories import SHARES, a_story


def shown(story: Story, *seconds: float) -> list[str]:
    output = io.StringIO()
    with PlainScreen(Console(file=output, width=100)) as screen:
        for now_s in seconds:
            screen.show(story, lambda _: "pid 7", now_s)
    return output.getvalue().splitlines()


def test_without_a_terminal_each_event_is_one_line_once() -> None:
    story = a_story()
    story.events = [(12.0, "kill -9 7: closer")]
    lines = shown(story, 5.0, 6.0)
    assert "  12.0 s  kill -9 7: closer" in lines
    assert "  10.0 s  fragment 0 at version 1, by fast 75%, slow-1 25%" in lines
    assert "  30.0 s  fragment 0 at version 4, by nobody" in lines
    assert "  40.0 s  held-out loss of the run: 2.0000" in lines
    assert "  40.0 s  held-out loss of fast alone: 2.2500" in lines
    assert len(lines) == 1 + 5 + 3 + 3


def test_progress_is_told_every_ten_seconds_in_each_part() -> None:
    story = Story(shares=SHARES, seconds=40.0)
    assert [line[:8] for line in shown(story, 5.0, 10.0, 11.0, 20.0, 1.0, 11.0)] == [
        f"{at_s:6.1f} s" for at_s in (10.0, 20.0, 11.0)
    ]


def test_the_picture_fits_an_ordinary_terminal() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(
            picture(a_story(), lambda name: "killed" if name == "closer" else "pid 11", 30.0)
        )
    text = captured.get()
    assert max(map(len, text.splitlines())) <= 100
    for expected in ("pid 11", "killed", "term 2", "2/3", "held-out", "2.250", "fast alone"):
        assert expected in text


def test_a_story_that_has_not_begun_can_be_shown() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(picture(Story(shares=SHARES, seconds=40.0), lambda _: "ended", 0.0))
    assert "0 rounds closed" in captured.get()


def test_only_a_terminal_gets_the_live_picture() -> None:
    assert isinstance(screen_for(Console(force_terminal=True)), LiveScreen)
    assert isinstance(screen_for(Console(file=io.StringIO())), PlainScreen)

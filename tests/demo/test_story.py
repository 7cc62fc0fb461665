from gradientmail.demo.story import CLOSER, Kill, Story, commit_shares
from tests.demo.stories import BEGAN, SHARES, a_story, commit, part, presence


def test_the_run_begins_with_the_first_learner_and_lasts_to_the_last_commit() -> None:
    story = a_story()
    assert (story.began_at, story.trained_s) == (BEGAN, 40.0)
    assert Story(shares=SHARES, seconds=1.0).trained_s == 0.0


def test_a_restart_is_a_new_incarnation_beside_the_old_one() -> None:
    story = a_story()
    assert [one.steps for one in story.presences["slow-1"].values()] == [10, 20]
    newest = story.presence("slow-1")
    assert newest is not None
    assert newest.steps == 20


def test_a_closer_is_back_with_the_first_commit_of_a_new_term() -> None:
    story = a_story()
    assert story.back_at(story.kills[0]) == BEGAN + 18


def test_a_learner_is_back_with_the_first_contribution_of_a_new_incarnation() -> None:
    """What its dead self had posted before the kill is used at 25 s, and does not count."""
    story = a_story()
    assert story.back_at(story.kills[1]) == BEGAN + 40


def test_who_never_came_back_is_not_back() -> None:
    story = a_story()
    assert story.back_at(Kill(CLOSER, BEGAN + 30)) is None
    assert story.back_at(Kill("slow-2", BEGAN + 30)) is None


def test_shares_of_a_round_sum_a_learners_contributions() -> None:
    twice = commit(1, 1, part("fast", 2.0), part("fast", 1.0), part("slow-1", 1.0))
    assert commit_shares(twice) == {"fast": 0.75, "slow-1": 0.25}
    assert commit_shares(commit(1, 1)) == {}


def test_the_last_word_of_a_learner_that_never_joined_is_none() -> None:
    story = Story(shares=SHARES, seconds=1.0)
    story.saw(presence("fast", 1, steps=1, up=1, down=1))
    assert story.presence("slow-1") is None

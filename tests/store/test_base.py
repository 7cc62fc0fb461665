import pytest

from gradientmail.store.base import check_key


@pytest.mark.parametrize(
    "key",
    [
        "manifest.json",
        "mail/0000/0000000012/learner-7/0123abcd.0000-of-0001.safetensors",
        ".doctor/0123/twice",
        "a..b/c",
        "x" * 512,
    ],
)
def test_a_key_is_returned_as_it_is(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        *("", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "../a", ".tmp", "a/.tmp"),
        *("a b", "a\\b", "a\n", "a:b", "a%2fb", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x" * 513),
    ],
)
def test_what_no_store_may_be_asked_for_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        check_key(key)

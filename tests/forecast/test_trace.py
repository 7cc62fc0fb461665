from gradientmail.forecast.trace import Doing, Trace


def test_only_what_is_shown_is_kept_and_cut_off_where_the_picture_ends() -> None:
    trace = Trace(shown=frozenset({"a"}), until_s=10.0)
    trace.span("a", Doing.TRAINING, 8.0, 12.0)
    trace.span("a", Doing.TRAINING, 12.0, 14.0)
    trace.span("b", Doing.TRAINING, 0.0, 1.0)
    trace.span("a", Doing.WAITING, 3.0, 3.0)
    trace.close(9.0, 0, 1)
    trace.close(11.0, 0, 1)
    assert trace.spans == [("a", Doing.TRAINING, 8.0, 10.0)]
    assert trace.closed == [(9.0, 0, 1)]

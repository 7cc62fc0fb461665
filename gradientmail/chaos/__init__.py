"""Chaos: learners and closers as real processes on a real store, broken on purpose and judged."""

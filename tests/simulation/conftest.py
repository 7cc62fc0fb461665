import logging

import pytest
import torch


@pytest.fixture(name="quiet")
def one_thread_and_no_log():
    """A thousand worlds' warnings are no news; tiny tensors are slower on many threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    torch.set_num_threads(threads)

"""Train one model on scattered machines that share nothing but a bucket or a directory."""

__version__ = "0.1.0"

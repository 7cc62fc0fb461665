"""Train one model on scattered machines that share nothing but a bucket or a directory."""

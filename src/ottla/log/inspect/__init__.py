"""Looking at the files of a log without changing them."""

"""The loop, the computer it runs on, and long work in short steps."""

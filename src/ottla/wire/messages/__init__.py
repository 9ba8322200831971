"""Every message, a file an API; and the records of the coordinators."""

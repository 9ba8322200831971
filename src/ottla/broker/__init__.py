"""The shell around the machines: sockets, clocks, files, one handler an API."""

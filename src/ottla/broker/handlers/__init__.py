"""One file an API, named after it: its `handle(broker, request, context)` checks, calls a room, shapes the reply."""

"""The mirror: topics of one cluster, copied to another, batch by batch as they are, each record exactly once."""

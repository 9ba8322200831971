"""ZooKeeper as the home of the store: for clusters of several machines."""

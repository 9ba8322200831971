"""What every client stands on: connections, what is known of the cluster, and trying again."""

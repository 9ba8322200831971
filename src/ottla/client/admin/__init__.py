"""Managing a cluster: topics, configurations, groups, transactions, and what there is to know of them."""

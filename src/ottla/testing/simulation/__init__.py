"""Many machines in one process: a network, a time and a seed for all, a disk and a clock for each.

`Simulation` runs them (simulation.py). `BrokerMachine` has a broker and a disk, `Machine` is one for clients. What can
happen to them is theirs and the network's to do: `kill`, `lose_power`, `pause`, `jump_clock`, `block`, `cut`. When and
to whom is up to the test.
"""

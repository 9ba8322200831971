"""Every change of tables in MariaDB and MySQL: a snapshot, and then the binlog."""

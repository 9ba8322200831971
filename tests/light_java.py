"""Options of Java for processes that live a minute: they would end before its better compiler has paid."""

LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

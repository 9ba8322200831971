"""Builds the compiled modules. Everything else is in pyproject.toml.

The record codec, the hash of keys, the checksums of batches that another producer sends on, the wire's fast path, the
way of a produce request through the broker, the rows of MySQL's binlog and its JSON are ordinary Python that Cython
also compiles. The extensions are optional: where there is no C compiler it goes on without them, and the same files run
as they are.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = (
    "ottla.records.codec", "ottla.records.key_hash", "ottla.records.crc_change", "ottla.wire.fast_path",
    "ottla.connect.mysql.row_image", "ottla.connect.mysql.binary_json", "ottla.replica.writer",
    "ottla.replica.acknowledgements", "ottla.broker.handlers.produce", "ottla.broker.network.slot",
    "ottla.broker.network.connection", "ottla.broker.dispatch",
)  # fmt: skip

extensions = cythonize(
    [Extension(module, [f"src/{module.replace('.', '/')}.py"], extra_compile_args=["-O3"]) for module in MODULES],
    build_dir="build",
    language_level=3,
    compiler_directives={"annotation_typing": False},  # the C types are in the .pxd files, and only there
)
for extension in extensions:
    extension.optional = True  # cythonize makes new extensions and does not keep this

setup(ext_modules=extensions)

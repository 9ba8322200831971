"""Builds the one compiled module. Everything else is in pyproject.toml.

The record codec is ordinary Python that Cython also compiles. The extension is optional: where there is no
C compiler the build goes on without it, and the same file runs as it is.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = cythonize(
    [Extension("ottla.records.codec", ["src/ottla/records/codec.py"], extra_compile_args=["-O3"])],
    build_dir="build",
    language_level=3,
    compiler_directives={"annotation_typing": False},  # the C types are in codec.pxd, and only there
)
for extension in extensions:
    extension.optional = True  # cythonize makes new extensions and does not keep this

setup(ext_modules=extensions)

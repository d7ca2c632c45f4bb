"""The installed package as a stranger uses it: find_package, pkg-config, the exported symbols, both examples."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GNOMON_BUILD", ROOT / "build" / "release"))


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed") / "moved"  # a prefix that no build knew
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


def library_folder(prefix):
    (library,) = prefix.rglob("libgnomon.so")
    return library.parent


def environment(prefix, tmp_path):
    folder = library_folder(prefix)
    return {**os.environ, "PKG_CONFIG_PATH": str(folder / "pkgconfig"), "LD_LIBRARY_PATH": str(folder), "GNOMON_PLAN_DIR": str(tmp_path)}


@pytest.mark.parametrize("language, program, expected", [("c", "forward", '"bound"'), ("cpp", "serve", '"forwards":6')])
def test_example_through_find_package(prefix, tmp_path, language, program, expected):
    run("cmake", "-S", ROOT / "examples" / language, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    output = run(tmp_path / "build" / program, env=environment(prefix, tmp_path))
    assert expected in output.replace(" ", ""), output


def test_c_example_through_pkg_config(prefix, tmp_path):
    env = environment(prefix, tmp_path)
    run("make", "-C", tmp_path, "-f", ROOT / "examples/c/Makefile", f"VPATH={ROOT / 'examples/c'}", env=env)
    assert "y[0] =" in run(tmp_path / "forward", env=env)


def test_an_older_cpp_is_told_what_the_header_needs(prefix, tmp_path):
    (tmp_path / "old.cpp").write_text("#include <gnomon/gnomon.hpp>\n")
    done = subprocess.run(["c++", "-std=c++17", "-fsyntax-only", "-I", prefix / "include", tmp_path / "old.cpp"], capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert done.returncode != 0 and "is C++20: compile with -std=c++20" in errors[0]


def test_library_exports_only_the_c_interface(prefix):
    library = library_folder(prefix) / "libgnomon.so"
    symbols = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    header = (ROOT / "include/gnomon/gnomon.h").read_text()
    declared = set(re.findall(r"\b(gnomon_\w+)\(", header))
    for source in (ROOT / "src/api").glob("python_*.cpp"):
        declared |= set(re.findall(r"GNOMON_FOR_PYTHON\b[^(]*\b(gnomon_\w+)\(", source.read_text()))
    assert symbols - {"GNOMON_0"} == declared
    assert "libgnomon.so.0" in run("readelf", "-d", library)


def test_installed_command_line_and_completions(prefix):
    assert run(prefix / "bin/gnomon", "--version").startswith("gnomon ")
    for path in ("bash-completion/completions/gnomon", "zsh/site-functions/_gnomon", "fish/vendor_completions.d/gnomon.fish"):
        assert "bench" in (prefix / "share" / path).read_text()


@pytest.mark.parametrize("header", ["gnomon.h", "gnomon.hpp"])
def test_headers_need_nothing_else(prefix, tmp_path, header):
    source = tmp_path / ("one.c" if header.endswith(".h") else "one.cpp")
    source.write_text(f"#include <gnomon/{header}>\n")
    compiler = ["cc", "-std=c99"] if header.endswith(".h") else ["c++", "-std=c++20"]
    run(*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I", prefix / "include", source)

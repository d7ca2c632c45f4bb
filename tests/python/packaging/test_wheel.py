"""The wheel as a stranger gets it: built by pip from this tree, installed beside Debian's PyTorch, used from elsewhere.

Building takes minutes, so these tests are a stage of their own (./run test packaging). GNOMON_WHEEL names a wheel made before.
"""

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
VERSION = re.search(r"project\(gnomon VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
# What every Linux with PyTorch has: glibc, and the C++ library that PyTorch itself needs.
SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so.*)$")
CALL = """
import json, torch
from torch import nn


def mapped():
    return {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}


torch.nn.Linear(8, 8)(torch.randn(64, 8))
of_pytorch = mapped()
import gnomon
layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu", batch_first=True)
module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
x = torch.randn(3, 17, 64)
with torch.no_grad():
    expected = module(x)
    gnomon.optimize(module, budget=1)
    gap = (module(x) - expected).abs().max().item()
    expected = module(x)
(entry,) = gnomon.explain(module).as_dict()["modules"]
print(json.dumps({"gap": gap, "answered": entry["answered"], "fallbacks": entry["fallbacks"], "mapped": sorted(mapped() - of_pytorch),
                  "library": str(gnomon.library_path()), "file": gnomon.__file__, "version": gnomon.__version__}))
"""


def run(*command, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    named = os.environ.get("GNOMON_WHEEL")
    if named:
        return Path(named)
    folder = tmp_path_factory.mktemp("wheel")
    run("/usr/bin/python3", "-m", "pip", "wheel", ROOT, "--no-deps", "--quiet", "-w", folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def environment(wheel, tmp_path_factory) -> Path:
    """A new virtual environment that sees Debian's PyTorch and no Gnomon but the wheel's."""
    folder = tmp_path_factory.mktemp("environment")
    run("/usr/bin/python3", "-m", "venv", "--system-site-packages", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    return folder


@pytest.fixture
def clean(tmp_path) -> dict:
    """How a command runs from elsewhere: nothing names the library or a path to Python's modules."""
    hidden = ("GNOMON_LIBRARY", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    return {"cwd": tmp_path, "env": {**variables, "GNOMON_PLAN_DIR": str(tmp_path / "plans")}}


def test_its_name_serves_every_python(wheel):
    assert wheel.name == f"gnomon-{VERSION}-py3-none-linux_x86_64.whl"


def test_it_holds_what_it_should_and_nothing_of_the_build(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {"gnomon/lib/libgnomon.so", "gnomon/bin/gnomon", "gnomon/py.typed", "gnomon/_bench/page.css"}
    expected |= {f"gnomon/_bench/shared/{name}" for name in ("suite.json", "reference.py", "stack_config.py", "machine.py")}
    assert expected <= names
    assert {name.split("/")[0] for name in names} == {"gnomon", f"gnomon-{VERSION}.dist-info"}
    assert not [name for name in names if name.endswith((".pyc", ".a", ".hpp", ".cmake"))]
    licences = [name for name in names if name.startswith("gnomon/lib/licenses/")]
    assert len(licences) == len([name for name in names if re.match(r"gnomon/lib/(?!libgnomon).*\.so", name)])


def programs(package: Path) -> dict:
    """Each library and program with what it needs, its name and where it looks."""
    found = {}
    for path in [*(package / "lib").glob("*.so*"), package / "bin" / "gnomon"]:
        text = run("objdump", "-p", path)
        fields = {key: re.findall(rf"^\s+{key}\s+(\S+)", text, re.M) for key in ("NEEDED", "SONAME", "RUNPATH", "RPATH")}
        found[path] = fields
    return found


def package_of(environment: Path) -> Path:
    (package,) = environment.glob("lib/python3*/site-packages/gnomon")
    return package


def test_it_needs_nothing_but_glibc_the_cpp_library_and_itself(environment):
    package = package_of(environment)
    bundled = {path.name for path in (package / "lib").glob("*.so*")}
    for path, fields in programs(package).items():
        foreign = [name for name in fields["NEEDED"] if not SYSTEM.match(name) and name not in bundled]
        assert not foreign, f"{path.name} needs {foreign}"
        assert fields["RUNPATH"] + fields["RPATH"] == ["$ORIGIN/../lib" if path.parent.name == "bin" else "$ORIGIN"], path.name


def test_no_bundled_library_can_pass_for_another(environment):
    libraries = [path for path in package_of(environment).glob("lib/*.so*") if not path.name.startswith("libgnomon")]
    assert len(libraries) >= 4
    for path in libraries:
        assert re.search(r"-[0-9a-f]{8}\.so", path.name), path.name
        assert f"SONAME               {path.name}" in run("objdump", "-p", path)


def test_a_drop_in_call_from_another_folder(environment, clean):
    result = json.loads(run(environment / "bin" / "python", "-c", CALL, **clean))
    package = str(package_of(environment))
    assert result["library"] == f"{package}/lib/libgnomon.so" and result["file"] == f"{package}/__init__.py"
    assert result["version"] == VERSION
    assert result["fallbacks"] == [] and result["answered"] == 2 and result["gap"] <= 0.002
    # What came with Gnomon is its own: Debian's oneDNN, OpenMP, fmt and Highway are there (PyTorch's), and are not used.
    libraries = [Path(name) for name in result["mapped"] if Path(name).name.startswith("lib")]
    ours = {path.name.split("-")[0] for path in libraries if package in str(path)}
    assert {"libdnnl", "libgomp", "libhwy", "libfmt"} <= ours
    assert not [path for path in libraries if package not in str(path) and not SYSTEM.match(path.name) and "ffi" not in path.name]


def test_the_console_script(environment, clean):
    gnomon = environment / "bin" / "gnomon"
    assert run(gnomon, "--version", **clean).strip() == f"gnomon {VERSION}"
    info = run(gnomon, "info", **clean)
    assert "oneDNN" in info and "PyTorch" in info and str(package_of(environment)) in info
    assert "bench-torch" in run(gnomon, "--help", **clean)
    assert subprocess.run([gnomon, "nonsense"], capture_output=True, **clean).returncode == 2


def test_the_bench_runs_from_the_wheel(environment, clean):
    short = ["--shapes", "1", "--rounds", "3", "--budget", "6", "--peers", "gnomon", "--device", "cpu", "--json", "out.json", "--html", "out.html"]
    run(environment / "bin" / "gnomon", "bench-torch", *short, **clean)
    results = json.loads((clean["cwd"] / "out.json").read_text())
    (row,) = [row for row in results["shapes"][0]["rows"] if row["name"] == "gnomon"]
    assert row["worst"] <= 1.0
    assert re.match(r"[0-9a-f]{7,}" if shutil.which("git") else "unknown", results["commit"])


def test_sources_are_of_python_3_9():
    import ast

    sources = [*(ROOT / "python").rglob("*.py"), *[ROOT / "bench" / name for name in ("reference.py", "stack_config.py", "peers/machine.py")]]
    assert len(sources) > 10
    for path in sources:
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 9))

"""What runs before a change lands, at night and at a release: it is what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

Job = dict[str, Any]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOX = ConfigParser(interpolation=None)
TOX.read(ROOT / "tox.ini", encoding="utf-8")
OURS = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.rst").read_text(encoding="utf-8")
VARIABLE = r"\b(SHEDLOCK_[A-Z_]+|MONGODB_URL|DYNAMODB_URL)\b"


def workflow(name: str) -> dict[str, Any]:
    """Return what is in a workflow's file."""
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


WORKFLOWS = {
    path.stem: workflow(path.stem) for path in ROOT.glob(".github/workflows/*.yml")
}


def jobs() -> Iterator[tuple[str, Job]]:
    """Return each job of each workflow, with a name for both."""
    for name, each in WORKFLOWS.items():
        for job, content in each["jobs"].items():
            yield f"{name}: {job}", content


def commands(job: Job) -> list[str]:
    """Return what the job's steps run."""
    return [step["run"] for step in job.get("steps", ()) if "run" in step]


def variants(job: Job) -> list[dict[str, str]]:
    """Return the variables of each of the job's runs, as its matrix has them."""
    matrix = job.get("strategy", {}).get("matrix", {})
    included: list[dict[str, str]] = matrix.get("include", [])
    rows = included or [
        dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())
    ]
    steps = [step.get("env", {}) for step in job.get("steps", ())]
    variables = {k: v for each in (job.get("env", {}), *steps) for k, v in each.items()}
    return [{k: filled_in(str(v), row) for k, v in variables.items()} for row in rows]


def filled_in(text: str, row: dict[str, str]) -> str:
    """Return the text with the values of a matrix."""
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match: row[match[1]], text)


def environments(command: str, variables: dict[str, str]) -> list[str]:
    """Return the environments of tox that a command runs."""
    without_dot = variables.get("PYTHON", "").replace(".", "")
    command = command.replace("${PYTHON/./}", without_dot)
    for name, value in variables.items():
        command = command.replace(f"${{{name}}}", value).replace(f"${name}", value)
    runs = r"(?:tox run|\.ci/try_release)\S* (?:[^|;\n]|\\\n)*?-e \"?([\w,-]+)"
    return [name for found in re.findall(runs, command) for name in found.split(",")]


def known_to_tox() -> set[str]:
    """Return the names of tox's environments."""
    listed = {
        cell
        for line in TOX["tox"]["env_list"].split("\n")
        for cell in expanded(line)
        if "-" in line
    }
    sections = (name.removeprefix("testenv:") for name in TOX.sections())
    return listed | set(sections)


def expanded(name: str) -> set[str]:
    """Return the names that tox makes of one with braces."""
    parts = re.split(r"\{(.*?)\}", name.strip())
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return {"".join(each) for each in product(*choices)}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_is_pinned_and_may_do_nothing_else(name: str) -> None:
    """Each action is a commit, and a job gets only the permissions that it names."""
    allowed = {"contents: read", "id-token: write", "security-events: write"}
    assert WORKFLOWS[name]["permissions"] == {}
    for job in WORKFLOWS[name]["jobs"].values():
        assert {f"{what}: {how}" for what, how in job["permissions"].items()} <= allowed
        for used in (job, *job.get("steps", ())):
            ours_or_commit = r"\$/\.github/workflows/\w+\.yml|[\w./-]+@[0-9a-f]{40}"
            assert re.fullmatch(
                ours_or_commit, used.get("uses", "$/.github/workflows/x.yml")
            )


def test_action_has_one_version() -> None:
    """All workflows use the same commit of an action, and say which version it is."""
    found: dict[str, set[str]] = {}
    for path in ROOT.glob(".github/workflows/*.yml"):
        text = path.read_text(encoding="utf-8")
        for action, commit in re.findall(
            r"uses: ([\w-]+/[\w-]+)(?:/\w+)?@(.*)$", text, re.M
        ):
            assert re.search(r" # v\d+\.\d+\.\d+$", commit), f"{path.name}: {action}"
            found.setdefault(action, set()).add(commit)
    assert found
    assert {action for action, commits in found.items() if len(commits) > 1} == set()


def test_environments_are_known_to_tox() -> None:
    """Workflows and .ci/run name no environment that tox would make up."""
    named = set(environments(OURS, {}))
    for _, job in jobs():
        for command, variables in product(commands(job), variants(job)):
            named |= set(environments(command, variables))
    assert {"lint", "lowest", "package", "py311-django52-sqlite"} <= named
    assert named - known_to_tox() == set()


def test_documented_environments() -> None:
    """CONTRIBUTING has each environment of tox, and no other."""
    rows = set(re.findall(r"^   \* - ``([a-z]+)``$", CONTRIBUTING, re.M))
    sections = {name.removeprefix("testenv:") for name in TOX.sections()}
    assert rows == sections - {"tox", "testenv"}
    shown = re.findall(r"\$ tox -e (\S+)", CONTRIBUTING)
    assert shown
    page = (ROOT / "docs/project/releases.rst").read_text(encoding="utf-8")
    tried = environments(page, {})
    assert len(tried) == 3
    named = {name for each in shown for name in each.split(",")} | set(tried)
    assert named <= known_to_tox()


def test_github_runs_what_lands() -> None:
    """One GitHub job runs .ci/run, and each of its checks is also a separate job."""
    everything = WORKFLOWS["ci"]["jobs"]["everything"]
    assert commands(everything)[-1] == ".ci/run"
    assert "SHEDLOCK" not in str(everything)
    [parallel] = re.findall(r"tox run-parallel(?:.|\\\n)*? -e ([\w,]+)\n", OURS)
    checks = WORKFLOWS["ci"]["jobs"]["checks"]["strategy"]["matrix"]["environment"]
    assert checks == [*parallel.split(","), "package"]
    assert "-e package" in OURS


def test_what_forky_leaves_out_runs_outside_of_it() -> None:
    """Cron's tests are about PostgreSQL alone: with another store none would run."""
    files = "tests/protocol tests/contrib/test_cron.py"
    assert re.search(rf"SHEDLOCK_TEST_STORE=postgres (?:.|\\\n)*{files}", OURS)
    source = (ROOT / "tests/conftest.py").read_text(encoding="utf-8")
    assert '["protocol/*", "contrib/test_cron.py"]' in source
    cron = (ROOT / "tests/contrib/test_cron.py").read_text(encoding="utf-8")
    assert "postgres_only" in cron


def test_each_pair_of_versions_is_tried() -> None:
    """The matrix is what tox knows, and what the classifiers promise."""
    job = WORKFLOWS["ci"]["jobs"]["tests"]
    rows = job["strategy"]["matrix"]["include"]
    tried = {
        name
        for command, variables in product(commands(job), variants(job))
        for name in environments(command, variables)
    }
    promised = {
        name
        for name in known_to_tox()
        if re.fullmatch(r"py31[1-4]-django\d\d-(sqlite|servers)", name)
    }
    assert tried == promised
    pythons = promised_by("Programming Language :: Python")
    assert {row["python"] for row in rows} == pythons
    djangos = promised_by("Framework :: Django")
    assert {row["django"] for row in rows} == {
        each.replace(".", "") for each in djangos
    }


def promised_by(kind: str) -> set[str]:
    """Return the versions that the classifiers of a kind name."""
    classifiers = PROJECT["project"]["classifiers"]
    found = (re.fullmatch(rf"{kind} :: (\d\.\d+)", each) for each in classifiers)
    return {match[1] for match in found if match}


def test_django_that_comes_next_fails_in_sight() -> None:
    """No job's failure is hidden, and that one holds up no change."""
    assert [name for name, job in jobs() if "continue-on-error" in str(job)] == []
    with_main = {name for name, job in jobs() if "djangomain" in str(commands(job))}
    assert with_main == {"nightly: next-django"}


def test_variables_mean_something() -> None:
    """Each that CI sets is documented, and tox hands it on."""
    workflows = ROOT.glob(".github/workflows/*.yml")
    files = [*ROOT.glob(".ci/*"), *workflows, ROOT / "tox.ini"]
    used = {
        variable
        for path in files
        if path.is_file()
        for variable in re.findall(VARIABLE, path.read_text(encoding="utf-8"))
    }
    documented = set(re.findall(rf"^   \* - ``{VARIABLE}``$", CONTRIBUTING, re.M))
    handed_on = TOX["testenv"]["pass_env"].split()
    assert used - documented - {"SHEDLOCK_", "SHEDLOCK_LINKS"} == set()
    assert TOX["testenv:docs"]["pass_env"] == "SHEDLOCK_LINKS"
    assert all(
        any(re.fullmatch(name.replace("*", ".*"), each) for name in handed_on)
        for each in used
    )
    servers = {name for name in documented if name.endswith(("_URL", "_HOSTS"))}
    assert servers - set(re.findall(VARIABLE, str(WORKFLOWS))) == set()


def test_job_says_what_it_leaves_out() -> None:
    """All that is skipped is a failure, but for what SHEDLOCK_REQUIRE_STORES names."""
    assert "\nexport SHEDLOCK_REQUIRE_STORES=1\n" in OURS
    for name, job in jobs():
        runs_tests = any(
            re.search(
                r"-m pytest|--nightly (contract|models|mutants|properties)"
                r"|\.ci/try_release|tox run.*-django",
                command,
            )
            for command in commands(job)
        )
        assert not runs_tests or "SHEDLOCK_REQUIRE_STORES" in str(job), name
    assert "SHEDLOCK_REQUIRE_STORES = 1" in TOX["testenv:model"]["set_env"]


def tox_runs(job: Job) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Return each environment of tox that runs tests, its command and its variables."""
    for command, variables in product(commands(job), variants(job)):
        for name in environments(command, variables):
            if "-django" in name or name == "lowest":
                yield name, command, variables


def test_job_leaves_out_the_slow_tests_only() -> None:
    """Each job that runs tests with tox runs all of them but the slow ones."""
    found = [(name, *run) for name, job in jobs() for run in tox_runs(job)]
    assert {name for name, *_ in found} == {
        "ci: tests",
        *("nightly: postgres", "nightly: mysql", "nightly: next-django"),
        "release: try",
    }
    for name, _, command, _ in found:
        assert command.endswith(' -- --all -m "not slow"'), name


PROGRAMS = {"etcd": "etcd-server", "gettext": "gettext", "Redis": "redis-server"}
"""What some tests with any store need, and the packages that have it."""
PROGRAMS_OF = {
    "sqlite": PROGRAMS,
    "postgres": {
        **PROGRAMS,
        "cron": "cron",
        "faketime": "faketime",
        "PgBouncer": "pgbouncer",
    },
    "mariadb": {
        **PROGRAMS,
        "faketime": "faketime",
        "server of MariaDB": "mariadb-server",
    },
}
PROGRAMS_OF["servers"] = PROGRAMS_OF["postgres"] | PROGRAMS_OF["mariadb"]


def test_job_installs_what_it_does_not_leave_out() -> None:
    """Each CI job installs the programs of the stores that it doesn't leave out."""
    for name, job in jobs():
        installed = "\n".join(commands(job)).split()
        for environment, _, variables in tox_runs(job):
            store = environment.rpartition("-")[2]
            if store == "lowest":
                store = variables["SHEDLOCK_TEST_STORE"]
            for word, package in PROGRAMS_OF[store].items():
                left_out = word in variables["SHEDLOCK_REQUIRE_STORES"]
                assert left_out or package in installed, (name, word)


def test_contract_runs_where_its_servers_are() -> None:
    """The job that runs the contract names each store's server, and leaves out none."""
    [job] = [job for _, job in jobs() if "--nightly contract" in str(commands(job))]
    assert job["env"]["SHEDLOCK_REQUIRE_STORES"] == "all"
    assert set(job["env"]) >= {
        *("DYNAMODB_URL", "MONGODB_URL", "SHEDLOCK_TEST_ETCD_URL"),
        *("SHEDLOCK_TEST_REDIS_STORE_URL", "SHEDLOCK_TEST_ZOOKEEPER_HOSTS"),
    }
    assert "redis-server" in "\n".join(commands(job)).split()


def test_release_is_built_alone() -> None:
    """The job that builds installs what builds, and others try what it built."""
    release = WORKFLOWS["release"]["jobs"]
    assert [command.split()[0] for command in commands(release["build"])] == [
        ".ci/may_release",
        ".ci/build",
    ]
    assert release["ci"]["uses"].endswith("/.github/workflows/ci.yml")
    assert "workflow_call" in WORKFLOWS["ci"][True]  # YAML's "on"
    assert set(release["publish"]["needs"]) == {"ci", "build", "check", "try"}
    assert {name for name, job in release.items() if "id-token" in str(job)} == {
        "publish"
    }
    assert "checkout" not in str(release["publish"])
    for name in ("check", "publish"):
        assert "sha256sum --check --strict" in str(commands(release[name]))


def test_what_uploads_is_what_checks() -> None:
    """The check has the twine of the action that uploads."""
    folder = ROOT / ".ci" / "requirements"
    action = "pypa/gh-action-pypi-publish"
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    [used, *more] = re.findall(rf"{action}@\w+ # (v\S+)", text)
    wanted = (folder / "upload.in").read_text(encoding="utf-8")
    assert f"{action} {used} has these versions" in wanted
    assert set(more) <= {used}
    pinned = (folder / "upload.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^[\w-]+==\S+", wanted, re.M)
    assert any(pin.startswith("twine==") for pin in pins)
    assert [pin for pin in pins if f"\n{pin} \\\n" not in pinned] == []
    assert TOX["testenv:package"]["deps"] == "-r .ci/requirements/upload.txt"


def test_build_installs_what_is_pinned() -> None:
    """The build installs its pinned tools by their hashes, and nothing else."""
    build = (ROOT / ".ci" / "build").read_text(encoding="utf-8")
    [install] = re.findall(r"-m pip .*", build)
    assert install.endswith(" --require-hashes -r .ci/requirements/build.txt")
    [command] = re.findall(r"-m build .*", build)
    assert "--no-isolation" in command.split()  # else pip installs what it likes


@pytest.mark.parametrize("name", ["build", "upload"])
def test_tools_of_a_release_are_pinned(name: str) -> None:
    """Each has one version and its hashes, and none is missing."""
    folder = ROOT / ".ci" / "requirements"
    wanted = re.findall(r"^([\w-]+)", (folder / f"{name}.in").read_text(), re.M)
    pinned = re.split(r"\n(?=[a-z])", (folder / f"{name}.txt").read_text())[1:]
    assert all(re.match(r"[\w-]+==\S+ \\\n    --hash=sha256:", each) for each in pinned)
    assert set(wanted) <= {each.partition("==")[0] for each in pinned}
    if name == "build":
        requires = " ".join(PROJECT["build-system"]["requires"])
        assert set(wanted) - {"build"} == set(re.findall(r"([\w-]+)>=", requires))


def test_linters_look_at_each_file() -> None:
    """The linters check each workflow and each shell script."""
    lint = TOX["testenv:lint"]["commands"]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    files = [*ROOT.glob(".ci/*"), *ROOT.glob("tests/**/*.sh")]
    scripts = [
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.is_file() and re.match(r"#!.*sh\n", path.read_text(encoding="utf-8"))
    ]
    workflows = [f".github/workflows/{name}.yml" for name in WORKFLOWS]
    assert len(scripts) >= 5
    assert [each for each in (*scripts, *workflows) if each not in lint.split()] == []
    for line in lint.strip().split("\n"):
        words = line.split()[: 3 if "--builtin-schema" in line else 2]
        assert f"entry: {' '.join(words)}" in hooks, line


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a repository with this project's scripts."""
    for name in ("run", "may_release"):
        target = tmp_path / ".ci" / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((ROOT / ".ci" / name).read_bytes())
        target.chmod(0o755)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    """Run git there, as nobody."""
    nobody = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
    subprocess.run(["git", *nobody, *arguments], cwd=folder, check=True)


KILLS = """
kill -{signal} $$
sleep 60
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_killed_run_has_not_passed(copy: Path, number: signal.Signals) -> None:
    """A killed run fails, and names the section in which it was."""
    name = number.name.removeprefix("SIG")
    (copy / ".ci" / "servers").write_text(KILLS.format(signal=name))
    (copy / "python3").write_text("#!/bin/sh\n")
    (copy / "python3").chmod(0o755)
    git(copy, "add", ".")
    environment = {**os.environ, "PATH": f"{copy}:{os.environ['PATH']}"}
    done = subprocess.run(
        [copy / ".ci" / "run"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup ignores it
    )
    assert done.returncode in {-number, 128 + number}
    assert "=== FAILED: servers and tools" in done.stdout
    assert "all passed" not in done.stdout


VERSION = 'version = "1.2.0"\n'
CHANGES = "Changes\n\n1.2.0 (2026-11-28)\n\n1.1.0 (2026-01-01)\n"


def may_release(folder: Path, *tag: str) -> str:
    """Return why this is no release, or ``""`` if it is one."""
    command = [folder / ".ci" / "may_release", *tag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bool(done.returncode) is bool(done.stderr)
    return done.stderr


@pytest.fixture
def release(copy: Path) -> Path:
    """Return a repository whose HEAD may be released."""
    (copy / "pyproject.toml").write_text(VERSION)
    (copy / "CHANGELOG.rst").write_text(CHANGES)
    git(copy, "add", ".")
    git(copy, "commit", "--quiet", "--message", "Release 1.2.0")
    git(copy, "update-ref", "refs/remotes/origin/main", "HEAD")
    return copy


@pytest.mark.parametrize("tag", [("v1.2.0",), ("",), ()])
def test_release_of_main(release: Path, tag: tuple[str, ...]) -> None:
    """With its tag; or by hand, without one."""
    assert may_release(release, *tag) == ""


@pytest.mark.parametrize("tag", ["v1.2", "1.2.0", "v1.2.1"])
def test_tag_is_the_version(release: Path, tag: str) -> None:
    """A tag that differs from the version is refused."""
    assert f"the tag is {tag}, and pyproject.toml has" in may_release(release, tag)


@pytest.mark.parametrize("title", ["1.3.0 (2026-11-28)", "1.2.0 (unreleased)", ""])
def test_release_has_its_changes(release: Path, title: str) -> None:
    """The changelog begins with the version, and with its day."""
    (release / "CHANGELOG.rst").write_text(f"Changes\n\n{title}\n")
    git(release, "commit", "--quiet", "--all", "--message", "Write changes")
    git(release, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert f'the changelog begins with "{title}"' in may_release(release, "v1.2.0")


def test_release_comes_from_main(release: Path) -> None:
    """A commit of another branch is none."""
    git(release, "commit", "--quiet", "--allow-empty", "--message", "Try something")
    assert "main has no commit" in may_release(release, "v1.2.0")


def test_release_is_committed(release: Path) -> None:
    """A file that only this folder has could be in it."""
    (release / "stray.py").write_text("")
    assert "changes that are not committed" in may_release(release, "v1.2.0")

"""Where the project's jobs are found, and which of them can be started by name."""

import ast
import importlib
import logging
import pkgutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning

from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.registry.commands import import_commands
from django_shedlock.registry.jobs import Job, jobs_with_fixed_names
from django_shedlock.signals import logger


def named_jobs(provider: str) -> Iterator[Job]:
    """
    Return the jobs whose locks this provider keeps, from all ``job_sources()``.

    This imports the project's modules, so it is only for what starts, checks or prunes
    jobs. Sources that fail are logged. Calls that only look are left out.
    """
    for source in job_sources():
        try:
            for job in source():
                # A call that only looks is no run of its lock, and leaves no tick.
                if job.provider == provider and not job.only_looks:
                    yield job
        except Exception:  # jobs of the other sources may be overdue as well
            logger.exception("Not all jobs of %s are known.", source.__qualname__)


def decorated_jobs() -> Iterator[Job]:
    """Import the project's modules; return the decorated jobs with fixed names."""
    # A job that is missing here would not be started, or its record would be pruned.
    import_jobs(logging.WARNING)
    yield from jobs_with_fixed_names()


def job_sources() -> list[Callable[[], Iterator[Job]]]:
    """Return where jobs are found: by their decorators, and in apps that offer some."""
    return [decorated_jobs, *offered_job_sources()]


def offered_job_sources() -> list[Callable[[], Iterator[Job]]]:
    """Return the methods ``shedlock_jobs()`` of the apps' configs that have one."""
    offered = (getattr(app, "shedlock_jobs", None) for app in apps.get_app_configs())
    return [source for source in offered if source is not None]


def import_jobs_to_check() -> list[CheckMessage]:
    """
    Import what the running system check covers; return a message for each failure.

    ``manage.py check`` covers the whole project, and so do ``call_command("check")``
    and ``manage.py test``. But Django runs the same checks before nearly every other
    command, and a search for all jobs reads the source of all apps. Before those
    commands a check covers the jobs that are registered by then, and what settings
    name. Checks have no order, so a job that only another check imports, as that of
    the URLs, may be covered or not.

    No check is told for which command it runs. But Django itself loads the module of
    its command ``check`` only to run that command, or one that is derived from it.
    """
    if "django.core.management.commands.check" in sys.modules:
        return import_jobs()
    return list(import_commands())


def import_jobs(level: int = logging.DEBUG) -> list[CheckMessage]:
    """
    Import the modules in which jobs may be decorated, and ``SHEDLOCK_COMMANDS``.

    One that cannot be imported is logged, left out and reported by a message. System
    checks report these messages, so only callers that act on the jobs raise the
    ``level``.
    """
    messages: list[CheckMessage] = []
    for name in dict.fromkeys(decorated_modules()):
        try:
            importlib.import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a script may exit, and a test may skip itself
            log = "Could not import %s to look for jobs."
            logger.log(level, log, name, exc_info=True)
            text = f"{name} can't be imported, so its jobs are not known: "
            text += _reason(error)
            if isinstance(error, InvalidLockConfiguration):
                hint = "Correct that lock's name or options. Its job can't run before."
                messages.append(Error(text, hint=hint, id="shedlock.E004"))
                continue
            hint = "Make it importable. If it is a script, put what it runs below "
            hint += '`if __name__ == "__main__"`.'
            # A warning, since the module may need what the command is about to make.
            messages.append(Warning(text, hint=hint, id="shedlock.W002"))
    for message in import_commands():
        logger.log(level, "%s", message.msg)
        messages.append(message)
    return messages


def decorated_modules() -> Iterator[str]:
    """Return the apps' modules and management commands that name the decorator."""
    roots = {Path(app.path).resolve() for app in apps.get_app_configs()}
    folder = Path("management", "commands")
    for app in apps.get_app_configs():
        # Django finds commands even in folders that are no packages.
        commands = Path(app.path, folder)
        seen = roots | {commands.resolve()}
        yield from _decorated(commands, ".".join([app.name, *folder.parts]), seen)
        yield from _decorated(Path(app.path), app.name, seen)


def _decorated(folder: Path, package: str, seen: set[Path]) -> Iterator[str]:
    def is_link(module: pkgutil.ModuleInfo) -> bool:
        return (folder / module.name).is_symlink()

    # A link may lead to a folder that is searched anyway, under its own name.
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=is_link):
        path, name = folder / module.name, f"{package}.{module.name}"
        # Packages in a folder of tests are tests as well.
        is_test = module.name.startswith("test") or (
            module.ispkg and folder.name in ("test", "tests")
        )
        # Only their users import these.
        is_imported_on_use = module.name in {"__main__", "conftest", "migrations"}
        if is_test or is_imported_on_use or path.resolve() in seen:
            continue
        source = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
        if _names_decorator(source):
            yield name
        if module.ispkg:
            seen.add(path.resolve())
            yield from _decorated(path, name, seen)


def _names_decorator(source: Path) -> bool:
    decorator = "scheduler_lock"
    try:
        code = source.read_bytes()
        if decorator.encode() not in code:
            return False
        with warnings.catch_warnings():  # importing gives them again
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except OSError:
        return False
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        return True  # importing shows what is wrong
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=found) | ast.Attribute(attr=found) | ast.alias(name=found):
                if found == decorator:
                    return True
    return False


def _reason(error: BaseException) -> str:
    # A text, since the error would keep alive the jobs that the module did make.
    text, package = described(error), Path(__file__).parents[1]
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib")
        and frame.filename != importlib.__file__
        and not Path(frame.filename).is_relative_to(package)
    ]
    if own:
        last = [frame for frame in own if frame.filename == own[0].filename][-1]
        text += f' (file "{last.filename}", line {last.lineno}: {last.line})'
    elif isinstance(error, SyntaxError):
        text += f' (file "{error.filename}")'
    return text

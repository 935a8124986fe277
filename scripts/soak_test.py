"""Tests of scripts/soak.py with a program in the place of the tests: no seed is lost when a worker dies, and what fails comes
back. Run by scripts/test.sh, after scripts/setup.sh soak."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import soak as soak_program
from distributed import Client, LocalCluster

SOAK = Path(__file__).resolve().parent / "soak.py"
SEEDS, FIRST, DEADLY, BAD = 12, 100, 103, 107
# Writes down each run with its worker, which is its parent. One seed kills its worker the first time; another fails.
PROGRAM = f"""#!/usr/bin/env bash
echo "$PPID" >>"$LOG_FOLDER/$1-$SEED"
if [ "$SEED" = {DEADLY} ] && mkdir "$LOG_FOLDER/killed" 2>/dev/null; then
    kill -KILL "$PPID"
    sleep 60
    echo survived >"$LOG_FOLDER/survived"
fi
if [ "$SEED" = {BAD} ]; then
    echo "this seed fails"
    mkdir -p "$RNIC_FAILURES/deep"
    printf frames >"$RNIC_FAILURES/deep/card0.pcap"
    exit 3
fi
"""
# A part, by its name and by which of the seeds it runs.
PART = """
[[part]]
name = "%s"
every = %d
programs = ["./program", "%s"]
environment = { SEED = "@", LOG_FOLDER = "%s" }
about = "one seed in %d"
"""
PARTS = {"each": 1, "third": 3}


class Soak(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.runs = self.folder / "runs"
        self.runs.mkdir()
        (self.folder / "program").write_text(PROGRAM)
        (self.folder / "program").chmod(0o755)
        parts = [PART % (name, every, name, self.runs, every) for name, every in PARTS.items()]
        (self.folder / "parts.toml").write_text("".join(parts))

    def soak(self, *options, **variables):
        """Runs the soak, and returns its exit code and its output."""
        command = [sys.executable, SOAK, "--parts", self.folder / "parts.toml", "--out", self.folder / "out"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, env=os.environ | variables)
        return done.returncode, done.stdout + done.stderr

    def check_all(self, options):
        """Runs all seeds, of which one kills its worker and one fails."""
        code, output = self.soak("--seeds", str(SEEDS), "--first-seed", str(FIRST), *options)
        self.assertEqual(code, 1, output)
        self.assertIn("error: 1 runs failed", output)
        summary = (self.folder / "out/summary.txt").read_text()
        rows = {line.split()[0]: line.split()[1:3] for line in summary.splitlines() if line and line[0] != " "}
        self.assertEqual(rows["each"], [str(SEEDS), "1"], summary)
        self.assertEqual(rows["third"], [str(SEEDS // 3), "0"], summary)
        expected = {f"each-{FIRST + index}" for index in range(SEEDS)}
        expected |= {f"third-{FIRST + index}" for index in range(0, SEEDS, 3)}
        workers = {path.name: path.read_text().split() for path in self.runs.iterdir() if path.is_file()}
        self.assertEqual(set(workers), expected, "every seed has run, and the killed program has ended")
        killed = [names for name, names in workers.items() if name.endswith(str(DEADLY)) and len(names) == 2]
        self.assertEqual(len(killed), 1, "the seed whose worker died has run again, on another worker")
        self.assertNotEqual(*killed[0])
        bad = self.folder / f"out/each-{BAD}"
        self.assertIn("this seed fails", bad.with_suffix(".log").read_text())
        self.assertIn("exit code 3", bad.with_suffix(".log").read_text())
        self.assertEqual((bad / "deep/card0.pcap").read_text(), "frames")
        self.assertIn(f"    SEED={BAD} LOG_FOLDER={self.runs} {(self.folder / 'program').resolve()} each", summary)

    def test_a_worker_that_dies_costs_no_seed(self):
        self.check_all(["--workers", "2"])

    def test_a_worker_of_a_scheduler_that_was_given_may_die_too(self):
        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(self.folder / "workers")
        )
        with cluster:
            self.check_all(["--scheduler", cluster.scheduler_address])
            left = list((self.folder / "workers").rglob("rnic-soak-*"))
            self.assertEqual(left, [], "nothing stays on the workers")

    def test_a_seed_that_kills_every_worker_is_lost_and_said_so(self):
        program = "#!/usr/bin/env bash\nkill -KILL $PPID\n"
        (self.folder / "program").write_text(program)
        # Dask's cluster waits so long for a worker that is away, and starts no other in its place: 15 s by default, which a busy
        # machine takes for some deaths of a worker and some starts.
        impatient = {"DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "100ms"}
        code, output = self.soak("--seeds", "1", "--part", "each", "--workers", "2", **impatient)
        self.assertEqual(code, 1, output)
        self.assertIn("LOST", output)
        self.assertIn("KilledWorker", (self.folder / "out/each-1000.log").read_text())

    def test_seeds_that_wait_for_a_worker_in_vain_are_lost_and_said_so(self):
        (self.folder / "out").mkdir()
        part = soak_program.Part(name="each", every=1, about="", programs=["program"])
        report = soak_program.Report([part], self.folder / "out")
        options = argparse.Namespace(hours=1, seeds=5, scheduler=None)
        stream = soak_program.runs([part], FIRST, options.seeds)
        patience = mock.patch.multiple(soak_program, WORKERLESS_SECONDS_MAX=1, LOOK_SECONDS=0.2)
        with LocalCluster(n_workers=0, dashboard_address=None) as cluster, Client(cluster) as client, patience:
            soak_program.soak(client, {"each": {}}, stream, options, report)
        ahead = soak_program.SEEDS_AHEAD
        self.assertEqual([seed for _, seed, _ in report.failures], [FIRST + index for index in range(ahead)])
        reason = f"{ahead} seeds wait, and there has been no worker for 1 s"
        self.assertEqual([log.read_text() for *_, log in report.failures], [reason] * ahead)

    def test_a_time_ends_the_soak(self):
        (self.folder / "program").write_text("#!/usr/bin/env bash\nsleep 0.2\n")
        code, output = self.soak("--hours", "0.0005", "--workers", "2", "--part", "third")
        self.assertEqual(code, 0, output)
        self.assertIn("no run failed", output)

    def test_a_seed_that_waits_when_the_time_is_over_does_not_begin(self):
        # The time is 7.2 s, so that one seed begins on the only worker, and one waits.
        (self.folder / "program").write_text('#!/usr/bin/env bash\ntouch "$LOG_FOLDER/$SEED"\nsleep 12\n')
        cluster = LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, local_directory=str(self.folder / "workers")
        )
        with cluster:
            options = ["--hours", "0.002", "--part", "each", "--first-seed", str(FIRST)]
            code, output = self.soak(*options, "--scheduler", cluster.scheduler_address)
            left = [name for name in cluster.scheduler.worker_plugins if name.startswith("rnic-soak")]
        self.assertEqual(code, 0, output)
        self.assertEqual([path.name for path in self.runs.iterdir()], [str(FIRST)])
        summary = (self.folder / "out/summary.txt").read_text()
        self.assertRegex(summary, r"(?m)^each +1 +0 ")
        self.assertEqual(left, [], "nothing stays on the scheduler")

    def test_a_termination_ends_the_soak_with_its_table(self):
        (self.folder / "program").write_text('#!/usr/bin/env bash\ntouch "$LOG_FOLDER/begun"\nexec sleep 600\n')
        command = [sys.executable, SOAK, "--parts", self.folder / "parts.toml", "--out", self.folder / "out"]
        # As a shell starts a program in the background: without SIGINT.
        ignored = ["env", "--ignore-signal=INT", *command, "--workers", "1"]
        with subprocess.Popen(ignored, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as soak:
            end = time.monotonic() + 120
            while not (self.runs / "begun").exists() and time.monotonic() < end:
                time.sleep(0.1)
            soak.terminate()
            output, _ = soak.communicate(timeout=120)
        self.assertEqual(soak.returncode, 1, output)
        self.assertIn("interrupted", (self.folder / "out/summary.txt").read_text())

    def test_what_was_asked_for_is_checked(self):
        for options in (["--seeds", "0"], ["--hours", "-1"], ["--part", "none"], ["--workers", "0"]):
            code, output = self.soak(*options)
            self.assertNotEqual(code, 0, options)
            self.assertIn("error", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hamictl sim, from outside."""

from support import *


class Sim(CtlTest):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "m"

    def show(self):
        shown = self.ctl("sim", "show", "--json", self.path)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        return json.loads(shown.stdout)

    def test_a_machine_as_described(self):
        made = self.ctl(
            "sim", "create", self.path, "--gpus", "8", "--model", "NVIDIA H100 80GB HBM3", "--memory", "80Gi", "--sms",
            "132", "--numa", "0,1", "--context", "100Mi", "--compute-capability", "9.0", "--slice", "1ms", "--switch",
            "50us",
        )
        self.assertEqual((made.returncode, made.stdout, made.stderr), (0, f"export HAMI_SIM={self.path}\n", ""))
        seen = self.show()
        self.assertEqual(seen["path"], str(self.path))
        self.assertEqual(seen["processes"], [])
        self.assertEqual(len({gpu["uuid"] for gpu in seen["gpus"]}), 8)
        self.assertEqual([gpu["numa_node"] for gpu in seen["gpus"]], [0] * 4 + [1] * 4)
        for gpu in seen["gpus"]:
            self.assertTrue(gpu["uuid"].startswith("GPU-"))
            self.assertEqual(gpu["model"], "NVIDIA H100 80GB HBM3")
            self.assertEqual((gpu["memory_bytes"], gpu["context_bytes"]), (80 * GIB, 100 * MIB))
            self.assertEqual((gpu["multiprocessors"], gpu["compute_capability"]), (132, "9.0"))
            self.assertEqual((gpu["slice_ns"], gpu["switch_ns"]), (1000000, 50000))
            self.assertEqual((gpu["used_bytes"], gpu["busy_ns"]), (0, 0))
        table = self.ctl("sim", "show", self.path).stdout
        self.assertIn("NVIDIA H100 80GB HBM3", table)
        self.assertIn("No process uses it.", table)

    def test_a_shell_can_evaluate_what_create_prints(self):
        path = self.folder / "a machine's; $(file)"
        made = self.ctl("sim", "create", path)
        self.assertEqual(made.returncode, 0)
        said = subprocess.run(["sh", "-c", made.stdout + 'printf %s "$HAMI_SIM"'], text=True, stdout=subprocess.PIPE)
        self.assertEqual(said.stdout, str(path))

    def test_defaults_and_the_environment(self):
        self.environment["HAMI_SIM"] = str(self.path)
        self.assertEqual(self.ctl("sim", "create").stdout, "")
        (gpu,) = self.show()["gpus"]
        self.assertEqual((gpu["index"], gpu["numa_node"]), (0, None))
        self.assertIn("A100", gpu["model"])
        self.assertEqual(self.ctl("sim", "remove").returncode, 0)
        self.assertFalse(self.path.exists())

    def test_options_of_the_driver(self):
        self.assertEqual(self.ctl("sim", "create", self.path, "--driver", "captures=kind", "--driver", "granule=2Mi").returncode, 0)
        driver = self.show()["driver"]
        self.assertEqual((driver["captures"], driver["granule"]), ("kind", str(2 * MIB)))
        self.assertEqual((driver["queues"], driver["event-resolution"], driver["clock-drift"]), ("8", "500ns", "20"))
        self.assertEqual((driver["context-time"], driver["graph-node"], driver["stream"]), ("100ms", "3328", str(557 << 10)))
        again = ["sim", "create", self.folder / "second"]
        for key, value in driver.items():
            again += ["--driver", f"{key}={value}"]
        self.assertEqual(self.ctl(*again).returncode, 0)

    def test_errors_befall_it(self):
        self.assertEqual(self.ctl("sim", "create", self.path, "--gpus", "2").returncode, 0)
        for words in (["--xid=79"], ["--gpu=1", "--ecc=corrected"], ["--state=lost", "--action=reset"], ["--state=ok"]):
            done = self.ctl("sim", "fault", *words, self.path)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        for words, status, said in ((["--gpu=2", "--xid=79"], 1, "no GPU 2"), ([], 2, "say what befalls the GPU: --xid, "), (["--gpu=1"], 2, "say what befalls"), (["--state=good"], 2, '--state: "good" is none of ok, lost, hangs'), (["--xid=x"], 2, "--xid"), (["--ecc="], 2, "--ecc"), (["--action=1"], 2, "--action")):
            done = self.ctl("sim", "fault", *words, self.path)
            self.assertEqual(done.returncode, status)
            self.assertIn(said, done.stderr)

    def test_a_state_is_shown(self):
        self.assertEqual(self.ctl("sim", "create", self.path, "--gpus", "2").returncode, 0)
        for state in ("lost", "hangs", "ok"):
            self.assertEqual(self.ctl("sim", "fault", "--gpu=1", f"--state={state}", self.path).returncode, 0)
            self.assertEqual([gpu["state"] for gpu in self.show()["gpus"]], ["ok", state])
            self.assertRegex(self.ctl("sim", "show", self.path).stdout, rf"(?m)^  1 GPU-.* {state} ")

    def test_mig_mode_is_shown(self):
        self.assertEqual(self.ctl("sim", "create", self.path, "--gpus", "2").returncode, 0)
        for mode in ("on", "off"):
            self.assertEqual(self.ctl("sim", "fault", "--gpu=1", f"--mig={mode}", self.path).returncode, 0)
            self.assertEqual([gpu["mig"] for gpu in self.show()["gpus"]], [False, mode == "on"])
            self.assertEqual(self.ctl("sim", "show", self.path).stdout.count(" ok (MIG mode) "), int(mode == "on"))

    def test_it_is_not_made_twice(self):
        self.assertEqual(self.ctl("sim", "create", self.path).returncode, 0)
        again = self.ctl("sim", "create", self.path)
        self.assertEqual(again.returncode, 1)
        self.assertEqual(again.stderr, f"hamictl sim create: there is already a simulated machine at {self.path}; hamictl sim remove removes it\n")
        other = self.folder / "diary"
        other.write_text("dear diary")
        for taken in (other, self.folder):
            refused = self.ctl("sim", "create", taken)
            self.assertEqual((refused.returncode, refused.stderr), (1, f"hamictl sim create: there is already something at {taken}, which is no simulated machine\n"))

    def test_a_machine_of_another_version_is_removed_by_force(self):
        """Who uses it can't be told: its processes stand where this version does not look."""
        for size in (None, 4096):
            self.make_machine()
            with open(self.machine, "r+b") as file:
                file.seek(8)
                file.write(b"\1")
                if size:
                    file.truncate(size)
            self.assertIn("there is already a simulated machine at", self.ctl("sim", "create").stderr)
            for words in (["run", "true"], ["top"], ["sim", "show"]):
                refused = self.ctl(*words)
                self.assertEqual(refused.returncode, 125 if words[0] == "run" else 1)
                self.assertIn(f"{self.machine}: a simulated machine of another version; hamictl sim remove --force removes it, and sim create makes it anew\n", refused.stderr)
            refused = self.ctl("sim", "remove")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("whether processes use it can't be told; --force removes it all the same", refused.stderr)
            self.assertTrue(self.machine.exists())
            removed = self.ctl("sim", "remove", "--force")
            self.assertEqual((removed.returncode, removed.stderr), (0, ""))
            self.assertFalse(self.machine.exists())

    def test_processes_and_removing_while_in_use(self):
        self.make_machine("--gpus", "2")
        self.path = self.machine
        process = self.start("run", "--gpumem", "2Gi", HOLDER, GIB, "60")
        self.assertTrue(self.until(lambda: any(g["used_bytes"] > GIB for g in self.show()["gpus"])))
        (shown,) = self.show()["processes"]
        self.assertEqual(shown["pid"], self.child_of(process))
        self.assertEqual([len(shown[k]) for k in ("used_bytes", "peak_bytes", "busy_ns", "launches")], [2] * 4)
        self.assertGreater(sum(shown["used_bytes"]), GIB)
        self.assertIn(str(shown["pid"]), self.ctl("sim", "show").stdout)

        refused = self.ctl("sim", "remove")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("1 program of hamictl run holds a part of it; --force removes it all the same", refused.stderr)
        self.assertEqual(self.ctl("sim", "remove", "--force").returncode, 0)
        self.assertEqual([p for p in self.folder.iterdir()], [])

    def test_a_link_names_the_same_machine(self):
        """One set of leases: what is given to a program by one name is not given to another by the other name."""
        self.make_machine()
        link = self.folder / "link"
        link.symlink_to("machine")
        process = self.start("run", "--gpumem", "30Gi", HOLDER, GIB, "60", HAMI_SIM=str(link))
        self.assertTrue(self.until(self.grants))
        refused = self.ctl("run", "--gpumem", "30Gi", "true")
        self.assertEqual(refused.returncode, 125)
        self.assertIn("CardInsufficientMemory", refused.stderr)
        self.assertEqual([path.name for path in sorted(self.folder.iterdir())], ["link", "machine", "machine.run"])
        self.assertIn("1 program of hamictl run holds a part of it", self.ctl("sim", "remove", link).stderr)
        process.kill()
        process.wait()
        self.assertTrue(self.until(lambda: self.ctl("sim", "remove", link).returncode == 0))
        self.assertEqual(list(self.folder.iterdir()), [], "the link would lead nowhere")

    def test_a_yaml_file(self):
        config = self.folder / "machine.yaml"
        config.write_text(YAML_EXAMPLE)
        made = self.ctl("sim", "create", self.path, "--config", config)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertEqual([gpu["memory_bytes"] for gpu in self.show()["gpus"]], [80 * GIB, 80 * GIB, 16 * GIB])

    def test_an_unknown_key_is_named_with_its_line(self):
        config = self.folder / "machine.yaml"
        config.write_text(YAML_EXAMPLE + "colour: green\n")
        made = self.ctl("sim", "create", self.path, "--config", config)
        self.assertEqual(made.returncode, 1)
        self.assertIn("colour", made.stderr)
        self.assertIn(str(YAML_EXAMPLE.count("\n") + 1), made.stderr)
        self.assertFalse(self.path.exists())

    def test_bad_input(self):
        cases = [
            (["create", "--gpus", "0", "m"], '--gpus: "0" is not a number from 1 to 16', 2),
            (["create", "--gpus", "17", "m"], '--gpus: "17" is not a number from 1 to 16', 2),
            (["create", "--memory", "80", "m"], '--memory: "80" is less than 1 MiB; is the unit missing', 2),
            (["create", "--memory", "500k", "m"], '--memory: "500k" is out of range, 1Mi to 1Pi', 2),
            (["create", "--memory", "2Pi", "m"], '--memory: "2Pi" is out of range, 1Mi to 1Pi', 2),
            (["create", "--context", "2000T", "m"], '--context: "2000T" is out of range, 1Mi to 1Pi', 2),
            (["create", "--memory", "x", "m"], '--memory: "x" is not an amount of memory', 2),
            (["create", "--memory", "9999999T", "m"], '--memory: "9999999T" is out of range, 1Mi to 1Pi', 2),
            (["create", "--context", "-1", "m"], '--context: "-1" is not an amount of memory', 2),
            (["create", "--sms", "0", "m"], '--sms: "0" is not a number from 1 to 1024', 2),
            (["create", "--numa", "a", "m"], '--numa: "a" is not a node\'s number', 2),
            (["create", "--numa", "", "m"], "--numa: no node given", 2),
            (["create", "--numa", "0,1,2", "--gpus", "2", "m"], "--numa: more nodes than GPUs", 2),
            (["create", "--model", "", "m"], "--model: a name of 1 to 95 bytes", 2),
            (["create", "--compute-capability", "9", "m"], '--compute-capability: "9" is not of the form 8.0', 2),
            (["create", "--slice", "1h", "m"], '--slice: "1h": not a duration', 2),
            (["create", "--slice", "0ms", "m"], '--slice: "0ms" is less than 10us', 2),
            (["create", "--slice", "9us", "m"], '--slice: "9us" is less than 10us', 2),
            (["create", "--switch", "2s", "m"], '--switch: "2s": out of range, at most 1s', 2),
            (["create", "--context", "41Gi", "m"], "--context: it would leave nothing of the GPU's memory", 2),
            (["create", "--memory", "1Gi", "--context", "1Gi", "m"], "--context: it would leave nothing of the GPU's memory", 2),
            (["create", "--config", "x", "--gpus", "2", "m"], "--config: the file says everything", 2),
            (["create", "--driver", "pace=1", "m"], "--driver: pace=1: not an option of the simulated driver; hamictl-sim(1) lists them", 2),
            (["create", "--driver", "queues=0", "m"], "--driver: queues=0: not a number of queues, 1 to 4096", 2),
            (["create", "--driver", "queues", "m"], "--driver: \"queues\" is not of the form KEY=VALUE", 2),
            (["create", "--config", "/nonexistent", str(self.path)], "/nonexistent", 1),
            (["create", "m", "n"], '"n" is too much; one PATH is enough', 2),
            (["create"], "which machine? Give a PATH, or set HAMI_SIM", 2),
            (["show"], "which machine? Give a PATH, or set HAMI_SIM", 2),
            (["fault", "m"], "say what befalls the GPU: --xid", 2),
            (["create", "/nonexistent/m"], "cannot find the folder /nonexistent", 1),
            (["show", str(self.folder / "none")], str(self.folder / "none"), 1),
            (["remove", str(self.folder / "none")], str(self.folder / "none"), 1),
            (["destroy"], '"destroy" is none of create, show, fault and remove', 2),
            ([], "say what to do: create, show, fault or remove", 2),
        ]
        for words, message, code in cases:
            with self.subTest(words=words):
                ended = self.ctl("sim", *words)
                self.assertIn(message, ended.stderr)
                self.assertEqual((ended.returncode, ended.stdout), (code, ""))

    def test_a_full_disk_is_said_so(self):
        disk = self.folder / "disk"
        disk.mkdir()
        self.environment["HAMI_SIM"] = str(disk / "m")
        self.environment["HAMI_RUN_DIR"] = str(self.folder / "run")
        for size in (64, 132, 176, 350):
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", disk], stderr=subprocess.DEVNULL)
            if mounted.returncode:
                self.skipTest("mounting a small tmpfs is not permitted here")
            try:
                made = self.ctl("sim", "create")
                self.assertEqual(made.returncode, 1 if size == 64 else 0)
                if size == 64:
                    self.assertIn("No space left on device", made.stderr)
                    self.assertEqual(list(disk.iterdir()), [])
                    continue
                ended = self.ctl("run", "--gpumem", "1Gi", BUILD / "tests/load", "--memory", "512M", "--seconds", "0.1", "--streams", "2")
                self.assertIn(ended.returncode, (0, 1, 3), "never 135, SIGBUS")
                self.assertEqual(ended.stderr.count("the disk of the simulated machine's file is full; make room there"), 1)
                for words in (["sim", "show"], ["top"]):
                    self.assertEqual(self.ctl(*words).returncode, 0)
            finally:
                subprocess.run(["umount", "-l", disk])

    def test_closed_output_is_not_the_machine(self):
        """What is printed while a standard stream is closed goes into no file of ours, whose descriptor would have its number."""
        self.environment["HAMI_SIM"] = str(self.path)
        self.assertEqual(self.ctl("sim", "create", self.path).returncode, 0)
        load = [BUILD / "tests/load", "--memory", "1G", "--seconds", "0.1"]
        calls = (
            (">&-", ["top"], 1, "cannot write: Bad file descriptor"),
            (">&-", ["sim", "show"], 1, "Bad file descriptor"),
            ("2>&-", ["run", "-v", "true"], 0, ""),
            ("2>&-", ["run", "--gpumem", "1000G", "true"], 125, ""),
            (">&-", ["run", *load], 0, ""),
            ("2>&-", ["run", "--gpumem", "512M", *load], 3, ""),
            ("<&- >&- 2>&-", ["run", *load], 0, ""),
        )
        for closed, words, code, said in calls:
            shell = ["sh", "-c", f'exec "$@" {closed}', "sh", HAMICTL, *words]
            ended = subprocess.run([str(word) for word in shell], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            with self.subTest(closed=closed, words=words):
                self.assertEqual(ended.returncode, code)
                self.assertIn(said, ended.stderr)
                self.assertEqual(self.show()["processes"], [])

    def test_what_is_no_machine_is_not_removed(self):
        other = self.folder / "diary"
        other.write_text("dear diary")
        for force in ([], ["--force"]):
            self.assertEqual(self.ctl("sim", "remove", *force, other).returncode, 1)
        self.assertEqual(other.read_text(), "dear diary")


YAML_EXAMPLE = """\
gpus:
  - count: 2
    model: NVIDIA H100 80GB HBM3
    memory: 80Gi
  - model: Tesla T4
    memory: 16Gi
"""

if __name__ == "__main__":
    unittest.main(verbosity=2)

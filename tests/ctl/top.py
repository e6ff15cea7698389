#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hamictl top, from outside."""

from support import *

GPU_KEYS = {
    "index", "uuid", "model", "numa_node", "healthy", "memory_bytes", "memory_used_bytes", "utilization_percent",
    "granted_memory_bytes", "granted_cores_percent", "tasks", "max_tasks",
}
HOLDER_KEYS = {
    "id", "pid", "command", "age_seconds", "gpu_index", "gpu_uuid", "memory_used_bytes", "memory_on_host_bytes", "memory_limit_bytes",
    "cores_percent", "suspended", "processes", "refusals", "throttled_ns",
    "kernels", "cooperative", "graphs", "own_ns_per_launch", "refusals_by_reason",
}

# HAMi-core 1.2's layout, x86-64.
REGION_SIZE, MAGIC = 2008953, 19920718
UUIDS, LIMIT, SM_LIMIT, PROCS, SLOT_SIZE = 64, 1600, 1728, 1856, 1960
PROC_NUM, UTILIZATION_SWITCH, RECENT_KERNEL, PRIORITY, LAST_KERNEL_TIME = 2008896, 2008900, 2008904, 2008908, 2008912


def hami_core_region(uuids, limits, sm_limits, processes):
    """The bytes that HAMi-core 1.2 would have written; processes are (pid, hostpid, [(context, module, data)])."""
    data = bytearray(REGION_SIZE)
    struct.pack_into("<iII", data, 0, MAGIC, 1, 2)
    struct.pack_into("<Q", data, 56, len(uuids))
    for i, uuid in enumerate(uuids):
        data[UUIDS + 96 * i : UUIDS + 96 * i + len(uuid)] = uuid.encode()
        struct.pack_into("<Q", data, LIMIT + 8 * i, limits[i])
        struct.pack_into("<Q", data, SM_LIMIT + 8 * i, sm_limits[i])
    for i, (pid, hostpid, used) in enumerate(processes):
        slot = PROCS + SLOT_SIZE * i
        struct.pack_into("<ii", data, slot, pid, hostpid)
        for j, (context, module, content) in enumerate(used):
            struct.pack_into("<QQQQQ", data, slot + 8 + 64 * j, context, module, content, 0, context + module + content)
        struct.pack_into("<i", data, slot + 1928, 1)
    struct.pack_into("<iiii", data, PROC_NUM, len(processes), 1, 2, 1)
    struct.pack_into("<Q", data, LAST_KERNEL_TIME, 1700000000)
    return bytes(data)


class Top(CtlTest):
    def setUp(self):
        super().setUp()
        self.make_machine("--gpus", "2", "--memory", "16Gi", "--numa", "0,1", "--context", "100Mi")

    def test_what_a_lost_card_does_not_tell_is_not_made_up(self):
        self.assertEqual(self.ctl("sim", "fault", "--gpu=1", "--state=lost").returncode, 0)
        gpu = self.top()["gpus"][1]
        self.assertFalse(gpu["healthy"])
        for key in ("uuid", "model", "memory_bytes", "memory_used_bytes"):
            self.assertIsNone(gpu[key], key)
        self.assertRegex(self.ctl("top").stdout, r"(?m)^ *1 \? +\? \(not healthy\) +\? +\? +\? ")

    def test_an_idle_machine(self):
        seen = self.top()
        self.assertEqual(set(seen), {"simulated_machine", "gpus", "holders"})
        self.assertEqual((seen["simulated_machine"], seen["holders"]), (str(self.machine), []))
        for index, gpu in enumerate(seen["gpus"]):
            self.assertEqual(set(gpu), GPU_KEYS)
            self.assertEqual((gpu["index"], gpu["memory_bytes"], gpu["healthy"]), (index, 16 * GIB, True))
            self.assertEqual((gpu["granted_memory_bytes"], gpu["granted_cores_percent"], gpu["tasks"]), (0, 0, 0))
            self.assertEqual((gpu["memory_used_bytes"], gpu["max_tasks"]), (0, 10))
        shown = self.ctl("top").stdout
        self.assertIn("Nobody holds or uses a GPU.", shown)
        self.assertIn(seen["gpus"][1]["uuid"], shown)

    def test_a_holder_with_its_use(self):
        process = self.start("run", "--gpumem", "2Gi", "--gpucores", "30", HOLDER, 1 * GIB, "60")
        self.assertTrue(self.until(lambda: any(h["memory_used_bytes"] for h in self.top()["holders"])))
        seen = self.top()
        (holder,) = seen["holders"]
        self.assertEqual(set(holder), HOLDER_KEYS)
        self.assertEqual(holder["pid"], self.child_of(process))
        self.assertEqual(holder["command"], f"{HOLDER} {GIB} 60")
        self.assertEqual((holder["memory_limit_bytes"], holder["cores_percent"]), (2 * GIB, 30))
        self.assertEqual(holder["memory_used_bytes"], GIB + 100 * MIB)
        self.assertEqual((holder["processes"], holder["refusals"]), (1, 0))
        self.assertEqual((holder["kernels"], holder["graphs"], set(holder["refusals_by_reason"].values())), (0, 0, {0}))
        self.assertLess(holder["age_seconds"], 60)
        gpu = seen["gpus"][holder["gpu_index"]]
        self.assertEqual(gpu["uuid"], holder["gpu_uuid"])
        self.assertEqual(gpu["memory_used_bytes"], GIB + 100 * MIB)
        self.assertEqual((gpu["granted_memory_bytes"], gpu["granted_cores_percent"], gpu["tasks"]), (2 * GIB, 30, 1))

        lines = [line.split() for line in self.ctl("top").stdout.splitlines()]
        self.assertIn(["1", str(holder["pid"])], [line[:2] for line in lines])

    def test_a_process_without_a_grant_is_shown(self):
        self.environment["LD_LIBRARY_PATH"] = str(BUILD / "src/simdriver")
        process = subprocess.Popen([HOLDER, str(GIB), "60"], env=self.environment)
        try:
            self.assertTrue(self.until(lambda: self.top()["holders"]))
            self.assertTrue(self.until(lambda: self.top()["holders"][0]["memory_used_bytes"] == GIB + 100 * MIB))
            (holder,) = self.top()["holders"]
            self.assertEqual((holder["id"], holder["pid"], holder["command"]), (None, process.pid, "holder"))
            self.assertEqual((holder["memory_limit_bytes"], holder["age_seconds"]), (None, None))
        finally:
            process.kill()
            process.wait()

    def test_watching(self):
        shown = self.ctl("top", "--watch=0.1", "--count", "3")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertEqual(shown.stdout.count("GPU UUID"), 3)
        self.assertNotIn("\033", shown.stdout)
        lines = self.ctl("top", "-w0.1", "-n", "3", "--json").stdout.splitlines()
        self.assertEqual([set(json.loads(line)) for line in lines], [{"simulated_machine", "gpus", "holders"}] * 3)

    def test_a_driver_that_hangs_is_not_waited_for(self):
        watching = self.start("top", "--watch=0.1", "--json")
        self.assertTrue(json.loads(watching.stdout.readline())["gpus"])
        self.assertEqual(self.ctl("sim", "fault", "--state", "hangs").returncode, 0)
        begun = time.monotonic()
        _, said = watching.communicate(timeout=30)
        self.assertEqual(watching.returncode, 1)
        self.assertIn("the driver has not answered for 10 s. A GPU of this machine hangs", said)
        self.assertGreater(time.monotonic() - begun, 9)

    def test_it_says_that_the_driver_is_waited_for(self):
        self.assertEqual(self.ctl("sim", "fault", "--state", "hangs").returncode, 0)
        waiting = self.start("top", "--json")
        self.assertIn("the driver has not answered for 10 s; it is waited for, 60 s at most", waiting.stderr.readline())
        self.assertEqual(self.ctl("sim", "fault", "--state", "ok").returncode, 0)
        shown, said = waiting.communicate(timeout=30)
        self.assertEqual((waiting.returncode, said), (0, ""))
        self.assertTrue(json.loads(shown)["gpus"])

    def watch_on_a_terminal(self, end):
        """Runs top -w on a terminal; its output, its exit code, and whether the terminal is as before."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(HAMICTL, [str(HAMICTL), "top", "--watch=0.1"], self.environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 150, 0, 0))
        before, seen = termios.tcgetattr(terminal), b""
        while seen.count(b"UUID") < 2:
            seen += os.read(terminal, 10000)
        # Held open here as well: what is still on its way when the last holder goes may be lost.
        held = os.open(f"/proc/{pid}/fd/1", os.O_RDWR | os.O_NOCTTY)
        end(pid, terminal)
        ended = (0, 0)
        while ended[0] == 0 or select.select([terminal], [], [], 0.2)[0]:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 10000)
            if ended[0] == 0:
                ended = os.waitpid(pid, os.WNOHANG)
        code = os.waitstatus_to_exitcode(ended[1])
        os.close(held)
        os.close(terminal)
        return seen, code, before

    def test_watching_on_a_terminal_ends_cleanly(self):
        ends = {
            "q": lambda pid, terminal: os.write(terminal, b"q"),
            "Ctrl-C": lambda pid, terminal: os.write(terminal, b"\x03"),
            "SIGTERM": lambda pid, terminal: os.kill(pid, signal.SIGTERM),
        }
        for name, end in ends.items():
            with self.subTest(name=name):
                seen, code, _ = self.watch_on_a_terminal(end)
                self.assertEqual(code, 0)
                self.assertIn(b"\033[?25l", seen)
                self.assertTrue(seen.endswith(b"\033[?25h"), seen[-40:])

    def test_the_terminal_gets_its_mode_back(self):
        master, slave = pty.openpty()
        before = termios.tcgetattr(slave)
        process = subprocess.Popen(
            [HAMICTL, "top", "-w0.1", "-n", "2"], env=self.environment, stdin=slave, stdout=slave, stderr=slave
        )
        self.assertTrue(os.read(master, 10))
        self.assertEqual(process.wait(30), 0)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(master)
        os.close(slave)

    def test_bad_input(self):
        cases = [
            (["--watch=x"], '--watch: "x" is not a duration of at least 50ms', 2),
            (["--watch=1ms"], '--watch: "1ms" is not a duration of at least 50ms', 2),
            (["--count", "0", "-w"], '--count: "0" is not a number from 1 on', 2),
            (["--count", "2"], "--count goes with --watch", 2),
            (["--region"], "--region: no file given", 2),
            (["--cluster", "--region"], "--cluster goes neither with --region nor with --watch", 2),
            (["file"], '"file" is too much; to show a region file say --region', 2),
            (["--watch", "1"], '"1" is too much; if seconds are meant, say --watch=1', 2),
            (["--region", "/nonexistent"], "/nonexistent", 1),
            (["--region", str(self.machine)], str(self.machine), 1),
        ]
        for words, message, code in cases:
            with self.subTest(words=words):
                ended = self.ctl("top", *words)
                self.assertIn(message, ended.stderr)
                self.assertEqual((ended.returncode, ended.stdout), (code, ""))


class Region(CtlTest):
    def test_a_region_that_nobody_used_yet_is_no_mistake(self):
        """A program that hamictl run started has it before it calls the driver."""
        folder = self.folder / "containers" / "uid_c"
        folder.mkdir(parents=True)
        region = folder / "region.cache"
        region.write_bytes(b"")
        for named in (region, folder, self.folder / "containers"):
            for words in ([], ["--check"]):
                shown = self.ctl("region", *words, named)
                self.assertEqual((shown.returncode, shown.stdout, shown.stderr), (0, f"{region}: no process has used it yet\n", ""))
            self.assertEqual(json.loads(self.ctl("region", "--json", named).stdout), {"path": str(region), "devices": [], "processes": []})
        (folder / "other.cache").write_bytes(hami_core_region(["GPU-a"], [GIB], [0], []))
        self.assertEqual([line.split() for line in self.ctl("region", folder).stdout.splitlines()[1:]], [[str(folder / "other.cache"), "0", "1", "-", "-"], [str(region), "0", "-", "-", "-"]])

    def test_of_a_state_directory_the_regions_of_its_programs_are_shown(self):
        machine = self.folder / "m.run"
        (machine / "runs" / "3").mkdir(parents=True)
        self.assertIn("no file *.cache, nor in a folder in it or in its runs/\n", self.ctl("region", machine).stderr)
        region = machine / "runs" / "3" / "region.cache"
        region.write_bytes(b"")
        self.assertEqual(self.ctl("region", machine).stdout, f"{region}: no process has used it yet\n")
        self.assertIn("runs/ID", self.ctl("region", "--help").stdout)

    def test_a_narrow_terminal_costs_a_uuid_nothing(self):
        """Messages send people to these tables for it; of a model's name the beginning will do."""
        self.make_machine("--gpus", "2")
        uuids = [gpu["uuid"] for gpu in self.top()["gpus"]]
        region = self.folder / "region.cache"
        region.write_bytes(hami_core_region(uuids, [4 * GIB, 0], [30, 100], []))
        for words in (["top"], ["sim", "show"], ["top", "--region", region], ["region", region]):
            for columns in (100, 80, 40):
                shown = self.on_terminal(columns, *words)
                for uuid in uuids:
                    self.assertIn(f" {uuid} ", shown, (columns, words))
        self.assertIn("NVIDIA A100-SXM4-40GB", self.on_terminal(120, "top"))
        self.assertNotIn("NVIDIA A100-SXM4-40GB", self.on_terminal(90, "top"), "it is cut as long as that makes room")

    def test_a_region_of_hami_core_is_read(self):
        path = self.folder / "region.cache"
        me = os.getpid()
        uuids = ["GPU-aaaa", "GPU-bbbb"]
        data = hami_core_region(
            uuids, [4 * GIB, 0], [30, 100],
            [(me, me, [(300 * MIB, 1 * MIB, 200 * MIB), (0, 0, 0)]), (os.getppid(), 0, [(0, 0, 0), (10 * MIB, 0, 5)])],
        )
        path.write_bytes(data)
        shown = self.ctl("top", "--region", "--json", path)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        (region,) = json.loads(shown.stdout)["regions"]
        self.assertEqual((region["path"], region["version"], region["priority"]), (str(path), "1.2", 1))
        self.assertEqual(region["last_kernel_time"], 1700000000)
        self.assertEqual([d["uuid"] for d in region["devices"]], uuids)
        self.assertEqual([d["used_bytes"] for d in region["devices"]], [501 * MIB, 10 * MIB + 5])
        self.assertEqual([d["context_bytes"] for d in region["devices"]], [300 * MIB, 10 * MIB])
        self.assertEqual([d["module_bytes"] for d in region["devices"]], [1 * MIB, 0])
        self.assertEqual([d["data_bytes"] for d in region["devices"]], [200 * MIB, 5])
        self.assertEqual(region["devices"][0]["limit_bytes"], 4 * GIB)
        self.assertEqual(region["devices"][0]["cores_percent"], 30)
        self.assertIsNone(region["devices"][1]["limit_bytes"])
        self.assertEqual([p["pid"] for p in region["processes"]], [me, os.getppid()])
        self.assertEqual(path.read_bytes(), data)

        table = self.ctl("top", "--region", path).stdout
        self.assertIn(f"{path}: region 1.2 of HAMi-core, priority 1", table)
        self.assertIn("501 MiB", table)

    def test_damaged_regions_are_refused(self):
        good = hami_core_region(["GPU-a"], [0], [0], [])
        for name, data in [("empty", b""), ("short", good[:1000]), ("magic", b"\0" * len(good))]:
            with self.subTest(name=name):
                path = self.folder / name
                path.write_bytes(data)
                shown = self.ctl("top", "--region", path)
                self.assertEqual((shown.returncode, shown.stdout), (1, ""))
                self.assertIn(str(path), shown.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

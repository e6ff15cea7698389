#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hamictl run, from outside."""

from support import *


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Run(CtlTest):
    def setUp(self):
        super().setUp()
        self.make_machine("--gpus", "2", "--memory", "16Gi", "--numa", "0")

    def run_ok(self, *words, **environment):
        ended = self.ctl("run", *words, **environment)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), words)
        return ended.stdout

    def test_a_full_disk_grants_nothing(self):
        disk = self.folder / "disk"
        disk.mkdir()
        for pages, said in ((1, "cannot write a lease to "), (2, r"cannot make \S*/cells/GPU-\S*: "), (3, r"cannot write \S*/limits: ")):
            if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4 * pages}k", "none", disk], stderr=subprocess.DEVNULL).returncode:
                self.skipTest("mounting a small tmpfs is not permitted here")
            try:
                ended = self.ctl("run", "--gpumem", "1Gi", "true", HAMI_RUN_DIR=str(disk / "run"))
                self.assertEqual(ended.returncode, 125)
                self.assertRegex(ended.stderr, rf"^hamictl run: {said}.*No space left on device\n$")
                self.assertEqual(list((disk / "run/grants").iterdir()), [])
            finally:
                subprocess.run(["umount", "-l", disk])

    def test_exit_code_is_the_programs(self):
        cases = [
            (["true"], 0),
            (["sh", "-c", "exit 7"], 7),
            (["sh", "-c", "exit 255"], 255),
            (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
            (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
            (["/nonexistent/program"], 127),
            (["no-such-program"], 127),
            (["/tmp"], 126),
            (["--", "true"], 0),
        ]
        for words, code in cases:
            with self.subTest(words=words):
                self.assertEqual(self.ctl("run", "--gpumem", "1Gi", *words).returncode, code)
        self.assertEqual(self.grants(), [])
        self.assertEqual(list((self.folder / "machine.run/runs").iterdir()), [])

    def test_an_ignored_sigchld_is_no_obstacle(self):
        ended = subprocess.run(
            ["sh", "-c", f"trap '' CHLD; exec {HAMICTL} run sh -c 'exit 5'"], env=self.environment, timeout=30
        )
        self.assertEqual(ended.returncode, 5)

    def test_the_programs_options_are_its_own(self):
        self.assertEqual(self.run_ok("echo", "--gpumem", "-x", "--help"), "--gpumem -x --help\n")

    def test_each_program_has_a_cell_of_its_cards(self):
        listing = 'cat "$(dirname "${LD_PRELOAD%%:*}")/limits"; ls -l "$(dirname "${LD_PRELOAD%%:*}")/../cells"'
        held, borrows = self.run_ok("sh", "-c", listing), self.run_ok("--gpus", "2", "--gpucores", "30", "--borrow", "sh", "-c", listing)
        self.assertIn("--borrow goes with --gpucores", self.ctl("run", "--borrow", "true").stderr)
        cards = self.folder / "machine.run/cards"
        self.assertNotIn("HAMI_CARDS=", held)
        self.assertIn(f"HAMI_CARDS={cards}\n", borrows)
        self.assertRegex(held, f"HAMI_CARD_CELLS={cards.parent}/runs/[0-9]+/cells\n")
        self.assertEqual([len(re.findall(r" 4096 .* GPU-", text)) for text in (held, borrows)], [1, 2])
        self.assertEqual([p for p in cards.rglob("*") if p.is_file()], [], "with the program they are gone")

    def test_a_program_has_a_priority(self):
        listing = 'cat "$(dirname "${LD_PRELOAD%%:*}")/limits"; find "$HAMI_SIM.run/cards" -type f'
        shown = self.run_ok("--priority", "0", "--gpucores", "30", "sh", "-c", listing)
        self.assertIn("CUDA_TASK_PRIORITY=0\n", shown)
        self.assertIn(f"HAMI_CARD_RANKS={self.folder / 'machine.run/cards'}\n", shown)
        self.assertRegex(shown, r"/cards/GPU-[0-9a-f-]+/\d+\.0\.30\n")
        self.assertIn("CUDA_TASK_PRIORITY=1\n", self.run_ok("sh", "-c", listing))
        self.assertIn("is not a number from 0 to 1000", self.ctl("run", "--priority", "high", "true").stderr)

    def test_managed_memory_and_imports_have_a_policy(self):
        listing = 'cat "$(dirname "${LD_PRELOAD%%:*}")/limits"'
        self.assertIn("HAMI_MANAGED=resident\n", self.run_ok("sh", "-c", listing))
        self.assertIn("HAMI_IMPORTS=refuse\n", self.run_ok("sh", "-c", listing))
        self.assertIn("HAMI_IMPORTS=allow\n", self.run_ok("--allow-imports", "sh", "-c", listing))
        self.assertIn("HAMI_MANAGED=full\n", self.run_ok("--managed", "full", "sh", "-c", listing))
        self.assertIn('"some" is none of resident, full and free', self.ctl("run", "--managed=some", "true").stderr)

    def test_a_program_may_have_more_than_its_card(self):
        listing = 'cat "$(dirname "${LD_PRELOAD%%:*}")/limits"'
        self.assertNotIn("CUDA_OVERSUBSCRIBE", self.run_ok("sh", "-c", listing))
        shown = self.run_ok("--oversubscribe", "--gpumem", "24Gi", "sh", "-c", listing)
        self.assertIn("CUDA_OVERSUBSCRIBE=true\n", shown)
        self.assertIn(f"CUDA_DEVICE_MEMORY_LIMIT_0={24 * GIB}\n", shown)
        held = self.ctl("run", "--oversubscribe", "--gpumem", "24Gi", HOLDER, 20 * GIB, "0")
        self.assertEqual(held.returncode, 0, held.stderr)
        self.assertIn("20480 MiB exceed the oversubscribed card and live on the host", held.stderr)
        beyond = self.ctl("run", "--oversubscribe", "--gpumem", "24Gi", HOLDER, 24 * GIB + 1, "0")
        self.assertEqual((beyond.returncode, beyond.stderr), (3, "cuMemAlloc_v2: error 2\n"), "no more than it asked for")

        # Nobody else has room beside it, and it has none beside others: a limit within the card stays what it was.
        one, two = (gpu["uuid"] for gpu in self.top()["gpus"])
        large = self.start("run", "--oversubscribe", "--gpumem", "24Gi", "--gpu-uuid", one, "sleep", "60")
        small = self.start("run", "--gpumem", "1Gi", "--gpu-uuid", two, "sleep", "60")
        self.assertTrue(self.until(lambda: len(self.grants()) == 2))
        self.assertEqual(sorted(self.grants()), sorted([(one, 24 * GIB, 0), (two, GIB, 0)]))
        for words in (["--gpumem", "1Mi", "--gpu-uuid", one], ["--oversubscribe", "--gpumem", "24Gi"], ["--oversubscribe", "--gpumem", "16Gi"]):
            refused = self.ctl("run", *words, "true")
            self.assertEqual(refused.returncode, 125)
            self.assertIn("no room: ", refused.stderr)
        self.run_ok("--oversubscribe", "--gpumem", "15Gi", "true")
        small.terminate()
        small.wait()
        self.run_ok("--oversubscribe", "--gpumem", "24Gi", "true")
        large.terminate()
        large.wait()

    def test_what_the_program_finds(self):
        shown = self.run_ok(
            "--gpumem", "1.5Gi", "--gpucores=30", "sh", "-c",
            'env; echo ---; cat "$(dirname "${LD_PRELOAD%%:*}")/limits"',
            CUDA_DEVICE_SM_LIMIT_0="99", CUDA_DEVICE_MEMORY_LIMIT="99g",
        )
        environment, limits = shown.split("---\n")
        environment = dict(line.split("=", 1) for line in environment.splitlines() if "=" in line)
        limits = dict(line.split("=", 1) for line in limits.splitlines())
        gpu = self.top()["gpus"][-1]["uuid"]
        run = str(self.folder / "machine.run/runs/1")

        self.assertEqual(environment["LD_PRELOAD"], run + "/vgpu/libvgpu.so")
        self.assertEqual(environment["CUDA_VISIBLE_DEVICES"], gpu)
        self.assertEqual(environment["NVIDIA_VISIBLE_DEVICES"], gpu)
        self.assertEqual(environment["CUDA_DEVICE_MEMORY_LIMIT_0"], "1536m")
        self.assertEqual(environment["CUDA_DEVICE_SM_LIMIT"], "30")
        self.assertEqual(environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"], run + "/region.cache")
        self.assertEqual(environment["HAMI_SIM"], str(self.machine))
        self.assertNotIn("CUDA_DEVICE_SM_LIMIT_0", environment)
        self.assertNotIn("CUDA_DEVICE_MEMORY_LIMIT", environment)
        self.assertTrue(environment["LD_LIBRARY_PATH"])

        self.assertEqual(limits["NVIDIA_VISIBLE_DEVICES"], gpu)
        self.assertEqual(limits["CUDA_DEVICE_MEMORY_LIMIT_0"], str(1536 * MIB))
        self.assertEqual(limits["CUDA_DEVICE_SM_LIMIT_0"], "30")
        self.assertEqual(limits["CUDA_DEVICE_MEMORY_SHARED_CACHE"], run + "/region.cache")
        self.assertEqual(limits["HAMI_VISIBLE_DEVICES"], "granted")
        self.assertEqual(limits["HAMI_UNACCOUNTED"], "refuse")

    def test_the_limits_file_cannot_be_written_and_is_the_libraries_neighbour(self):
        show = 'd=$(dirname "${LD_PRELOAD%%:*}"); stat -c %a "$d/limits"; readlink "$d/libvgpu.so"'
        mode, target = self.run_ok("sh", "-c", show).split()
        self.assertEqual(mode, "444")
        self.assertTrue(os.path.isabs(target) and os.path.exists(target))

    def test_what_was_preloaded_before_stays(self):
        shown = self.run_ok("sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD="libdl.so.2")
        self.assertTrue(shown.endswith("/vgpu/libvgpu.so:libdl.so.2\n"), shown)

    def test_a_relative_machine_is_made_absolute(self):
        ended = subprocess.run(
            [HAMICTL, "run", "sh", "-c", "cd /; echo $HAMI_SIM"], cwd=self.folder, text=True, timeout=30,
            env={**self.environment, "HAMI_SIM": "machine"}, stdout=subprocess.PIPE,
        )
        self.assertEqual(ended.stdout, f"{self.machine}\n")

    def test_amounts(self):
        for amount, granted in [
            ("1Gi", GIB), ("1G", GIB), ("1g", GIB), ("512M", 512 * MIB), ("512Mi", 512 * MIB), ("2048K", 2 * MIB),
            ("1048577", 2 * MIB), ("0.5Gi", GIB // 2), ("50%", 8 * GIB), ("33%", 16384 * 33 // 100 * MIB),
            ("100%", 16 * GIB), ("16Gi", 16 * GIB),
        ]:
            with self.subTest(amount=amount):
                shown = self.run_ok("--gpumem", amount, "sh", "-c", 'cat "$(dirname "$LD_PRELOAD")/limits"')
                self.assertIn(f"CUDA_DEVICE_MEMORY_LIMIT_0={granted}\n", shown)

    def test_without_amounts_a_whole_card(self):
        first = self.start("run", "sleep", "60")
        second = self.start("run", "sleep", "60")
        self.assertTrue(self.until(lambda: len(self.grants()) == 2))
        self.assertEqual(sorted(m for _, m, _ in self.grants()), [16 * GIB] * 2)
        self.assertEqual(len({u for u, _, _ in self.grants()}), 2)
        third = self.ctl("run", "--gpumem", "1Mi", "true")
        self.assertEqual(third.returncode, 125)
        self.assertIn("no room: 2/2 CardInsufficientMemory; the most that is free on one card: 0 B", third.stderr)
        self.assertIn("--wait", third.stderr)
        del first, second

    def test_bad_input(self):
        gpus = self.top()["gpus"]
        cases = [
            (["--gpumem", "x", "true"], '--gpumem: "x" is not an amount of memory'),
            (["--gpumem", "", "true"], '--gpumem: "" is not an amount of memory'),
            (["--gpumem", "-1Gi", "true"], '--gpumem: "-1Gi" is not an amount of memory'),
            (["--gpumem", "10", "true"], '--gpumem: "10" is less than 1 MiB; is the unit missing'),
            (["--gpumem", "0", "true"], '--gpumem: "0" is less than 1 MiB'),
            (["--gpumem", "500k", "true"], '--gpumem: "500k" is less than 1 MiB\nTry'),
            (["--gpumem", "0%", "true"], '--gpumem: "0%" is not a whole percentage from 1% to 100%'),
            (["--gpumem", "101%", "true"], '--gpumem: "101%" is not a whole percentage from 1% to 100%'),
            (["--gpumem", "1.5%", "true"], '--gpumem: "1.5%" is not a whole percentage from 1% to 100%'),
            (["--gpumem", "99999999999G", "true"], '--gpumem: "99999999999G" is not an amount of memory'),
            (["--gpucores", "0", "true"], '--gpucores: "0" is not a whole percentage from 1 to 100'),
            (["--gpucores", "101", "true"], '--gpucores: "101" is not a whole percentage from 1 to 100'),
            (["--gpucores", "many", "true"], '--gpucores: "many" is not a whole percentage'),
            (["--gpus", "0", "true"], '--gpus: "0" is not a number from 1 to 16'),
            (["--gpus", "17", "true"], '--gpus: "17" is not a number from 1 to 16'),
            (["--policy", "best", "true"], '--policy: "best" is neither spread nor binpack'),
            (["--wait=long", "true"], '--wait: "long" is not a duration'),
            (["--gpu-uuid", "", "true"], "--gpu-uuid: no UUID given"),
            (["--gpu-uuid", "GPU-x", "true"], "--gpu-uuid: no card of this machine has the UUID \"GPU-x\""),
            (["--gpumem", "17Gi", "true"], "this machine can never hold that: 2/2 CardInsufficientMemory"),
            (["--gpumem", "17Gi", "--wait", "true"], "With --oversubscribe what the card has no room for lives on the host"),
            (["--wait", "10m", "true"], '--wait: "10m" would be the program; say --wait=10m'),
            (["--gpus", "3", "true"], "this machine can never hold that: NodeInsufficientDevice; --gpus asks for 3 cards, and this machine has 2"),
            (["--gpus", "2", "--gpu-uuid", gpus[0]["uuid"], "true"], "never hold that: 1/2 AllocatedCards"),
            ([], "no program given"),
            (["--nonsense", "true"], "unrecognized option '--nonsense'"),
        ]
        for words, message in cases:
            with self.subTest(words=words):
                ended = self.ctl("run", *words)
                self.assertIn(message, ended.stderr)
                self.assertEqual((ended.returncode, ended.stdout), (125, ""))
        self.assertEqual(self.grants(), [])

    def test_one_within_another_is_told_so(self):
        """It sees the outer one's part alone, all of which is granted: to wait for room would never end."""
        for words in ([], ["--wait"]):
            ended = self.ctl("run", "--gpumem", "2Gi", HAMICTL, "run", *words, "--gpumem", "1Gi", "true")
            self.assertEqual(ended.returncode, 125)
            self.assertRegex(ended.stderr, r"^hamictl run: this is within the program of lease \d+, and .*\n$")
        ended = self.ctl("run", "--gpumem", "2Gi", "env", "LD_PRELOAD=", HAMICTL, "run", "--gpumem", "1Gi", "true")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), "whoever takes the library away asks as from outside")
        gone = self.machine.with_name("machine.run") / "runs/99/vgpu/libvgpu.so"
        ended = self.ctl("run", "--gpumem", "2Gi", "true", LD_PRELOAD=str(gone))
        self.assertEqual(ended.returncode, 0, "what a lease left that is over")

    def test_a_card_in_mig_mode_is_not_granted(self):
        first, second = (gpu["uuid"] for gpu in self.top()["gpus"])
        self.assertEqual(self.ctl("sim", "fault", "--gpu", "0", "--mig", "on").returncode, 0)
        self.assertEqual([gpu["healthy"] for gpu in self.top()["gpus"]], [False, True])
        self.assertIn("(MIG mode)", self.ctl("top").stdout)
        self.assertIn(second, self.run_ok("sh", "-c", "echo $CUDA_VISIBLE_DEVICES"))
        refused = self.ctl("run", "--gpu-uuid", first, "true")
        self.assertEqual(refused.returncode, 125)
        self.assertIn("a card in MIG mode is not shared by hamictl run", refused.stderr)
        refused = self.ctl("run", "--gpus", "2", "true")
        self.assertEqual(refused.returncode, 125)
        self.assertIn("can't hold that while a card of it is lost or in MIG mode: 1/2 AllocatedCardsInsufficientRequest, 1/2 CardNotHealth; a card in MIG mode is not shared by hamictl run; the most that is free", refused.stderr)

    def test_a_card_that_is_lost_may_come_back(self):
        """So that a request for which it is needed is not refused for ever, but what no card ever held is."""
        self.assertEqual(self.ctl("sim", "fault", "--gpu", "1", "--state", "lost").returncode, 0)
        for words, said in ((["--gpus", "2"], "can't hold that while a card of it is lost or in MIG mode: 1/2 AllocatedCards"), (["--gpus", "3"], "can never hold that: ")):
            refused = self.ctl("run", *words, "true")
            self.assertEqual(refused.returncode, 125)
            self.assertIn(f"hamictl run: this machine {said}", refused.stderr)
        self.assertEqual(self.ctl("sim", "fault", "--gpu", "0", "--state", "lost").returncode, 0)
        self.assertIn("can't hold that while a card", self.ctl("run", "--gpumem", "4Gi", "true").stderr)

    def test_the_load_program_names_what_is_wrong(self):
        load = BUILD / "tests/load"
        for words, said in ((["--memory", "1X"], '--memory: "1X" is not an amount'), (["--kernel", ""], '--kernel: "" is not a duration'), (["--grid", "2G"], "--grid:")):
            ended = subprocess.run([load, *words], capture_output=True, text=True, timeout=30)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertIn(said, ended.stderr)
        self.assertEqual(subprocess.run([load, "--help"], capture_output=True, timeout=30).returncode, 0)

    def test_bad_surroundings(self):
        elsewhere = self.folder / "open"
        elsewhere.mkdir(mode=0o700)
        elsewhere.chmod(0o777)
        link = self.folder / "link"
        link.symlink_to(self.folder)
        blank = self.folder / "with blank"
        cases = [
            ({"HAMI_SIM": "/nonexistent/machine"}, "HAMI_SIM: cannot find the folder /nonexistent"),
            ({"HAMI_SIM": str(self.folder / "none")}, "there is no simulated machine at HAMI_SIM="),
            ({"HAMI_LIBDIR": "/nonexistent"}, "HAMI_LIBDIR=/nonexistent: No such file"),
            ({"HAMI_LIBDIR": str(self.folder)}, "the simulated driver is not at "),
            ({"HAMI_RUN_DIR": str(elsewhere)}, "; set HAMI_RUN_DIR to a directory of your own"),
            ({"HAMI_RUN_DIR": str(link)}, "is not a directory"),
            ({"HAMI_RUN_DIR": str(blank)}, "which LD_PRELOAD cannot carry; set HAMI_RUN_DIR to another"),
            ({"HAMI_RUN_DIR": "/nonexistent/x"}, "HAMI_RUN_DIR: cannot find the folder"),
        ]
        for environment, message in cases:
            with self.subTest(environment=environment):
                ended = self.ctl("run", "true", **environment)
                self.assertIn(message, ended.stderr)
                self.assertEqual(ended.returncode, 125)

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has a GPU")
    def test_without_any_gpu_it_says_how_to_get_one(self):
        ended = self.ctl("run", "true", HAMI_SIM="")
        self.assertEqual(ended.returncode, 125)
        self.assertIn("hamictl run: no GPU: ", ended.stderr)
        self.assertIn("hamictl sim create", ended.stderr)

    def test_chosen_cards(self):
        first, second = (gpu["uuid"] for gpu in self.top()["gpus"])
        for chosen, seen in [(first, first), (second, second), (f"{first},{second}", second)]:
            shown = self.run_ok("--gpumem", "1Gi", "--gpu-uuid", chosen, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
            self.assertEqual(shown.strip(), seen)
        both = self.run_ok("--gpus", "2", "--gpumem", "1Gi", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
        self.assertEqual(sorted(both.strip().split(",")), sorted([first, second]))

    SEE = """
import ctypes
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
count, total, handle, uuid = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
print(count.value, total.value)
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
assert nvml.nvmlDeviceGetUUID(handle, uuid, 96) == 0
print(count.value, uuid.value.decode())
"""

    def test_the_program_sees_only_its_card(self):
        for gpu in self.top()["gpus"]:
            shown = self.run_ok("--gpumem", "4Gi", "--gpu-uuid", gpu["uuid"], sys.executable, "-c", self.SEE)
            self.assertEqual(shown, f"1 {4 * GIB}\n1 {gpu['uuid']}\n")

    def test_the_program_gets_no_more_than_its_part(self):
        self.assertEqual(self.ctl("run", "--gpumem", "4Gi", HOLDER, 3 * GIB, "0").returncode, 0)
        refused = self.ctl("run", "--gpumem", "4Gi", HOLDER, 4 * GIB + 1, "0")
        self.assertEqual((refused.returncode, refused.stderr), (3, "cuMemAlloc_v2: error 2\n"))

    def test_a_program_without_room_for_a_context_is_told_so(self):
        ended = self.ctl("run", "--gpumem", "300m", HOLDER, 1, "0")
        self.assertIn("a context takes 400 MiB, and the limit has no room for it", ended.stderr)
        self.assertEqual(ended.returncode, 3)

    def test_policies(self):
        for policy, cards in [("spread", 2), ("binpack", 1)]:
            held = [self.start("run", "--policy", policy, "--gpumem", "1Gi", "sleep", "60")]
            self.assertTrue(self.until(lambda: len(self.grants()) == 1))
            held.append(self.start("run", "--policy", policy, "--gpumem", "1Gi", "sleep", "60"))
            self.assertTrue(self.until(lambda: len(self.grants()) == 2))
            self.assertEqual(len({uuid for uuid, _, _ in self.grants()}), cards)
            for process in held:
                process.terminate()
                process.wait()


class Signals(CtlTest):
    def setUp(self):
        super().setUp()
        self.make_machine("--memory", "16Gi")

    def start_program(self, text):
        process = self.start("run", sys.executable, "-c", text)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    CATCH = """
import signal, sys, time
signal.signal(signal.{0}, lambda *_: sys.exit(40))
print("ready", flush=True)
while True: time.sleep(0.05)  # pause() would wait for ever after a signal that came just before it
"""

    def test_signals_reach_the_program(self):
        for name in ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM", "SIGWINCH"]:
            with self.subTest(name=name):
                process = self.start_program(self.CATCH.format(name))
                process.send_signal(getattr(signal, name))
                self.assertEqual(process.wait(30), 40)

    def test_a_signal_that_the_program_does_not_catch_ends_it(self):
        process = self.start_program("import signal; print('ready', flush=True); signal.pause()")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 128 + signal.SIGTERM)

    def test_stopping_and_continuing_go_along(self):
        process = self.start_program("import signal; print('ready', flush=True); signal.pause()")
        program = self.child_of(process)

        def state(pid):
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

        os.kill(program, signal.SIGSTOP)
        self.assertTrue(self.until(lambda: state(process.pid) == "T" and state(program) == "T"))
        process.send_signal(signal.SIGCONT)
        self.assertTrue(self.until(lambda: state(process.pid) == "S" and state(program) == "S"))
        process.terminate()
        self.assertEqual(process.wait(30), 128 + signal.SIGTERM)

    def test_the_terminals_ctrl_c_comes_once(self):
        """The kernel sends it to the whole process group; hamictl must not send it a second time."""
        import pty

        counter = """
import signal, time
count = 0
def hit(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, hit)
print("ready", flush=True)
deadline = time.monotonic() + 1
while time.monotonic() < deadline: time.sleep(0.05)
print("count", count, flush=True)
"""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(HAMICTL, [str(HAMICTL), "run", sys.executable, "-c", counter], self.environment)
        seen = b""
        while b"ready" not in seen:
            seen += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        while b"count" not in seen or not seen.endswith(b"\n"):
            seen += os.read(terminal, 1000)
        self.assertIn(b"count 1\r\n", seen)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        os.close(terminal)

    def test_killing_hamictl_kills_the_program_and_frees_the_room(self):
        process = self.start_program("import signal; print('ready', flush=True); signal.pause()")
        program = self.child_of(process)
        self.assertEqual(self.ctl("run", "true").returncode, 125)
        process.kill()
        self.assertTrue(self.until(lambda: not alive(program), 30))
        self.assertEqual(self.ctl("run", "true").returncode, 0)

    def test_room_is_held_while_any_process_of_the_program_lives(self):
        pid_file = self.folder / "pid"
        ended = self.ctl("run", "sh", "-c", f"sleep 60 >/dev/null 2>&1 & echo $! > {pid_file}")
        self.assertEqual(ended.returncode, 0)
        left = int(pid_file.read_text())
        self.assertEqual(self.ctl("run", "true").returncode, 125)
        self.assertEqual(len(self.top()["holders"]), 1)
        os.kill(left, signal.SIGKILL)
        self.assertTrue(self.until(lambda: self.ctl("run", "true").returncode == 0, 30))


    def test_who_closed_the_descriptor_counts_while_it_uses_the_gpu(self):
        """Python closes all but three in what it starts."""
        pid_file = self.folder / "pid"
        program = f"""
import subprocess, time
holder = subprocess.Popen(["{HOLDER}", "{GIB}", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(1)
open("{pid_file}", "w").write(str(holder.pid))
"""
        self.assertEqual(self.ctl("run", sys.executable, "-c", program).returncode, 0)
        left = int(pid_file.read_text())
        self.assertEqual(self.ctl("run", "true").returncode, 125)
        self.assertEqual([h["memory_used_bytes"] > GIB for h in self.top()["holders"]], [True])
        os.kill(left, signal.SIGKILL)
        self.assertTrue(self.until(lambda: self.ctl("run", "true").returncode == 0, 30))


class Wait(CtlTest):
    def setUp(self):
        super().setUp()
        self.make_machine("--memory", "16Gi")
        self.holder = self.start("run", "sleep", "60")
        self.assertTrue(self.until(lambda: len(self.grants()) == 1))

    def start_waiter(self, *words):
        waiter = self.start("run", "--wait", *words)
        self.assertIn("hamictl run: waiting for room: ", waiter.stderr.readline())
        return waiter

    def test_room_goes_to_who_waits(self):
        waiter = self.start_waiter("echo", "got it")
        self.holder.terminate()
        self.assertEqual(waiter.wait(30), 0)
        self.assertEqual((waiter.stdout.read(), waiter.stderr.read()), ("got it\n", ""))

    def test_also_when_the_holder_is_killed(self):
        waiter = self.start_waiter("true")
        self.holder.kill()
        self.assertEqual(waiter.wait(30), 0)

    def test_waiting_costs_next_to_nothing(self):
        waiters = [self.start_waiter("true"), self.start_waiter("true")]

        def ticks(waiter):
            return sum(map(int, pathlib.Path(f"/proc/{waiter.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))

        before = [ticks(waiter) for waiter in waiters]
        time.sleep(3)
        took = [(ticks(waiter) - then) / os.sysconf("SC_CLK_TCK") for waiter, then in zip(waiters, before)]
        self.assertLess(max(took), 0.3, took)

    def test_first_come_first_served(self):
        log = self.folder / "log"
        waiters = []
        for name in "abcd":
            waiters.append(self.start_waiter("sh", "-c", f"echo {name} >> {log}; sleep 0.05"))
        self.holder.terminate()
        for waiter in waiters:
            self.assertEqual(waiter.wait(30), 0)
        self.assertEqual(log.read_text().split(), list("abcd"))

    def test_a_killed_waiter_leaves_the_queue(self):
        first = self.start_waiter("sleep", "60")
        second = self.start_waiter("true")
        first.kill()
        self.holder.terminate()
        self.assertEqual(second.wait(30), 0)
        self.assertEqual(list((self.folder / "machine.run/waiting").iterdir()), [])

    def test_it_does_not_wait_longer_than_told(self):
        began = time.monotonic()
        ended = self.ctl("run", "--wait=300ms", "true")
        self.assertEqual(ended.returncode, 125)
        self.assertIn("still no room: 1/1 CardInsufficientMemory", ended.stderr)
        self.assertTrue(0.3 <= time.monotonic() - began < 10)

    def test_a_waiter_can_be_interrupted(self):
        waiter = self.start_waiter("true")
        waiter.send_signal(signal.SIGINT)
        self.assertEqual(waiter.wait(30), -signal.SIGINT)


class Crowd(CtlTest):
    """200 at once on 8 cards: the ledger's files and the machine's own count say what was held."""

    CARDS, MEMORY, PART, SLOTS = 8, 8 * GIB, 1536 * MIB, 10

    def test_never_more_granted_than_there_is(self):
        self.make_machine("--gpus", str(self.CARDS), "--memory", str(self.MEMORY), "--context", "64Mi")
        fits = self.CARDS * min(self.SLOTS, self.MEMORY // self.PART)
        crowd = [
            self.start("run", "--wait=100s", "--gpumem", str(self.PART), HOLDER, str(1024 * MIB), "0.6")
            for _ in range(200)
        ]
        most, most_used, looks = 0, 0, 0
        while any(process.poll() is None for process in crowd):
            granted = {}
            for uuid, memory, _ in self.grants():
                granted.setdefault(uuid, []).append(memory)
            for parts in granted.values():
                self.assertLessEqual(sum(parts), self.MEMORY)
                self.assertLessEqual(len(parts), self.SLOTS)
            if looks % 10 == 0:
                view = json.loads(self.ctl("sim", "show", "--json").stdout)
                most_used = max([most_used] + [gpu["used_bytes"] for gpu in view["gpus"]])
                for process in view["processes"]:
                    self.assertLessEqual(sum(process["used_bytes"]), self.PART)
                    self.assertLessEqual(sum(1 for used in process["used_bytes"] if used), 1)
            most, looks = max(most, sum(len(parts) for parts in granted.values())), looks + 1
            time.sleep(0.01)

        codes = {}
        for process in crowd:
            codes.setdefault(process.returncode, []).append(process.stderr.read())
        self.assertEqual(list(codes), [0], {code: texts[0] for code, texts in codes.items()})
        print(f"{looks} looks: at most {most} of {fits} parts held, {most_used // MIB} of {self.MEMORY // MIB} MiB used")
        self.assertGreater(most, fits // 2)
        self.assertLessEqual(most, fits)
        self.assertEqual(self.grants(), [])

    def test_without_waiting_exactly_those_that_fit_get_room(self):
        self.make_machine("--gpus", str(self.CARDS), "--memory", str(self.MEMORY))
        fits = self.CARDS * (self.MEMORY // self.PART)
        go = self.folder / "go"
        wait_for_go = f"until [ -e {go} ]; do sleep 0.1; done"
        crowd = [self.start("run", "--gpumem", str(self.PART), "sh", "-c", wait_for_go) for _ in range(200)]
        began = time.monotonic()
        self.assertTrue(self.until(lambda: sum(p.poll() is not None for p in crowd) == 200 - fits, 60))
        print(f"200 decided in {time.monotonic() - began:.2f} s")
        self.assertEqual(len(self.grants()), fits)
        go.touch()
        self.assertEqual(sorted(process.wait(30) for process in crowd), [0] * fits + [125] * (200 - fits))


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hamictl resize, from outside."""

from support import *

LOAD = BUILD / "tests/load"


class Resize(CtlTest):
    def setUp(self):
        super().setUp()
        self.make_machine("--gpus", "1", "--memory", "16Gi", "--numa", "0")

    def lease(self, *words):
        """A program that runs, and the number of its lease."""
        before = {holder["id"] for holder in self.holders()}
        process = self.start("run", *words)
        self.assertTrue(self.until(lambda: {h["id"] for h in self.holders()} - before))
        (number,) = {h["id"] for h in self.holders()} - before
        return process, number

    def holders(self):
        return self.top()["holders"]

    def used(self):
        return sum(h["memory_used_bytes"] for h in self.holders())

    def resize(self, *words):
        ended = self.ctl("resize", *words)
        return ended.returncode, ended.stdout, ended.stderr

    def test_a_program_that_calls_has_new_limits_at_once(self):
        _, number = self.lease("--gpumem", "2Gi", "--gpucores", "30", LOAD, "--memory", "1G", "--kernel", "1ms", "--seconds", "60")
        self.assertTrue(self.until(lambda: self.used() >= GIB))
        code, said, why = self.resize("--gpumem", "4Gi", "--gpucores", "60", number)
        self.assertEqual((code, why), (0, ""))
        self.assertRegex(said, rf"^lease {number}: GPU-\S+, 4 GiB, cores 60%\n$")
        (holder,) = self.holders()
        self.assertEqual((holder["memory_limit_bytes"], holder["cores_percent"]), (4 * GIB, 60))
        self.assertEqual(self.resize("--gpucores", "10", number)[0], 0)
        (holder,) = self.holders()
        self.assertEqual((holder["memory_limit_bytes"], holder["cores_percent"]), (4 * GIB, 10), "what is not named stays")

    def test_a_lease_of_two_cards_is_changed_on_both(self):
        self.ctl("sim", "remove")
        self.make_machine("--gpus", "2", "--memory", "16Gi")
        _, number = self.lease("--gpus", "2", "--gpumem", "2Gi", "--gpucores", "30", LOAD, "--memory", "1G", "--seconds", "60")
        (region,) = (self.folder / "machine.run").rglob("*.cache")
        told = lambda: self.ctl("region", "--json", region).stdout  # nothing until the program uses it
        limits = lambda: [(d["limit_bytes"], d["cores_percent"]) for d in json.loads(told() or '{"devices": []}')["devices"]]
        self.assertTrue(self.until(lambda: limits() == [(2 * GIB, 30)] * 2), limits())
        self.assertEqual(self.resize("--gpumem", "4Gi", "--gpucores", "60", number)[0], 0)
        self.assertTrue(self.until(lambda: limits() == [(4 * GIB, 60)] * 2), limits())

    def test_a_share_is_taken_away_again(self):
        _, number = self.lease("--gpumem", "2Gi", LOAD, "--memory", "1G", "--kernel", "1ms", "--seconds", "60")
        self.assertTrue(self.until(lambda: self.used() >= GIB))
        self.assertEqual(self.resize("--gpucores", "30", number)[0], 0)
        code, said, why = self.resize("--gpucores", "none", number)
        self.assertEqual((code, why), (0, ""))
        self.assertRegex(said, rf"^lease {number}: GPU-\S+, 2 GiB, no limit on cores\n$")
        self.assertIsNone(self.holders()[0]["cores_percent"])
        (region,) = (self.folder / "machine.run").rglob("*.cache")
        self.assertTrue(self.until(lambda: json.loads(self.ctl("region", "--json", region).stdout)["devices"][0]["cores_percent"] in (None, 0, 100)))
        self.lease("--gpumem", "2Gi", "--gpucores", "80", LOAD, "--seconds", "60")
        self.assertEqual(self.resize("--gpucores", "30", number)[0], 1, "its share is another's now")
        self.assertEqual(self.resize("--gpucores", "0", number)[0], 2)
        self.assertIn("nor none", self.resize("--gpucores", "all", number)[2])

    def test_a_program_is_suspended_and_resumed(self):
        _, number = self.lease("--gpumem", "2Gi", LOAD, "--kernel", "1ms", "--seconds", "60", "--batch", "4")
        self.assertTrue(self.until(lambda: self.used() > 0))
        (region,) = (self.folder / "machine.run").rglob("*.cache")
        launched = lambda: json.loads(self.ctl("region", "--json", region).stdout)["processes"][0]["devices"][0]["kernels"]
        self.assertTrue(self.until(lambda: launched() > 0))
        code, said, _ = self.resize("--suspend", number)
        self.assertEqual(code, 0)
        self.assertIn(", suspended", said)
        self.assertTrue(self.holders()[0]["suspended"])
        self.assertRegex(self.ctl("top").stdout, rf"(?m)^ *{number} .* suspended ")
        time.sleep(0.5)
        before = launched()
        time.sleep(0.5)
        self.assertEqual(launched(), before, "suspended, it launches nothing")
        self.assertEqual(self.resize("--gpumem", "3Gi", number)[0], 0, "other limits leave that as it is")
        self.assertEqual(launched(), before)
        code, said, _ = self.resize("--resume", number)
        self.assertEqual(code, 0)
        self.assertNotIn("suspended", said)
        self.assertFalse(self.holders()[0]["suspended"])
        self.assertTrue(self.until(lambda: launched() > before), "resumed, it goes on")
        self.assertIn("does not go with", self.resize("--suspend", "--resume", number)[2])

    def test_a_suspended_program_that_notes_sigterm_ends_once_it_is_resumed_or_killed(self):
        for end, code in [("resume", 0), ("kill", 128 + signal.SIGKILL)]:
            with self.subTest(end=end):
                process, number = self.lease("--gpumem", "2Gi", LOAD, "--kernel", "1ms", "--seconds", "60")
                self.assertTrue(self.until(lambda: self.used() > 0))
                (holder,) = self.holders()
                self.assertEqual(self.resize("--suspend", number)[0], 0)
                time.sleep(0.3)
                os.kill(holder["pid"], signal.SIGTERM)
                time.sleep(0.5)
                self.assertIsNone(process.poll())
                if end == "resume":
                    self.assertEqual(self.resize("--resume", number)[0], 0)
                else:
                    os.kill(holder["pid"], signal.SIGKILL)
                self.assertEqual(process.wait(20), code)

    def test_what_is_held_beyond_a_new_limit_is_not_granted_to_others(self):
        first, number = self.lease("--gpumem", "8Gi", LOAD, "--memory", "6G", "--kernel", "1ms", "--seconds", "60")
        self.assertTrue(self.until(lambda: self.used() >= 6 * GIB))
        code, said, _ = self.resize("--gpumem", "1Gi", number)
        self.assertEqual(code, 0)
        self.assertRegex(said, r", 1 GiB, no limit on cores; it holds 6\.?[0-9]* GiB, and gets no more until it is below its limit\n$")
        self.assertEqual(self.ctl("run", "--gpumem", "11Gi", "true").returncode, 125, "15 of 16 GiB are granted, and 6 are held")
        self.assertEqual(self.ctl("run", "--gpumem", "8Gi", "true").returncode, 0)
        waits = self.start("run", "--wait", "--gpumem", "14Gi", "true")
        time.sleep(0.3)
        self.assertIsNone(waits.poll())
        first.kill()
        self.assertEqual(waits.wait(20), 0)

    def test_a_smaller_lease_makes_room_for_who_waits(self):
        _, number = self.lease("--gpumem", "12Gi", "sleep", "60")
        waits = self.start("run", "--wait", "--gpumem", "8Gi", "true")
        time.sleep(0.3)
        self.assertIsNone(waits.poll())
        code, said, _ = self.resize("--gpumem", "6Gi", number)
        self.assertEqual(code, 0)
        self.assertIn("; in force from the program's next call on\n", said)
        self.assertEqual(waits.wait(20), 0)

    def test_more_than_there_is_is_refused_with_numbers(self):
        _, first = self.lease("--gpumem", "6Gi", "--gpucores", "40", "sleep", "60")
        _, _ = self.lease("--gpumem", "8Gi", "--gpucores", "50", "sleep", "60")
        cases = [
            (["--gpumem", "9Gi"], r"no room: 9 GiB asked for on GPU-\S+, of which others leave 8 GiB\n"),
            (["--gpucores", "60"], r"no room: 60 % of the compute time asked for on GPU-\S+, of which others leave 50 %\n"),
            (["--gpucores", "100"], r"no room: 100 % of the compute time asked for on GPU-\S+, of which others leave 50 %\n"),
        ]
        for words, message in cases:
            code, said, why = self.resize(*words, first)
            self.assertEqual((code, said), (1, ""))
            self.assertRegex(why, "^hamictl resize: " + message + "$")
        self.assertEqual(self.resize("--gpumem", "50%", "--gpucores", "50", first)[0], 0)
        amounts = {h["id"]: (h["memory_limit_bytes"], h["cores_percent"]) for h in self.holders()}
        self.assertEqual(amounts[first], (8 * GIB, 50), "a refused change changes nothing, and a half is half of the card")

    def test_an_oversubscribed_lease_exceeds_a_card_that_nobody_else_holds(self):
        """As when it was made: one that was made smaller can be made as large again."""
        _, number = self.lease("--gpumem", "24Gi", "--oversubscribe", LOAD, "--memory", "1G", "--kernel", "1ms", "--seconds", "60")
        self.assertTrue(self.until(lambda: self.used() >= GIB))
        for amount in ("4Gi", "24Gi", "4Gi"):
            self.assertEqual(self.resize("--gpumem", amount, number)[::2], (0, ""))
        other, _ = self.lease("--gpumem", "2Gi", "sleep", "60")
        self.assertRegex(self.resize("--gpumem", "24Gi", number)[2], r"no room: 24 GiB asked for on GPU-\S+, of which others leave 14 GiB\n$")
        other.kill()
        other.wait()
        self.assertTrue(self.until(lambda: self.resize("--gpumem", "24Gi", number)[0] == 0))
        (holder,) = self.holders()
        self.assertEqual(holder["memory_limit_bytes"], 24 * GIB)
        self.assertEqual(self.ctl("run", "--gpumem", "1Gi", "true").returncode, 125, "it has the card alone again")

    def test_a_card_that_is_too_small_is_said_to_be(self):
        _, number = self.lease("--gpumem", "2Gi", "sleep", "60")
        self.assertRegex(self.resize("--gpumem", "24Gi", number)[2], r"no room: 24 GiB asked for on GPU-\S+, which has 16 GiB\n$")

    def test_what_is_not_there_or_not_said_is_refused(self):
        self.assertRegex(self.resize("--gpumem", "1Gi", 77)[2], "no program holds lease 77")
        for words in (["3"], ["--gpumem", "1Gi"], ["--gpumem", "1Gi", "three"], ["--gpucores", "0", "3"], ["--gpumem", "12", "3"]):
            code, said, why = self.resize(*words)
            self.assertEqual((code, said), (2, ""), words)
            self.assertTrue(why)
        self.assertIn('"three" is no lease\'s ID; "hamictl top" lists them', self.resize("--gpumem", "1Gi", "three")[2])
        self.assertIn('"4" is too much; one ID is enough', self.resize("--gpumem", "1Gi", "3", "4")[2])
        program, number = self.lease("--gpumem", "1Gi", "sleep", "60")
        program.kill()
        program.wait()
        self.assertTrue(self.until(lambda: self.resize("--gpumem", "2Gi", number)[0] == 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
